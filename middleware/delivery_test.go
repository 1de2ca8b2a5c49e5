package secondrun_test

import (
	"context"
	"errors"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

// What an adapter could not look into is decided like an error of the key
// function, and nothing runs, not even in Mode Observe.
func TestDeliveryErr(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want secondrun.Action
		kind secondrun.EventKind
	}{
		"nothing to handle": {&keyfn.Error{Builder: "S3", Reason: keyfn.ErrSkip}, secondrun.Ack, secondrun.EventSkipped},
		"passes":            {secondrun.Transient(errors.New("503")), secondrun.Retry, secondrun.EventKeyError},
		"unresolved":        {keyfn.ErrUnresolved, secondrun.DeadLetter, secondrun.EventKeyError},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []secondrun.EventKind
			g, err := secondrun.New("work", memstore.New(nil), &secondrun.Options{
				Mode: secondrun.Observe, RunWithoutKey: true,
				OnEvent: func(_ context.Context, e secondrun.Event) { kinds = append(kinds, e.Kind) },
			})
			if err != nil {
				t.Fatal(err)
			}
			h := secondrun.Wrap(g, keyfn.Template("{id}"), func(context.Context, keyfn.Message) error {
				t.Error("ran")
				return nil
			})
			m := keyfn.NewMessage([]byte(`{"id":"k"}`), nil)
			d := h.Processor().Process(t.Context(), secondrun.Delivery{Message: m, Err: c.err})
			if d.Action != c.want || len(kinds) != 1 || kinds[0] != c.kind {
				t.Errorf("%v with events %v, want %v with %v", d.Action, kinds, c.want, c.kind)
			}
		})
	}
}
