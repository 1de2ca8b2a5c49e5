package keyfn

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
		return d.SkipValue()
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
			if err := d.SkipValue(); err != nil {
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
