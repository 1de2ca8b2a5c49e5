package keyfn

import (
	stdjson "encoding/json"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// From decodes the JSON body into a T and gives what f makes of it:
//
//	keyfn.From(func(o Order) (string, error) { return "order:" + o.ID + ":fulfil", nil })
//
// Struct tags mean what they mean to encoding/json, and names are matched
// without regard to case as it does, but what it lets pass is an error here:
// duplicate names (also "id" beside "ID"), invalid UTF-8, anything after the
// value, a body that is null. A number in a field of type any is a
// [encoding/json.Number], since a float64 would merge large ids.
//
// A field that the body lacks is the zero value: check it, or "order::fulfil"
// is the key of all orders without an id. [Template] does so by itself. Text
// that f concatenates is not escaped either; [Join] with [Map] or [Template] is
// safer where a value comes from outside. The error of f is the reason of the
// error.
func From[T any](f func(T) (string, error)) Func {
	if f == nil {
		panic("keyfn: From: nil function")
	}
	opts := fromOptions()
	return Part("From", "", func(m Message) (string, error) {
		text, err := document(m.Body())
		if err != nil {
			return "", err
		}
		if jsontext.Value(text).Kind() == 'n' {
			return "", ErrNull
		}
		var v T
		if err := json.Unmarshal(text, &v, opts); err != nil {
			return "", syntax(err)
		}
		return f(v)
	})
}

// fromOptions are those of encoding/json without its leniency.
func fromOptions() json.Options {
	return json.JoinOptions(
		jsonv1.DefaultOptionsV1(),
		jsonv1.ReportErrorsWithLegacySemantics(false), // keeps the cause of an error
		jsontext.AllowDuplicateNames(false),
		jsontext.AllowInvalidUTF8(false),
		json.WithUnmarshalers(json.UnmarshalFromFunc(exactNumber)),
	)
}

// exactNumber decodes a number into an any without loss.
func exactNumber(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported // let the package decide
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	*v = stdjson.Number(raw)
	return nil
}
