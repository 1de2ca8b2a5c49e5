package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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

// Every combination of operation and fault that a lost reply can make.
func TestA01_U28_AmbiguousReplies(t *testing.T) {
	faults := map[string]fault{
		"request cut": {before: errCut}, "reply cut": {after: errCut}, "hangs": {hang: true},
		"slow and applied": {delay: 900 * time.Millisecond, after: context.DeadlineExceeded},
		"item fails":       {item: func(store.ID) error { return errCut }},
	}
	for _, op := range []string{"claim", "renew", "settle"} {
		for name, ft := range faults {
			t.Run(op+" "+name, func(t *testing.T) {
				bubble(t, nil, func(f *fixture) {
					f.faults.on(only(op, ft, 1, 2))
					runs := 0
					p := process(f.g, func(ctx context.Context, _ msg) error {
						runs++
						time.Sleep(lease)
						return ctx.Err()
					})
					decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
					is(f, "runs", runs, 1)
					is(f, "starts", f.record("a").Starts, 1)
					is(f, "lost", f.events.count(secondrun.EventLeaseLost), 0)
				})
			})
		}
	}
}

func TestU28_AmbiguousClaimIsNeverItsOwnBusy(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.serial(nil)
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			switch {
			case op == "claim" && n == 1: // applied, and the reply is lost
				return fault{after: errCut}
			case op == "claim" && n == 2: // keeps the store busy, so that the next two meet
				return fault{delay: 900 * time.Millisecond}
			}
			return fault{}
		})
		p := process(f.g, func(context.Context, msg) error { time.Sleep(time.Second); return nil })
		owner := start(f.Context(), p, delivery("a"))
		synctest.Wait()
		other := start(f.Context(), p, delivery("other"))
		synctest.Wait()
		duplicate := start(f.Context(), p, delivery("a")) // before the owner asks again
		decided(f, <-owner, secondrun.Ack, true, nil)
		decided(f, <-duplicate, secondrun.Retry, false, secondrun.ErrBusy)
		decided(f, <-other, secondrun.Ack, true, nil)
	})
}

func TestU28_UnansweredClaimIsGivenBack(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("claim", fault{after: errCut}))
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrStore)
		synctest.Wait()
		is(f, "state", f.record("a").State, store.StateReleased)
		f.faults.down(nil)
		time.Sleep(time.Second)
		decided(f, process(f.guard(nil), nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
	})
}

func TestClaimWhoseCallerLeftIsGivenBack(t *testing.T) {
	for name, ft := range map[string]fault{
		"granted": {delay: 500 * time.Millisecond}, "reply lost": {delay: 500 * time.Millisecond, after: errCut},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				f.serial(nil)
				f.faults.on(only("claim", ft, 1, 2))
				runs := 0
				p := process(f.g, counting(&runs))
				first := start(f.Context(), p, delivery("first"))
				synctest.Wait()
				ctx, cancel := context.WithCancel(f.Context())
				queued := start(ctx, p, delivery("a"))
				time.Sleep(600 * time.Millisecond) // the second call is in flight
				cancel()
				decided(f, <-queued, secondrun.Retry, false, context.Canceled)
				<-first
				time.Sleep(time.Second)
				is(f, "state", f.record("a").State, store.StateReleased)
				is(f, "shutdown", f.g.Shutdown(f.Context()), nil)
			})
		})
	}
}

func TestClaimWhoseCallerLeftBeforeItWasSentIsForgotten(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.serial(nil)
		f.faults.on(only("claim", fault{delay: 500 * time.Millisecond}, 1))
		p := process(f.g, nothing)
		first := start(f.Context(), p, delivery("first"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(f.Context())
		queued := start(ctx, p, delivery("a"))
		synctest.Wait()
		cancel()
		decided(f, <-queued, secondrun.Retry, false, context.Canceled)
		<-first
		is(f, "shutdown", f.g.Shutdown(f.Context()), nil)
		is(f, "claims", f.faults.count("claim"), 1)
		is(f, "settlements", f.faults.count("settle"), 1)
	})
}

func TestToxicItemIsIsolated(t *testing.T) {
	for _, op := range []string{"claim", "settle"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				f.faults.on(toxic(op, "key-00"))
				p := process(f.g, nothing)
				var ds []secondrun.Delivery
				for i := range 10 {
					ds = append(ds, delivery(fmt.Sprintf("key-%02d", i)))
				}
				var done []chan secondrun.Decision
				for _, a := range p.Claim(f.Context(), ds) {
					c := make(chan secondrun.Decision, 1)
					go func() { c <- a.Run(f.Context()) }()
					done = append(done, c)
				}
				for i, c := range done {
					d := <-c
					switch {
					case i > 0:
						decided(f, d, secondrun.Ack, true, nil)
					case op == "claim":
						decided(f, d, secondrun.Retry, false, secondrun.ErrStore)
					default:
						decided(f, d, secondrun.Leave, true, secondrun.ErrUnrecorded)
					}
				}
			})
		})
	}
}

func TestStoreThatIsDownIsNotHammered(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.down(errCut)
		var ds []secondrun.Delivery
		for i := range 100 {
			ds = append(ds, delivery(fmt.Sprint(i)))
		}
		for _, a := range process(f.g, nothing).Claim(f.Context(), ds) {
			decided(f, a.Run(f.Context()), secondrun.Retry, false, secondrun.ErrStore)
		}
		if n := f.faults.count("claim"); n > 150 {
			f.Errorf("%d claim calls", n)
		}
	})
}

func TestCallerLeavesBetweenTwoTries(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			if op == "claim" {
				time.AfterFunc(time.Microsecond, cancel)
				return fault{after: errCut}
			}
			return fault{}
		})
		decided(f, process(f.g, nothing).Process(ctx, delivery("a")), secondrun.Retry, false, secondrun.ErrStore)
		isError(f, f.g.Shutdown(f.Context()), nil)
		is(f, "claims", f.faults.count("claim"), 1)
		is(f, "state", f.record("a").State, store.StateReleased)
	})
}

func TestCallerLeavesWhileItsSecondTryIsQueued(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.serial(nil)
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			switch {
			case op == "claim" && n == 1:
				return fault{after: errCut}
			case op == "claim" && n == 2:
				return fault{delay: 2900 * time.Millisecond}
			}
			return fault{}
		})
		p := process(f.g, nothing)
		ctx, cancel := context.WithCancel(f.Context())
		owner := start(ctx, p, delivery("a"))
		synctest.Wait()
		other := start(f.Context(), p, delivery("other"))
		time.Sleep(time.Second) // the owner's second try waits
		cancel()
		decided(f, <-owner, secondrun.Retry, false, context.Canceled)
		decided(f, <-other, secondrun.Ack, true, nil)
		isError(f, f.g.Shutdown(f.Context()), nil)
		is(f, "claims", f.faults.count("claim"), 2)
		is(f, "state", f.record("a").State, store.StateReleased)
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
