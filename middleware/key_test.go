package secondrun_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestK01_KeyErrors(t *testing.T) {
	key := map[string]keyfn.Func{
		"none":   func(keyfn.Message) (string, error) { return "", errBad },
		"empty":  keyOf(""),
		"long":   keyOf(strings.Repeat("k", store.MaxKey+1)),
		"panics": func(keyfn.Message) (string, error) { panic("key") },
	}
	for name, key := range key {
		for _, opt := range []secondrun.Options{{}, {RunWithoutKey: true}, {Mode: secondrun.Observe}} {
			t.Run(fmt.Sprint(name, opt.RunWithoutKey, opt.Mode), func(t *testing.T) {
				bubble(t, &opt, func(f *fixture) {
					runs := 0
					p := secondrun.Wrap(f.g, key, func(ctx context.Context, _ msg) error {
						runs++
						_, err := secondrun.EffectKey(ctx, "charge")
						isError(f, err, secondrun.ErrNoClaim)
						return secondrun.OnceFunc(ctx, "charge", func(context.Context) error { return nil })
					}).Processor()
					d := p.Process(f.Context(), delivery("a"))
					if opt.RunWithoutKey || opt.Mode == secondrun.Observe {
						decided(f, d, secondrun.Ack, true, nil)
						is(f, "runs", runs, 1)
					} else {
						decided(f, d, secondrun.DeadLetter, false, secondrun.ErrKey)
						is(f, "runs", runs, 0)
					}
					is(f, "records", f.faults.Len(), 0)
					is(f, "key errors", f.events.count(secondrun.EventKeyError), 1)
				})
			})
		}
	}
}

func TestKeyErrorsThatPassAreRetried(t *testing.T) {
	for name, err := range map[string]error{"offloaded body": statusError(503), "rollout": &keyfn.NewerError{Version: 9, Newest: 8}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &secondrun.Options{RunWithoutKey: true}, func(f *fixture) {
				p := secondrun.Wrap(f.g, func(keyfn.Message) (string, error) { return "", err }, nothing).Processor()
				d := p.Process(f.Context(), delivery("a"))
				decided(f, d, secondrun.Retry, false, secondrun.ErrKey)
				isError(f, d.Err, err)
				if d.After <= 0 {
					f.Error("no wait")
				}
			})
		})
	}
}

func TestNothingToHandleIsAcknowledgedAndNeverRuns(t *testing.T) {
	for _, opt := range []secondrun.Options{{}, {RunWithoutKey: true}, {Mode: secondrun.Observe}} {
		bubble(t, &opt, func(f *fixture) {
			runs := 0
			skip := func(keyfn.Message) (string, error) { return "", keyfn.ErrSkip }
			d := secondrun.Wrap(f.g, skip, counting(&runs)).Processor().Process(f.Context(), delivery("a"))
			decided(f, d, secondrun.Ack, false, nil)
			is(f, "runs", runs, 0)
		})
	}
}

func TestWrapJSON(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		h := secondrun.WrapJSON(f.g, body, func(_ context.Context, in invoice) error { is(f, "ID", in.ID, "i"); return nil })
		isError(f, h.Handle(f.Context(), msg(`{"ID":"i"}`)), nil)
		d := h.Processor().Process(f.Context(), secondrun.Delivery{Message: msg(`{"ID":7}`)})
		is(f, "action", d.Action, secondrun.DeadLetter)
		is(f, "failed", d.Failed, true)
	})
}

func TestProcessorRefusesMessagesOfAnotherType(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, nothing)
		is(f, "accepts", p.Accepts(msg("")), true)
		is(f, "accepts another", p.Accepts(otherMsg{}), false)
		d := p.Process(f.Context(), secondrun.Delivery{Message: otherMsg{"x"}})
		is(f, "action", d.Action, secondrun.DeadLetter)
		is(f, "ran and failed", d.Failed, true)
	})
}

func TestHashKeysKeepsNoReadableKey(t *testing.T) {
	bubble(t, &secondrun.Options{HashKeys: true}, func(f *fixture) {
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("secret")), secondrun.Ack, true, nil)
		page, _, err := f.faults.List(f.Context(), store.ListQuery{Scope: "test"})
		isError(f, err, nil)
		if len(page) != 1 || strings.Contains(page[0].ID.Key, "secret") {
			f.Errorf("%+v", page)
		}
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("secret")), secondrun.Ack, false, nil)
	})
}

type otherMsg struct{ msg }
