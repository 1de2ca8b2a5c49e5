package cases

import (
	"errors"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

// TestCases derives every key of every case.
func TestCases(t *testing.T) {
	ids := map[string]bool{}
	for _, c := range All() {
		ids[c.ID] = true
		t.Run(c.ID+" "+c.Name, func(t *testing.T) { derive(t, c) })
	}
	for _, id := range []string{"U01", "U02", "U04", "U05", "U13", "U22", "U32", "U34", "P01", "P02", "P03", "P04", "P05", "P06", "P07", "P08", "P11", "P13", "P14", "P15", "P16"} {
		if !ids[id] {
			t.Errorf("%s has no case", id)
		}
	}
}

func derive(t *testing.T, c Case) {
	keyOf := map[string]string{}
	eventOf := map[string]string{}
	for _, m := range c.Messages {
		key, err := c.Key(m.Message)
		if m.Err != nil {
			var typed *keyfn.Error
			if !errors.Is(err, m.Err) || !errors.As(err, &typed) || key != "" {
				t.Errorf("%s: %q, %v; want %v", m.Name, key, err, m.Err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if m.Key != "" && key != m.Key {
			t.Errorf("%s: %q, want %q", m.Name, key, m.Key)
		}
		if old, ok := keyOf[m.Event]; ok && old != key {
			t.Errorf("%s: %q, but event %s has %q already", m.Name, key, m.Event, old)
		}
		if old, ok := eventOf[key]; ok && old != m.Event {
			t.Errorf("%s: %q, the key of event %s", m.Name, key, old)
		}
		keyOf[m.Event], eventOf[key] = key, m.Event
		if strings.Contains(key, "e3b0c44298fc1c149afbf4c8996fb924") {
			t.Errorf("%s: the digest of nothing", m.Name)
		}
	}
}

// TestErrorsNeverQuote plants a text in broken messages of every shape and looks
// for it in what the errors say.
func TestErrorsNeverQuote(t *testing.T) {
	const canary = "CANARY7391"
	all := All()
	var bodies []string
	for _, c := range all {
		for _, m := range c.Messages {
			b := string(m.Body())
			bodies = append(bodies, b+canary,
				strings.ReplaceAll(b, `":"`, `":"`+canary), strings.ReplaceAll(b, `":"`, `":{"`+canary+`":1},"x`),
				strings.ReplaceAll(b, `":`, `":["`+canary+`"],"`), strings.ReplaceAll(b, `,"`, `,"`+canary), b[:len(b)/2]+canary)
		}
	}
	bodies = append(bodies, canary, `"`+canary+`"`, `["`+canary+`"]`, `{"`+canary+`":1,"`+canary+`":2}`, "\x00\x00\x00\x00\x01"+canary)
	failures := 0
	for _, b := range bodies {
		for _, h := range []string{"", canary} {
			m := body(b)
			if h != "" {
				m = body(b, "content-type", h, "ce_id", h, "ce_id", h+"2", "id", h, "id", h+"2", "event_id", h, "event_id", h+"2")
			}
			for _, c := range all {
				_, err := c.Key(m)
				if err == nil {
					continue
				}
				failures++
				if strings.Contains(err.Error(), canary) {
					t.Fatalf("%s %s: %q gives %v", c.ID, c.Name, b, err)
				}
			}
		}
	}
	if failures == 0 {
		t.Error("nothing failed")
	}
}
