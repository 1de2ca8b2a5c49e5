// Package keyfntest tests key functions: golden files of derived keys, and that
// messages share a key or do not.
package keyfntest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

// UpdateVariable is the environment variable that makes [Golden] write its file
// when it is "1".
const UpdateVariable = "KEYFN_UPDATE"

// Sample is one line of a golden file.
type Sample struct {
	Name    string // unique in the file
	Key     keyfn.Func
	Message keyfn.Message
}

// Message returns a message of a body and headers: name, value, name, value, …
// It panics for an odd number of those.
func Message(body string, headers ...string) keyfn.Message {
	if len(headers)%2 != 0 {
		panic("keyfntest: header without a value")
	}
	h := map[string][]string{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = append(h[headers[i]], headers[i+1])
	}
	return keyfn.NewMessage([]byte(body), h)
}

// Golden compares the keys of samples with those in a file and fails the test
// where they differ: a key that changes lets every message in flight run again.
// Change a key on purpose with a [keyfn.Format] of a higher version, then write
// the file anew with KEYFN_UPDATE=1 go test. Where there is no key the file has
// the reason.
func Golden(t testing.TB, file string, samples ...Sample) {
	t.Helper()
	got, err := lines(samples)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(UpdateVariable) == "1" {
		if err := write(file, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file) //nolint:gosec // a path of the caller's test
	if err != nil {
		t.Fatalf("%v (write it with %s=1)", err, UpdateVariable)
	}
	compare(t, strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "\n"), got)
}

func lines(samples []Sample) ([]string, error) {
	seen := map[string]bool{}
	got := make([]string, 0, len(samples))
	for _, s := range samples {
		if seen[s.Name] {
			return nil, fmt.Errorf("keyfntest: sample %q twice", s.Name)
		}
		seen[s.Name] = true
		key, err := s.Key(s.Message)
		text := strconv.QuoteToASCII(key)
		if err != nil {
			text = "error " + strconv.QuoteToASCII(err.Error())
		}
		got = append(got, strconv.QuoteToASCII(s.Name)+"\t"+text)
	}
	return got, nil
}

func write(file string, got []string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o600)
}

func compare(t testing.TB, want, got []string) {
	t.Helper()
	index := func(lines []string) map[string]string {
		m := make(map[string]string, len(lines))
		for _, l := range lines {
			name, key, _ := strings.Cut(l, "\t")
			m[name] = key
		}
		return m
	}
	wanted, found := index(want), index(got)
	for _, l := range got {
		name, key, _ := strings.Cut(l, "\t")
		switch old, ok := wanted[name]; {
		case !ok:
			t.Errorf("%s is new: %s", name, key)
		case old != key:
			t.Errorf("%s changed: %s, was %s", name, key, old)
		}
	}
	for name := range wanted {
		if _, ok := found[name]; !ok {
			t.Errorf("%s has no sample any more", name)
		}
	}
}

// Same fails the test unless all messages have a key and share it.
func Same(t testing.TB, f keyfn.Func, ms ...keyfn.Message) {
	t.Helper()
	var first string
	for i, m := range ms {
		key, err := f(m)
		switch {
		case err != nil:
			t.Errorf("message %d: %v", i, err)
		case i > 0 && key != first:
			t.Errorf("message %d has key %q, message 0 has %q", i, key, first)
		case i == 0:
			first = key
		}
	}
}

// Different fails the test unless all messages have a key and no two share one.
func Different(t testing.TB, f keyfn.Func, ms ...keyfn.Message) {
	t.Helper()
	seen := map[string]int{}
	for i, m := range ms {
		key, err := f(m)
		if err != nil {
			t.Errorf("message %d: %v", i, err)
			continue
		}
		if j, ok := seen[key]; ok {
			t.Errorf("messages %d and %d share key %q", j, i, key)
		}
		seen[key] = i
	}
}

// Fails fails the test unless none of the messages has a key, for this reason.
func Fails(t testing.TB, f keyfn.Func, reason error, ms ...keyfn.Message) {
	t.Helper()
	for i, m := range ms {
		if key, err := f(m); !errors.Is(err, reason) {
			t.Errorf("message %d: key %q, error %v; want %v", i, key, err, reason)
		}
	}
}
