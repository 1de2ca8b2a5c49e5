package keyfn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

// msg is a message of a test.
type msg struct {
	body    string
	headers map[string][]string
}

func (m msg) Body() []byte                { return []byte(m.body) }
func (m msg) Header(name string) []string { return m.headers[name] }

func body(s string) msg { return msg{body: s} }

// headers makes a message of name, value, name, value, …
func headers(b string, pairs ...string) msg {
	m := msg{body: b, headers: map[string][]string{}}
	for i := 0; i < len(pairs); i += 2 {
		m.headers[pairs[i]] = append(m.headers[pairs[i]], pairs[i+1])
	}
	return m
}

// row is one message of a case and what must come out: a key or a reason.
type row struct {
	name string
	m    keyfn.Message
	key  string
	err  error
}

// canary is in the messages of tests and must never be in an error.
const canary = "CANARY7391"

func check(t *testing.T, f keyfn.Func, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Helper()
			key, err := f(r.m)
			if key != r.key || !errors.Is(err, r.err) || (err != nil) != (r.err != nil) {
				t.Fatalf("got %q, %v\nwant %q, %v", key, err, r.key, r.err)
			}
			var typed *keyfn.Error
			if err != nil && !errors.As(err, &typed) {
				t.Errorf("%T is not an *Error", err)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("error quotes the message: %v", err)
			}
			// The same message gives the same key again.
			if again, _ := f(r.m); again != key {
				t.Errorf("second time %q, first %q", again, key)
			}
		})
	}
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("%s did not panic", name)
		}
	}()
	f()
}
