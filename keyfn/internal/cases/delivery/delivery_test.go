// Package delivery_test plays the messages of every case through a guarded
// handler. It is apart from the cases so that keys are tested without one.
package delivery_test

import (
	"context"
	"errors"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/internal/cases"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

// TestHandler plays the messages of every case, in three orders, through a
// guarded handler: it runs once for each event, every other delivery of the
// event is acknowledged, and a message without a key never is.
func TestHandler(t *testing.T) {
	for _, c := range cases.All() {
		t.Run(c.ID+" "+c.Name, func(t *testing.T) {
			for _, order := range orders(c.Messages) {
				deliver(t, c, order)
			}
		})
	}
}

func deliver(t *testing.T, c cases.Case, order []cases.Message) {
	t.Helper()
	guard, err := secondrun.New("cases", memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guard.Shutdown(context.Background()) }()
	runs := 0
	h := secondrun.Wrap(guard, c.Key, func(context.Context, keyfn.Message) error {
		runs++
		return nil
	})
	for _, m := range order {
		d := h.Processor().Process(t.Context(), secondrun.Delivery{Message: m.Message})
		switch {
		case m.Err == nil && d.Action != secondrun.Ack:
			t.Errorf("%s: %v, %v", m.Name, d.Action, d.Err)
		case m.Err != nil && !errors.Is(m.Err, keyfn.ErrSkip) && d.Action != secondrun.DeadLetter:
			t.Errorf("%s: %v, want dead-letter", m.Name, d.Action)
		case m.Err != nil && d.Ran:
			t.Errorf("%s: ran without a key", m.Name)
		}
	}
	if runs != c.Events() {
		t.Errorf("%d runs, want %d", runs, c.Events())
	}
}

// TestU13_Fingerprint: one key, and content that differs in more than volatile
// fields.
func TestU13_Fingerprint(t *testing.T) {
	guard, err := secondrun.New("cases", memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guard.Shutdown(context.Background()) }()
	runs := 0
	h := secondrun.Wrap(guard, keyfn.Header("shard"), func(context.Context, keyfn.Message) error {
		runs++
		return nil
	}).WithFingerprint(1, keyfn.Hash(keyfn.Strip("sentAt")))
	for _, m := range fingerprints(t) { // A, A2, B
		err := h.Handle(t.Context(), keyfn.WithHeaders(m.Message, m.Body(), map[string][]string{"shard": {"shard-7"}}))
		if conflict := errors.Is(err, secondrun.ErrConflict); conflict != (m.Event == "B") || err != nil && !conflict {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

func fingerprints(t *testing.T) []cases.Message {
	t.Helper()
	for _, c := range cases.All() {
		if c.ID == "U13" {
			return c.Messages
		}
	}
	t.Fatal("no case U13")
	return nil
}

// orders returns the messages forwards, backwards and twice.
func orders(ms []cases.Message) [][]cases.Message {
	var back []cases.Message
	for i := len(ms) - 1; i >= 0; i-- {
		back = append(back, ms[i])
	}
	return [][]cases.Message{ms, back, append(append([]cases.Message{}, ms...), back...)}
}
