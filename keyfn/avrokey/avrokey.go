// Package avrokey reads messages in Avro, alone or in the frame of a schema
// registry. A message becomes JSON, so that every part of keyfn works on it.
package avrokey

import (
	"errors"
	"sync"
	"unicode/utf8"

	"github.com/twmb/avro"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/framing"
)

// View is the view of a message in the binary form of Avro, written with this
// schema, as JSON:
//
//	keyfn.In(avrokey.View(schema), keyfn.JSON("order.id"))
//
// A record is an object, a union is its value without a type name, an enum its
// symbol, a long its exact digits, a time the number that Avro holds, bytes a
// string of the characters U+0000 to U+00FF. Logical types do not change that.
// Bytes after the value and strings that are not UTF-8 are [keyfn.ErrMalformed];
// an empty body, a tombstone, is [keyfn.ErrSkip].
//
// The schema must be the one the message was written with. View panics for nil.
func View(schema *avro.Schema) keyfn.View {
	if schema == nil {
		panic("avrokey: View: nil schema")
	}
	return func(m keyfn.Message) (keyfn.Message, error) {
		if len(m.Body()) == 0 {
			return nil, failed(keyfn.ErrSkip)
		}
		return decode(m, schema, m.Body())
	}
}

// Framed is [View] for messages in the frame of a schema registry. lookup returns
// the text of the schema with an id; schemas are parsed once and kept, since an
// id never gets another schema. An error of lookup is the reason of the error
// and is asked again for the next message: a registry that is away is not the
// message's fault, so mark such an error as one that passes.
func Framed(lookup func(id uint32) (string, error)) keyfn.View {
	if lookup == nil {
		panic("avrokey: Framed: nil function")
	}
	var known sync.Map // uint32 → *avro.Schema
	return func(m keyfn.Message) (keyfn.Message, error) {
		id, payload, err := framing.Split(m.Body())
		if err != nil {
			return nil, err
		}
		if s, ok := known.Load(id); ok {
			return decode(m, s.(*avro.Schema), payload) //nolint:forcetypeassert // see above
		}
		text, err := lookup(id)
		if err != nil {
			return nil, failed(err)
		}
		schema, err := avro.Parse(text)
		if err != nil {
			return nil, failed(errSchema)
		}
		known.Store(id, schema)
		return decode(m, schema, payload)
	}
}

var errSchema = errors.New("schema cannot be parsed")

func failed(reason error) error { return &keyfn.Error{Builder: "Avro", Reason: reason} }

// decode turns Avro into JSON. The errors of package avro quote the message.
func decode(m keyfn.Message, schema *avro.Schema, data []byte) (keyfn.Message, error) {
	if len(data) > keyfn.MaxBody {
		return nil, failed(keyfn.ErrTooLong)
	}
	var v any
	rest, err := schema.Decode(data, &v)
	if err != nil || len(rest) > 0 || !isText(v) {
		return nil, failed(keyfn.ErrMalformed)
	}
	text, err := schema.EncodeJSON(v)
	if err != nil {
		return nil, failed(keyfn.ErrMalformed)
	}
	return keyfn.WithBody(m, text), nil
}

// isText reports whether all strings in v are UTF-8. EncodeJSON would make those
// equal that differ in other bytes only.
func isText(v any) bool {
	switch v := v.(type) {
	case string:
		return utf8.ValidString(v)
	case []any:
		for _, e := range v {
			if !isText(e) {
				return false
			}
		}
	case map[string]any:
		for name, e := range v {
			if !utf8.ValidString(name) || !isText(e) {
				return false
			}
		}
	}
	return true
}
