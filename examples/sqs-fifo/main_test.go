package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestFIFO(t *testing.T) {
	t.Setenv("QUEUE_URL", "")
	var out bytes.Buffer // the bank writes under its own lock
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"a": {"a/1 applied, balance 100", "a/2 fails, those behind it wait", "a/2 applied, balance 70", "a/3 applied, balance 0"},
		"b": {"b/1 applied, balance 7"},
	}
	got := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		got[line[:1]] = append(got[line[:1]], strings.TrimSpace(line))
	}
	for account := range want {
		if !slices.Equal(got[account], want[account]) {
			t.Errorf("account %s: %q", account, got[account])
		}
	}
}
