package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestShow finds, in what the command prints, the run that the copy leads to.
func TestShow(t *testing.T) {
	var out strings.Builder
	if err := show(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	original := regexp.MustCompile(`trace (\w+)\n  process orders .*\n.*\n +secondrun.claim +(\w+) .*verdict=granted attempt=1`).FindStringSubmatch(text)
	replay := regexp.MustCompile(`verdict=done .*\n +-> replay: trace (\w+), span (\w+)`).FindStringSubmatch(text)
	if original == nil || replay == nil || original[1] != replay[1] || original[2] != replay[2] {
		t.Errorf("original %q, replay %q in:\n%s", original, replay, text)
	}
	if n := strings.Count(text, "secondrun.run "); n != 2 { // the handler and its effect
		t.Errorf("%d runs in:\n%s", n, text)
	}
}
