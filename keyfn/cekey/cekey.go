// Package cekey reads CloudEvents, in binary and in structured mode. The
// identity of a CloudEvent is its source and its id; the id alone is unique only
// within a source.
package cekey

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/secondrun/secondrun/keyfn"
)

// Prefixes of the headers of binary mode.
const (
	prefixKafka = "ce_"
	prefixHTTP  = "ce-"
)

// attributes are what a structured event becomes headers of.
var attributes = [...]string{"id", "source", "specversion", "type", "subject", "time", "datacontenttype", "dataschema"}

// Key gives source and id of a CloudEvent: "/shop/web:100". Every mode gives the
// same key for one event; time, trace and other attributes do not enter it.
// See [Event] for what is recognised and [HTTPKey] for the HTTP spelling of
// headers.
func Key() keyfn.Func { return key(prefixKafka) }

// HTTPKey is [Key] for events whose headers are spelled as in HTTP, "ce-id", and
// percent-encoded as HTTP wants it. Key does not accept that spelling.
func HTTPKey() keyfn.Func { return key(prefixHTTP) }

func key(prefix string) keyfn.Func {
	return keyfn.In(view(prefix), keyfn.Join(
		keyfn.Header(prefix+"source"), keyfn.Header(prefix+"id")))
}

// Event is the view of the data of a CloudEvent. The headers are those of
// binary mode ("ce_id", "ce_source", "ce_type" …) in every mode; extension
// attributes of structured mode are left out.
//
// The mode is told by the header content-type, or Content-Type, ignoring case
// and parameters of its value:
//
//   - application/cloudevents+json is structured mode,
//   - application/cloudevents-batch+json is [keyfn.ErrBatch],
//   - application/cloudevents+ any other format is [keyfn.ErrMalformed],
//   - with any other or none, binary mode if there is a header ce_id, ce_source
//     or ce_specversion, else structured mode if the body is a JSON object with
//     specversion, source and id.
//
// Anything else has no CloudEvent: [keyfn.ErrMissing].
func Event(m keyfn.Message) (keyfn.Message, error) { return view(prefixKafka)(m) }

// HTTPEvent is [Event] with headers spelled as in HTTP, see [HTTPKey].
func HTTPEvent(m keyfn.Message) (keyfn.Message, error) { return view(prefixHTTP)(m) }

func view(prefix string) keyfn.View {
	return func(m keyfn.Message) (keyfn.Message, error) {
		switch t := mediaType(m); {
		case t == "application/cloudevents+json":
			return structured(m, prefix)
		case strings.HasPrefix(t, "application/cloudevents-batch"):
			return nil, failed("content-type", keyfn.ErrBatch)
		case strings.HasPrefix(t, "application/cloudevents"):
			return nil, failed("content-type", keyfn.ErrMalformed)
		}
		for _, name := range []string{"id", "source", "specversion"} {
			if m.Header(prefix+name) != nil {
				return binary(m, prefix)
			}
		}
		if v, err := keyfn.Fields(m.Body(), "specversion", "id", "source"); err == nil && v[0].IsString() && v[1] != nil && v[2] != nil {
			return structured(m, prefix)
		}
		return nil, failed("", keyfn.ErrMissing)
	}
}

func failed(path string, reason error) error {
	return &keyfn.Error{Builder: "CloudEvent", Path: path, Reason: reason}
}

// mediaType returns the media type of a message in lower case, "" if there is
// none.
func mediaType(m keyfn.Message) string {
	values := m.Header("content-type")
	if len(values) == 0 {
		values = m.Header("Content-Type")
	}
	if len(values) == 0 {
		return ""
	}
	t, _, _ := strings.Cut(values[0], ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// binary returns the message itself, with headers decoded where HTTP encodes
// them.
func binary(m keyfn.Message, prefix string) (keyfn.Message, error) {
	if prefix != prefixHTTP {
		return m, nil
	}
	headers := map[string][]string{}
	for _, name := range attributes {
		for _, v := range m.Header(prefix + name) {
			text, err := url.PathUnescape(v)
			if err != nil {
				return nil, failed(prefix+name, keyfn.ErrMalformed)
			}
			headers[prefix+name] = append(headers[prefix+name], text)
		}
	}
	return keyfn.WithHeaders(m, m.Body(), headers), nil
}

func structured(m keyfn.Message, prefix string) (keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(), append(attributes[:], "data", "data_base64")...)
	if err != nil {
		return nil, err
	}
	headers := map[string][]string{}
	for i, name := range attributes {
		switch {
		case v[i].IsString():
			headers[prefix+name] = []string{v[i].Text()}
		case !v[i].IsNull():
			return nil, failed(name, keyfn.ErrType)
		default:
			headers[prefix+name] = nil // hides a header of the transport
		}
	}
	data, encoded := v[len(attributes)], v[len(attributes)+1]
	if encoded.IsString() {
		if data, err = base64.StdEncoding.DecodeString(encoded.Text()); err != nil {
			return nil, failed("data_base64", keyfn.ErrMalformed)
		}
	}
	return keyfn.WithHeaders(m, data, headers), nil
}
