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

func TestZ19_MaxRuntimeEndsAHungHandler(t *testing.T) {
	bubble(t, &secondrun.Options{MaxRuntime: 2 * time.Minute}, func(f *fixture) {
		var cause error
		hung := make(chan struct{})
		done := start(f.Context(), process(f.g, func(ctx context.Context, _ msg) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			<-hung
			return ctx.Err()
		}), delivery("a"))
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		isError(f, cause, secondrun.ErrMaxRuntime)
		time.Sleep(lease)
		renewals := f.faults.count("renew")
		other := process(f.guard(nil), func(context.Context, msg) error { return nil })
		decided(f, other.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "renewals", f.faults.count("renew"), renewals)
		is(f, "crashes", f.record("a").Crashes, 1)
		close(hung)
		decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
	})
}

func TestMaxRuntimeIsAFailureWhenTheHandlerGivesUp(t *testing.T) {
	bubble(t, &secondrun.Options{MaxRuntime: time.Minute}, func(f *fixture) {
		d := process(f.g, untilDone).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, true, secondrun.ErrMaxRuntime)
		is(f, "failed", d.Failed, true)
		is(f, "failures", f.record("a").Failures, 1)
	})
}

func TestGraceEndsTheRenewalsOfAnAbandonedRun(t *testing.T) {
	bubble(t, &secondrun.Options{Grace: 2 * lease}, func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		hung := make(chan struct{})
		done := start(ctx, process(f.g, func(context.Context, msg) error { <-hung; return nil }), delivery("a"))
		time.Sleep(lease)
		cancel()
		time.Sleep(2*lease - time.Second)
		other := process(f.guard(nil), func(context.Context, msg) error { return nil })
		decided(f, other.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		time.Sleep(lease + time.Second)
		decided(f, other.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		close(hung)
		decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
	})
}

func TestCancelBeforeTheRunBoundsTheRenewals(t *testing.T) {
	bubble(t, &secondrun.Options{Takeover: secondrun.Takeover{Probe: func(ctx context.Context, _ string) (secondrun.Probed, error) {
		return secondrun.Probed{Answer: secondrun.ProbeNotDone}, nil
	}}}, func(f *fixture) {
		dies(f, nil, "a", "")
		var a *secondrun.Attempt
		p := process(f.g, func(ctx context.Context, _ msg) error { // cancelled while it was probed
			isError(f, context.Cause(ctx), nil)
			a.Cancel(secondrun.ErrShutdown)
			time.Sleep(4 * lease) // ignores it
			return nil
		})
		a = p.Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		decided(f, a.Run(f.Context()), secondrun.Ack, true, nil)
		if n := f.faults.count("renew"); n > 5 { // for Options.Grace, 30 s
			f.Errorf("%d renewals", n)
		}
	})
}

func TestA08_OldGrantIsRenewedBeforeTheRun(t *testing.T) {
	for name, renews := range map[string]bool{"renewed": true, "not renewed": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &secondrun.Options{CallTimeout: lease}, func(f *fixture) {
				f.faults.on(func(op string, n int, _ []store.ID) fault {
					switch {
					case op == "claim" && n == 1:
						return fault{delay: 16 * time.Second}
					case op == "renew" && !renews:
						return fault{before: errCut}
					}
					return fault{}
				})
				ran := false
				p := process(f.g, func(context.Context, msg) error { ran = true; return nil })
				a := p.Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
				d := a.Run(f.Context())
				is(f, "ran", ran, renews)
				if f.faults.count("renew") == 0 {
					f.Error("no renewal before the run")
				}
				if !renews {
					decided(f, d, secondrun.Retry, false, secondrun.ErrLeaseLost)
					is(f, "state", f.record("a").State, store.StateReleased)
				}
			})
		})
	}
}

func TestRunWaitsForTheRenewalInFlight(t *testing.T) {
	for _, works := range []bool{true, false} {
		t.Run(fmt.Sprint("works ", works), func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				began := time.Now()
				f.faults.on(func(op string, _ int, _ []store.ID) fault {
					switch {
					case op != "renew":
						return fault{}
					case time.Since(began) < 16*time.Second:
						return fault{before: errCut}
					case works:
						return fault{delay: 2500 * time.Millisecond}
					}
					return fault{hang: true}
				})
				ran := false
				a := process(f.g, func(context.Context, msg) error { ran = true; return nil }).
					Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
				time.Sleep(18500 * time.Millisecond)
				renewals := f.faults.count("renew")
				a.Run(f.Context())
				is(f, "ran", ran, works)
				is(f, "renewals", f.faults.count("renew"), renewals)
			})
		})
	}
}

// A process that is frozen at a known time, as a function's is, holds no lease
// beyond it.
func TestLeaseEndsWithTheInvocation(t *testing.T) {
	for _, left := range []time.Duration{10 * time.Second, 50 * time.Second} {
		t.Run(left.String(), func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				d := delivery("a")
				d.Until = time.Now().Add(left)
				frozen := make(chan struct{})
				done := start(f.Context(), process(f.g, func(ctx context.Context, _ msg) error {
					<-ctx.Done()
					if time.Until(d.Until) <= 0 {
						f.Error("cancelled after the end")
					}
					<-frozen
					return nil
				}), d)
				for time.Until(d.Until) > 0 {
					time.Sleep(time.Second)
					if r := f.record("a"); r.LeaseUntil.After(d.Until) {
						f.Fatalf("leased for %v more", r.LeaseUntil.Sub(d.Until))
					}
				}
				decided(f, process(f.guard(nil), nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
				close(frozen)
				decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
			})
		})
	}
}

func TestOldGrantIsNotRenewedBeyondTheInvocation(t *testing.T) {
	bubble(t, &secondrun.Options{CallTimeout: lease}, func(f *fixture) {
		f.faults.on(only("claim", fault{delay: 18 * time.Second}, 1))
		d := delivery("a")
		d.Until = time.Now().Add(lease)
		ran := false
		a := process(f.g, func(context.Context, msg) error { ran = true; return nil }).Claim(f.Context(), []secondrun.Delivery{d})[0]
		decided(f, a.Run(f.Context()), secondrun.Retry, false, secondrun.ErrLeaseLost)
		is(f, "ran", ran, false)
		is(f, "renewals", f.faults.count("renew"), 0)
	})
}
