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

func TestA11_ShutdownLetsHandlersFinish(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(ctx context.Context, _ msg) error { time.Sleep(time.Minute); return ctx.Err() })
		done := start(f.Context(), p, delivery("a"))
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- f.g.Shutdown(f.Context()) }()
		synctest.Wait()
		decided(f, p.Process(f.Context(), delivery("b")), secondrun.Retry, false, secondrun.ErrShutdown)
		is(f, "claims", f.faults.count("claim"), 1)
		decided(f, <-done, secondrun.Ack, true, nil)
		isError(f, <-ended, nil)
		isError(f, f.g.Shutdown(f.Context()), nil)
	})
}

func TestA12_ShutdownWhoseGracePasses(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprint("stubborn ", stubborn), func(t *testing.T) {
			bubble(t, &secondrun.Options{Grace: 20 * time.Second}, func(f *fixture) {
				hung := make(chan struct{})
				var cause error
				done := start(f.Context(), process(f.g, func(ctx context.Context, _ msg) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					if stubborn {
						<-hung
					}
					return ctx.Err()
				}), delivery("a"))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				err := f.g.Shutdown(ctx)
				synctest.Wait()
				isError(f, cause, secondrun.ErrShutdown)
				other := process(f.guard(nil), nothing)
				if !stubborn {
					isError(f, err, nil)
					decided(f, <-done, secondrun.Retry, true, context.Canceled)
					decided(f, other.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil) // at once
					return
				}
				is(f, "gave up after", time.Since(began), 30*time.Second)
				if err == nil {
					f.Error("no error")
				}
				decided(f, other.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
				time.Sleep(lease) // renewals have ended
				decided(f, other.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
				close(hung)
				decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
			})
		})
	}
}

func TestGrantThatMeetsAShutdownIsGivenBack(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("claim", fault{delay: 500 * time.Millisecond}))
		runs := 0
		done := start(f.Context(), process(f.g, counting(&runs)), delivery("a"))
		synctest.Wait()
		isError(f, f.g.Shutdown(f.Context()), nil)
		decided(f, <-done, secondrun.Retry, false, secondrun.ErrShutdown)
		is(f, "runs", runs, 0)
		is(f, "state", f.record("a").State, store.StateReleased)
		time.Sleep(2 * lease)
		is(f, "renewals", f.faults.count("renew"), 0)
	})
}

func TestShutdownWaitsForRunsWithoutAClaim(t *testing.T) {
	bubble(t, &secondrun.Options{FailOpen: true}, func(f *fixture) {
		f.faults.down(fmt.Errorf("away: %w", store.ErrPermanent))
		p := process(f.g, untilDone)
		done := start(f.Context(), p, delivery("a"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		isError(f, f.g.Shutdown(ctx), nil)
		is(f, "waited", time.Since(began), time.Minute)
		decided(f, <-done, secondrun.Retry, true, context.Canceled)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrShutdown)
	})
}

func TestSub(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		a, err := f.g.Sub("a/b%", nil)
		isError(f, err, nil)
		is(f, "scope", a.Scope(), "test/a%2Fb%25")
		b, err := a.Sub("c", &secondrun.Options{Lease: time.Minute, Retention: 48 * time.Hour})
		isError(f, err, nil)
		is(f, "scope", b.Scope(), "test/a%2Fb%25/c")
		is(f, "lease", b.Lease(), time.Minute)
		is(f, "retention", b.Retention(), 48*time.Hour)
		is(f, "parent's retention", a.Retention(), 30*24*time.Hour)
		if _, err := f.g.Sub("", nil); err == nil {
			f.Error("empty segment")
		}
		if _, err := f.g.Sub(string(make([]byte, store.MaxKey)), nil); err == nil {
			f.Error("long scope")
		}
		if _, err := secondrun.New("test/a", f.faults, nil); err == nil { // or it would share the records of Sub("a")
			f.Error("slash in a scope")
		}
		for _, g := range []*secondrun.Guard{f.g, a, b} { // K05: each has records of its own
			p := process(f.g, nothing).In(g)
			is(f, "guard", p.Guard(), g)
			decided(f, p.Process(f.Context(), delivery("k")), secondrun.Ack, true, nil)
		}
		is(f, "records", f.faults.Len(), 3)
		isError(f, b.Shutdown(f.Context()), nil) // of all of them
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("x")), secondrun.Retry, false, secondrun.ErrShutdown)
	})
}

func TestObserveRunsEverything(t *testing.T) {
	opt := &secondrun.Options{Mode: secondrun.Observe}
	bubble(t, opt, func(f *fixture) {
		runs := 0
		var result error
		p := process(f.g, func(ctx context.Context, _ msg) error {
			runs++
			charged := false
			isError(f, secondrun.OnceFunc(ctx, "x", func(context.Context) error { charged = true; return nil }), nil)
			is(f, "charged", charged, true)
			return result
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "state", f.record("a").State, store.StateSucceeded)
		is(f, "would suppress", f.events.count(secondrun.EventWouldSuppress), 0)

		a := p.Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		if _, ok := a.Decided(); ok {
			f.Error("decided, though it will run")
		}
		decided(f, a.Run(f.Context()), secondrun.Ack, true, nil)
		is(f, "runs", runs, 2)
		would := f.events.of(secondrun.EventWouldSuppress)
		is(f, "would suppress", len(would), 1)
		is(f, "verdict", would[0].Verdict, store.Done)
		is(f, "suppressed", f.events.count(secondrun.EventSuppressed), 0)

		for action, err := range map[secondrun.Action]error{
			secondrun.DeadLetter: secondrun.Terminal(errBad), secondrun.Retry: errMail, // unmarked
		} {
			result = err
			d := p.Process(f.Context(), delivery("a"))
			decided(f, d, action, true, err)
			is(f, "failed", d.Failed, true)
		}
		result = &secondrun.BusyError{After: time.Hour}
		d := p.Process(f.Context(), delivery("a"))
		is(f, "failed", d.Failed, false)
		is(f, "after", d.After, time.Hour)

		f.faults.down(errCut)
		result = nil
		decided(f, p.Process(f.Context(), delivery("b")), secondrun.Ack, true, nil)
		isError(f, f.g.WaitHealthy(f.Context()), nil)
	})
}

func TestUnclaimedRunInsideAClaimedOneHoldsNothing(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		observe := f.guard(&secondrun.Options{Mode: secondrun.Observe})
		isError(f, secondrun.DoFunc(f.Context(), observe, "inner", ok), nil)
		ran := false
		isError(f, secondrun.DoFunc(f.Context(), f.g, "outer", func(ctx context.Context) error {
			return secondrun.DoFunc(ctx, observe, "inner", func(ctx context.Context) error {
				ran = true
				is(f, "held", store.HeldFrom(ctx), nil) // above all not the outer claim
				return nil
			})
		}), nil)
		is(f, "ran", ran, true)
	})
}

func TestObservePanicGoesOn(t *testing.T) {
	bubble(t, &secondrun.Options{Mode: secondrun.Observe}, func(f *fixture) {
		process(f.g, nothing).Process(f.Context(), delivery("a"))
		a := process(f.g, func(context.Context, msg) error { panic("boom") }).Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		func() {
			defer func() { is(f, "panic", recover(), any("boom")) }()
			a.Run(f.Context())
		}()
		is(f, "action", a.Decision().Action, secondrun.Retry)
		isError(f, f.g.Shutdown(f.Context()), nil)
	})
}
