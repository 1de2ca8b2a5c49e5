package secondrun_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

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

// TestBusyWithItsOwnFirstCall: the reply to a claim is lost while its commit
// still goes on, and the repeated claim finds the record locked. It is its own.
func TestBusyWithItsOwnFirstCall(t *testing.T) {
	locked := fault{item: func(store.ID) error { return errLockedRow }}
	bubble(t, nil, func(f *fixture) {
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			switch {
			case op == "claim" && n == 1:
				return fault{after: errCut}
			case op == "claim" && n < 5:
				return locked
			}
			return fault{}
		})
		runs := 0
		p := process(f.g, counting(&runs))
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "runs", runs, 1)
	})
	bubble(t, nil, func(f *fixture) { // and when it stays locked: busy, and given back
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			switch {
			case op == "claim" && n == 1:
				return fault{after: errCut}
			case op == "claim":
				return locked
			}
			return fault{}
		})
		runs := 0
		p := process(f.g, counting(&runs))
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		synctest.Wait()
		f.faults.on(nil)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "runs", runs, 1)
	})
	bubble(t, nil, func(f *fixture) { // locked by somebody else from the start: busy at once
		f.faults.on(only("claim", locked))
		began := time.Now()
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		is(f, "waited", time.Since(began), 0)
	})
}
