package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func nothing(context.Context, msg) error { return nil }

func counting(n *int) func(context.Context, msg) error {
	return func(context.Context, msg) error { *n++; return nil }
}

func TestA03_U29_StoreDownAtClaimFailsClosed(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.down(errCut)
		runs := 0
		d := process(f.g, counting(&runs)).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, false, secondrun.ErrStore)
		isError(f, d.Err, errCut)
		is(f, "runs", runs, 0)
		is(f, "failed", d.Failed, false)
		if d.After <= 0 {
			f.Error("no wait")
		}
		is(f, "healthy", f.g.Healthy(), false)
	})
}

func TestA04_U29_StoreDownAtClaimFailsOpenByOption(t *testing.T) {
	bubble(t, &secondrun.Options{FailOpen: true}, func(f *fixture) {
		f.faults.down(errCut)
		runs := 0
		p := process(f.g, func(ctx context.Context, _ msg) error {
			runs++
			is(f, "held", store.HeldFrom(ctx), nil)
			return secondrun.OnceFunc(ctx, "charge", func(context.Context) error { return nil })
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "runs", runs, 1)
		is(f, "fail-open", f.events.count(secondrun.EventFailOpen), 1)
		isError(f, f.g.WaitHealthy(f.Context()), nil) // receiving goes on

		began := time.Now()
		decided(f, p.Process(f.Context(), delivery("b")), secondrun.Ack, true, nil)
		if wait := time.Since(began); wait > time.Second {
			f.Errorf("waited %v for a store that is known to be away", wait)
		}
		f.faults.down(nil)
		time.Sleep(time.Second)
		is(f, "records", f.faults.Len(), 0)
	})
}

func TestFailOpenDoesNotRunOverRecordsItCannotRead(t *testing.T) {
	for _, err := range []error{store.ErrCorrupt, store.ErrIncompatible} {
		t.Run(err.Error(), func(t *testing.T) {
			bubble(t, &secondrun.Options{FailOpen: true}, func(f *fixture) {
				f.faults.on(only("claim", fault{item: func(store.ID) error { return err }}))
				d := process(f.g, nothing).Process(f.Context(), delivery("a"))
				decided(f, d, secondrun.Retry, false, err)
			})
		})
	}
}

func TestFailOpenDoesNotStartAfterTheEnd(t *testing.T) {
	bubble(t, &secondrun.Options{FailOpen: true}, func(f *fixture) {
		f.faults.on(only("claim", fault{hang: true}))
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		decided(f, process(f.g, nothing).Process(ctx, delivery("a")), secondrun.Retry, false, secondrun.ErrStore)
		decided(f, process(f.g, nothing).Process(ctx, delivery("a")), secondrun.Retry, false, context.DeadlineExceeded)
	})
}

func TestA05_U29_StoreDownAtRecord(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		runs := 0
		p := process(f.g, func(context.Context, msg) error {
			runs++
			f.faults.down(errCut)
			return nil
		})
		began := time.Now()
		d := p.Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Leave, true, secondrun.ErrUnrecorded)
		isError(f, d.Err, errCut)
		if took := time.Since(began); took < 55*time.Second || took > 66*time.Second {
			f.Errorf("tried for %v", took)
		}
		un := f.events.of(secondrun.EventUnrecorded)
		is(f, "unrecorded", len(un), 1)
		is(f, "kind", un[0].Kept, store.Succeed)
		is(f, "key", un[0].ID.Key, "a")
		f.faults.down(nil)
		time.Sleep(lease)
		decided(f, process(f.g, counting(&runs)).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "runs", runs, 2) // documented: the effect may be repeated
	})
}

func TestU29_StoreDownForFiveSecondsAtRecord(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		runs := 0
		p := process(f.g, func(context.Context, msg) error {
			runs++
			f.faults.down(errCut)
			time.AfterFunc(5*time.Second, func() { f.faults.down(nil) })
			return nil
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "state", f.record("a").State, store.StateSucceeded)
		is(f, "runs", runs, 1)
	})
}

func TestA06_U29_StoreDownDuringTheHandler(t *testing.T) {
	for _, outage := range []time.Duration{15 * time.Second, 5 * lease} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				p := process(f.g, func(ctx context.Context, _ msg) error {
					f.faults.down(errCut)
					time.AfterFunc(outage, func() { f.faults.down(nil) })
					began := time.Now()
					select {
					case <-ctx.Done():
						if time.Since(began) >= lease {
							f.Error("cancelled after the lease could have ended")
						}
						return context.Cause(ctx)
					case <-time.After(3 * lease):
						return nil
					}
				})
				d := p.Process(f.Context(), delivery("a"))
				if outage < lease {
					decided(f, d, secondrun.Ack, true, nil)
				} else {
					decided(f, d, secondrun.Retry, true, secondrun.ErrLeaseLost)
				}
			})
		})
	}
}

