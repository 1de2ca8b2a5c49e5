package keyfn

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// JSON gives the string or number at a path of the JSON body: "data.id",
// "items.0.sku". A segment names a member of an object, byte by byte and
// case-sensitively, or counts the elements of an array from 0. Names with a dot
// need the other spelling, a JSON Pointer (RFC 6901): "/a.b/c". It panics if
// the path is empty or has an empty segment.
//
// A string is taken as it is. A number is written exactly, with a leading '#':
// integers with all their digits (7, 7.0 and 70e-1 are "#7", -0 is "#0"),
// fractions in the shortest form (0.10 is "#0.1"). So 7 and "7" differ; a
// string that begins with '#' or an apostrophe gets a leading apostrophe and stays different
// from any number. [JSONText] makes 7 and "7" one.
//
// Everything else is an error: a missing value ([ErrMissing], also for an empty
// body), null, an empty string, booleans, objects and arrays ([ErrType]), a
// number beyond the range of binary64. The whole body is checked, wherever the
// value is: duplicate names anywhere ([ErrAmbiguous]), invalid UTF-8, lone
// surrogates and anything after the value ([ErrMalformed]) are errors, and so is
// the pointer to S3 that SQS clients send in place of a large payload
// ([ErrUnresolved]). One mark of byte order at the start is ignored.
func JSON(path string) Func {
	segs := mustPath("JSON", path)
	return Part("JSON", path, func(m Message) (string, error) { return lookUp(m.Body(), segs, false) })
}

// JSONText is [JSON] that takes 7 and "7" for the same value: a number is
// written without the '#'. The text of a string is not touched, so "7.0" is
// still another value than 7.
func JSONText(path string) Func {
	segs := mustPath("JSONText", path)
	return Part("JSONText", path, func(m Message) (string, error) { return lookUp(m.Body(), segs, true) })
}

func mustPath(builder, path string) []string {
	segs, err := parsePath(path)
	if err != nil {
		panic("keyfn: " + builder + " " + quote(path) + ": " + err.Error())
	}
	return segs
}

// parsePath splits a dotted path or a JSON Pointer.
func parsePath(path string) ([]string, error) {
	if strings.HasPrefix(path, "/") {
		if !jsontext.Pointer(path).IsValid() {
			return nil, errors.New("not a JSON Pointer")
		}
		var segs []string
		for s := range jsontext.Pointer(path).Tokens() {
			segs = append(segs, s)
		}
		return segs, nil
	}
	segs := strings.Split(path, ".")
	for _, s := range segs {
		if s == "" {
			return nil, errors.New("empty path segment")
		}
	}
	return segs, nil
}

var byteOrderMark = []byte("\ufeff")

// document returns a body as JSON text, not yet checked.
func document(body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return nil, because(ErrTooLong, "body")
	}
	body = bytes.TrimPrefix(body, byteOrderMark)
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil, because(ErrMissing, "body is empty")
	}
	if isPointer(body) {
		return nil, ErrUnresolved
	}
	return body, nil
}

// lookUp returns the scalar at a path of a body as text.
func lookUp(body []byte, segs []string, coerce bool) (string, error) {
	raw, err := find(body, segs)
	if err != nil {
		return "", err
	}
	return scalar(raw, coerce)
}

// find returns the JSON value at a path of a body. It is a copy.
func find(body []byte, segs []string) (jsontext.Value, error) {
	text, err := document(body)
	if err != nil {
		return nil, err
	}
	f := finder{segs: segs}
	f.value = f.buf[:0]
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, syntax(err)
	}
	return f.value, f.reason
}

// finder reads a whole JSON text and keeps the value at a path.
type finder struct {
	segs   []string
	value  jsontext.Value
	buf    [64]byte // of a short value
	reason error    // why there is no value, where the text is fine
}

