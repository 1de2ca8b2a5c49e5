package keyfn

import (
	"encoding/base64"

	"github.com/go-json-experiment/json/jsontext"
)

// View returns the message that is inside another: the payload of an envelope
// as the body, its attributes as the headers. A View that recognises its
// envelope by its content returns other messages as they are, where that is
// documented. A View serves the handler too, so that handler and key see the
// same payload.
type View func(Message) (Message, error)

// In gives what f gives for the message that v finds inside.
func In(v View, f Func) Func {
	if v == nil {
		panic("keyfn: In: nil view")
	}
	mustParts("In", []Func{f})
	return Part("In", "", func(m Message) (string, error) {
		outer, t := m, tracing(m)
		if t != nil {
			outer = m.(traced).Message
		}
		inner, err := v(outer)
		if err != nil {
			return "", err
		}
		if t != nil {
			inner = traced{inner, t}
		}
		return value(f, inner, 0)
	})
}

// Chain is the view through several envelopes, the outermost first.
func Chain(views ...View) View {
	if len(views) == 0 {
		panic("keyfn: Chain: no views")
	}
	return func(m Message) (Message, error) {
		for _, v := range views {
			var err error
			if m, err = v(m); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
}

// Embedded is the view of a document that is a string at a path of the JSON
// body, such as JSON inside JSON. Headers stay those of the outer message.
func Embedded(path string) View {
	segs := mustPath("Embedded", path)
	return func(m Message) (Message, error) {
		s, err := embedded(m.Body(), segs)
		if err != nil {
			return nil, asError("Embedded", path, err)
		}
		return WithBody(m, s), nil
	}
}

// Base64 is the view of a document that is a string in standard Base64 at a
// path of the JSON body. It never guesses: text that happens to be valid Base64
// is decoded, anything else is [ErrMalformed].
func Base64(path string) View {
	segs := mustPath("Base64", path)
	return func(m Message) (Message, error) {
		s, err := embedded(m.Body(), segs)
		if err != nil {
			return nil, asError("Base64", path, err)
		}
		b, err := base64.StdEncoding.Strict().AppendDecode(nil, s)
		if err != nil {
			return nil, &Error{Builder: "Base64", Path: path, Reason: because(ErrMalformed, "not Base64")}
		}
		return WithBody(m, b), nil
	}
}

// Sub is the view of the JSON value at a path of the JSON body, of any type.
func Sub(path string) View {
	segs := mustPath("Sub", path)
	return func(m Message) (Message, error) {
		raw, err := find(m.Body(), segs)
		if err == nil && raw.Kind() == 'n' {
			err = ErrNull
		}
		if err != nil {
			return nil, asError("Sub", path, err)
		}
		return WithBody(m, raw), nil
	}
}

// embedded returns the text of the string at a path, which may be empty.
func embedded(body []byte, segs []string) ([]byte, error) {
	raw, err := find(body, segs)
	if err != nil {
		return nil, err
	}
	switch raw.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, []byte(raw))
		if err != nil {
			return nil, syntax(err)
		}
		return b, nil
	case 'n':
		return nil, ErrNull
	}
	return nil, ErrType
}

// NewMessage returns a message of a body and headers, for samples and tests. It
// keeps both.
func NewMessage(body []byte, headers map[string][]string) Message {
	return &message{body, headers, nil}
}

// WithBody returns m with another body, which it keeps.
func WithBody(m Message, body []byte) Message { return &message{body, nil, m} }

// WithHeaders returns m with another body and more headers, both of which it
// keeps. A name among the new headers hides the one of m.
func WithHeaders(m Message, body []byte, headers map[string][]string) Message {
	return &message{body, headers, m}
}

type message struct {
	body    []byte
	headers map[string][]string
	outer   Message // asked for headers that are not in headers; may be nil
}

func (m *message) Body() []byte { return m.body }

func (m *message) Header(name string) []string {
	if values, ok := m.headers[name]; ok {
		return values
	}
	if m.outer == nil {
		return nil
	}
	return m.outer.Header(name)
}