func TestA07_StoreBackWithoutData(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(ctx context.Context, _ msg) error {
			if _, err := f.faults.Forget(ctx, f.record("a").ID, "test"); err != nil {
				f.Error(err)
			}
			return nil
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "state", f.record("a").State, store.StateSucceeded)
		is(f, "recreated", f.events.count(secondrun.EventRecreated), 1)

		var cause error
		var after time.Duration
		done := start(f.Context(), process(f.g, cancelledWith(&cause, &after)), delivery("b"))
		time.Sleep(time.Second)
		_, _ = f.faults.Forget(f.Context(), store.ID{Scope: "test", Key: "b"}, "test")
		<-done
		isError(f, cause, secondrun.ErrLeaseLost)
	})
}

func TestA10_ShutdownWhileRecording(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		f.faults.on(func(op string, _ int, _ []store.ID) fault {
			if op == "settle" {
				cancel()
				return fault{delay: time.Second}
			}
			return fault{}
		})
		decided(f, process(f.g, nothing).Process(ctx, delivery("a")), secondrun.Ack, true, nil)
		is(f, "state", f.record("a").State, store.StateSucceeded)
	})
}

func TestPermanentErrorIsNotRepeated(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.down(fmt.Errorf("no such table: %w", store.ErrPermanent))
		d := process(f.g, nothing).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, false, store.ErrPermanent)
		is(f, "claims", f.faults.count("claim"), 1)
	})
}

func TestK12_K13_RecordThatCannotBeReadFailsClosed(t *testing.T) {
	for _, err := range []error{store.ErrCorrupt, store.ErrIncompatible} {
		bubble(t, nil, func(f *fixture) {
			f.faults.on(only("claim", fault{item: func(id store.ID) error {
				if id.Key == "b" {
					return err
				}
				return nil
			}}))
			as := process(f.g, nothing).Claim(f.Context(), []secondrun.Delivery{delivery("a"), delivery("b")})
			decided(f, as[1].Run(f.Context()), secondrun.Retry, false, err)
			decided(f, as[0].Run(f.Context()), secondrun.Ack, true, nil)
		})
	}
}

func TestU29_ConstructorRefuses(t *testing.T) {
	ok := newFaults()
	for name, test := range map[string]struct {
		scope string
		st    store.Store
		opt   *secondrun.Options
	}{
		"no store":          {scope: "s"},
		"no scope":          {st: ok},
		"long scope":        {scope: strings.Repeat("s", store.MaxKey+1), st: ok},
		"short lease":       {scope: "s", st: ok, opt: &secondrun.Options{Lease: time.Millisecond}},
		"retention":         {scope: "s", st: ok, opt: &secondrun.Options{Retention: time.Second}},
		"negative":          {scope: "s", st: ok, opt: &secondrun.Options{Grace: -1}},
		"huge result":       {scope: "s", st: ok, opt: &secondrun.Options{MaxResult: store.MaxPayload}},
		"long holder":       {scope: "s", st: ok, opt: &secondrun.Options{Holder: strings.Repeat("h", 300)}},
		"park and probe":    {scope: "s", st: ok, opt: &secondrun.Options{Takeover: both}},
		"effect both":       {scope: "s", st: ok, opt: &secondrun.Options{Effects: map[string]secondrun.Takeover{"e": both}}},
		"negative result":   {scope: "s", st: ok, opt: &secondrun.Options{MaxResult: -1}},
		"unknown mode":      {scope: "s", st: ok, opt: &secondrun.Options{Mode: secondrun.Observe + 1}},
		"unknown class":     {scope: "s", st: ok, opt: &secondrun.Options{Unclassified: secondrun.ClassTerminal + 1}},
		"backoff":           {scope: "s", st: ok, opt: &secondrun.Options{Backoff: secondrun.Backoff{Base: time.Minute, Max: time.Second}}},
		"negative base":     {scope: "s", st: ok, opt: &secondrun.Options{Backoff: secondrun.Backoff{Base: -1}}},
		"negative max":      {scope: "s", st: ok, opt: &secondrun.Options{Backoff: secondrun.Backoff{Max: -1}}},
		"long name of code": {scope: "s", st: ok, opt: &secondrun.Options{Codec: named(strings.Repeat("c", 65))}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := secondrun.New(test.scope, test.st, test.opt); err == nil {
				t.Error("no error")
			}
			if test.opt != nil {
				g, err := secondrun.New("s", ok, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := g.Sub("x", test.opt); err == nil {
					t.Error("no error of Sub")
				}
			}
		})
	}
}

var both = secondrun.Takeover{Park: true, Probe: func(context.Context, string) (secondrun.Probed, error) {
	return secondrun.Probed{}, errors.New("never called")
}}