// UnmarshalJSONFrom is for package json.
func (f *finder) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	segs := f.segs
	// The objects and arrays on the way are entered here and read to their end in
	// finish. What is beside the way is read as a whole, which checks it and is
	// faster than SkipValue, which goes token by token.
	depth := 0
	for ; len(segs) > 0; segs = segs[1:] {
		var found bool
		var err error
		switch d.PeekKind() {
		case '{':
			found, err = member(d, segs[0])
		case '[':
			n, ok := index(segs[0])
			if !ok {
				f.reason = ErrType
				return f.finish(d, depth, true)
			}
			found, err = element(d, n)
		case 'n':
			f.reason = ErrNull
			return f.finish(d, depth, true)
		default:
			f.reason = ErrType
			return f.finish(d, depth, true)
		}
		if err != nil {
			return err
		}
		depth++
		if !found {
			f.reason = ErrMissing
			return f.finish(d, depth, false)
		}
	}
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	f.value = append(f.value, v...)
	return f.finish(d, depth, false)
}

// member enters an object and moves to the value of a name, or to the end of
// the object.
func member(d *jsontext.Decoder, name string) (bool, error) {
	if _, err := d.ReadToken(); err != nil {
		return false, err
	}
	for d.PeekKind() != '}' {
		raw, err := d.ReadValue()
		if err != nil {
			return false, err
		}
		if equalString(raw, name) {
			return true, nil
		}
		if _, err := d.ReadValue(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// equalString compares a JSON string with text.
func equalString(raw jsontext.Value, s string) bool {
	if len(raw) < 2 || raw.Kind() != '"' {
		return false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == s
	}
	text, err := jsontext.AppendUnquote(nil, []byte(raw))
	return err == nil && string(text) == s
}

// index reads a segment that counts elements.
func index(seg string) (int, bool) {
	n, err := strconv.Atoi(seg)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == seg
}

// element enters an array and moves to its element n, or to the end of the
// array.
func element(d *jsontext.Decoder, n int) (bool, error) {
	if _, err := d.ReadToken(); err != nil {
		return false, err
	}
	for i := 0; d.PeekKind() != ']'; i++ {
		if i == n {
			return true, nil
		}
		if _, err := d.ReadValue(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// finish reads the rest of the text, from within depth objects and arrays.
func (f *finder) finish(d *jsontext.Decoder, depth int, pending bool) error {
	if pending {
		if _, err := d.ReadValue(); err != nil {
			return err
		}
	}
	for depth > 0 {
		if k := d.PeekKind(); k == '}' || k == ']' {
			depth--
			if _, err := d.ReadToken(); err != nil {
				return err
			}
		} else if _, err := d.ReadValue(); err != nil {
			return err
		}
	}
	return nil
}

// syntax turns an error of package json, whose text quotes the message, into a
// reason.
func syntax(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return because(ErrAmbiguous, "duplicate JSON name")
	}
	return because(ErrMalformed, "not one valid JSON value")
}

// scalar returns a string or number as text.
func scalar(raw jsontext.Value, coerce bool) (string, error) {
	switch raw.Kind() {
	case '"':
		return text(raw, coerce)
	case '0':
		return number(raw, coerce)
	case 'n':
		return "", ErrNull
	}
	return "", ErrType
}

func text(raw jsontext.Value, coerce bool) (string, error) {
	var s string
	if bytes.IndexByte(raw, '\\') < 0 {
		s = string(raw[1 : len(raw)-1])
	} else {
		b, err := jsontext.AppendUnquote(nil, []byte(raw))
		if err != nil {
			return "", syntax(err)
		}
		s = string(b)
	}
	if !coerce && (strings.HasPrefix(s, "#") || strings.HasPrefix(s, "'")) {
		s = "'" + s
	}
	return s, nil
}

func number(raw jsontext.Value, coerce bool) (string, error) {
	var digits [40]byte
	d, err := parseNumber(raw, digits[:0])
	if err != nil {
		return "", err
	}
	if len(d.digits) > MaxKey {
		return "", ErrTooLong
	}
	var buf [40]byte
	out := buf[:0]
	if !coerce {
		out = append(out, '#')
	}
	return string(d.appendPlain(out)), nil
}
