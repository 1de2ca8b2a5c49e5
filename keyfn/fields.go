package keyfn

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Fields returns the members with these names of a body that is a JSON object,
// in one reading of it, for views of one's own. A member that is not there is
// nil, and so are all of a body that is another JSON value. A body that is not
// one valid JSON value is an error as in [JSON].
func Fields(body []byte, names ...string) ([]Raw, error) {
	values := make([]Raw, len(names))
	text, err := document(body)
	if err != nil {
		return nil, asError("Fields", "", err)
	}
	if err := readFields(text, names, values); err != nil {
		return nil, asError("Fields", "", syntax(err))
	}
	return values, nil
}

// Raw is a JSON value as it stands in the message.
type Raw []byte

// IsString reports whether the value is a JSON string.
func (r Raw) IsString() bool { return jsontext.Value(r).Kind() == '"' }

// IsNull reports whether the value is null or not there.
func (r Raw) IsNull() bool { return len(r) == 0 || jsontext.Value(r).Kind() == 'n' }

// IsObject reports whether the value is a JSON object.
func (r Raw) IsObject() bool { return jsontext.Value(r).Kind() == '{' }

// IsArray reports whether the value is a JSON array.
func (r Raw) IsArray() bool { return jsontext.Value(r).Kind() == '[' }

// Text returns the text of a JSON string, "" for anything else.
func (r Raw) Text() string {
	if !r.IsString() {
		return ""
	}
	b, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(r))
	if err != nil {
		return ""
	}
	return string(b)
}

// Members calls f for every member of a JSON object, in the order of the
// message, until f returns an error, which it returns. Any other value is
// [ErrType].
func (r Raw) Members(f func(name string, value Raw) error) error {
	if !r.IsObject() {
		return ErrType
	}
	return (&walker{member: f}).walk(r)
}

// Elements calls f for every element of a JSON array, until f returns an error,
// which it returns. Any other value is [ErrType].
func (r Raw) Elements(f func(i int, value Raw) error) error {
	if !r.IsArray() {
		return ErrType
	}
	return (&walker{element: f}).walk(r)
}

// Scalar returns what [JSON] gives for the value: ErrMissing if it is not
// there.
func (r Raw) Scalar() (string, error) {
	if len(r) == 0 {
		return "", ErrMissing
	}
	return scalar(jsontext.Value(r), false)
}

// readFields fills values with the members of the top object that have these
// names. Text that is no object has none of them.
func readFields(text []byte, names []string, values []Raw) error {
	return json.Unmarshal(text, &fieldReader{names, values})
}

type fieldReader struct {
	names  []string
	values []Raw
}

// UnmarshalJSONFrom is for package json.
func (f *fieldReader) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		_, err := d.ReadValue()
		return err
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(f.names, func(s string) bool { return equalString(name, s) })
		if i < 0 {
			if _, err := d.ReadValue(); err != nil {
				return err
			}
			continue
		}
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		f.values[i] = Raw(slices.Clone(v))
	}
	_, err := d.ReadToken()
	return err
}

// walker calls a function for what an object or array holds.
type walker struct {
	member  func(string, Raw) error
	element func(int, Raw) error
	err     error // of the function
}

func (w *walker) walk(r Raw) error {
	err := json.Unmarshal(r, w)
	switch {
	case w.err != nil:
		return w.err // as it is, without the text of package json around it
	case err != nil:
		return syntax(err)
	}
	return nil
}

// UnmarshalJSONFrom is for package json.
func (w *walker) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	object := d.PeekKind() == '{'
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
		name := ""
		if object {
			t, err := d.ReadToken()
			if err != nil {
				return err
			}
			name = t.String()
		}
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		v = slices.Clone(v)
		if object {
			w.err = w.member(name, Raw(v))
		} else {
			w.err = w.element(i, Raw(v))
		}
		if w.err != nil {
			return w.err
		}
	}
	_, err := d.ReadToken()
	return err
}
