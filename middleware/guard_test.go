package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// open makes the breaker open.
func (f *fixture) open() {
	f.Helper()
	f.faults.down(errCut)
	process(f.g, nothing).Process(f.Context(), delivery("opens"))
	is(f, "healthy", f.g.Healthy(), false)
}

func TestBreakerOpensAndCloses(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		f.open()
		is(f, "down", f.events.count(secondrun.EventStoreDown), 1)
		var waiting []<-chan error
		for range 10 {
			c := make(chan error, 1)
			go func() { c <- f.g.WaitHealthy(f.Context()) }()
			waiting = append(waiting, c)
		}
		const outage = 10 * time.Minute
		time.Sleep(outage)
		if n := f.faults.count("ping"); n < 60 || n > 1000 {
			f.Errorf("%d pings in %v", n, outage)
		}
		is(f, "pings at a time", f.faults.highest["ping"], 1)
		f.faults.down(nil)
		for _, c := range waiting {
			isError(f, <-c, nil)
		}
		is(f, "healthy", f.g.Healthy(), true)
		is(f, "up", f.events.count(secondrun.EventStoreUp), 1)
	})
}

func TestOneFailedCallIsNoOutage(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("claim", fault{after: errCut}, 1, 2))
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "down", f.events.count(secondrun.EventStoreDown), 0)
	})
}

func TestFailureAfterAProbeOpensAtOnce(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.open()
		f.faults.down(nil)
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		f.faults.on(only("claim", fault{before: store.ErrPermanent}))
		process(f.g, nothing).Process(f.Context(), delivery("a")) // one call
		is(f, "healthy", f.g.Healthy(), false)
	})
}

func TestWaitHealthyEndsWithItsContext(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.open()
		for range 2 { // the second one waits for its turn to probe
			ctx, cancel := context.WithCancelCause(f.Context())
			time.AfterFunc(time.Minute, func() { cancel(secondrun.ErrShutdown) })
			isError(f, f.g.WaitHealthy(ctx), secondrun.ErrShutdown)
		}
	})
}

// B15: a store that can be pinged but cannot claim. Every delivery that is
// received meanwhile is one receive nearer to the dead-letter queue.
func TestB15_PingAloneDoesNotEndAnOutage(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, nothing)
		f.faults.on(only("claim", fault{before: errCut}))
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Minute)
		defer cancel()
		received := 0
		for f.g.WaitHealthy(ctx) == nil {
			received++
			if d := p.Process(ctx, delivery("a")); d.Action == secondrun.DeadLetter || d.Failed {
				f.Fatal(d)
			}
		}
		if received > 20 {
			f.Errorf("received %d times during the outage", received)
		}
		f.faults.down(nil)
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		if f.record("a").Failures+f.record("a").Crashes != 0 {
			f.Errorf("%+v", f.record("a"))
		}
	})
}

// bare hides what a store can do beside the contract.
type bare struct{ store.Store }

func TestStoreThatCannotBePinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := newFaults()
		g, err := secondrun.New("test", bare{faults}, nil)
		isError(t, err, nil)
		p := process(g, nothing)
		faults.down(errCut)
		p.Process(t.Context(), delivery("a"))
		is(t, "healthy", g.Healthy(), false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		isError(t, g.WaitHealthy(ctx), context.DeadlineExceeded)
		faults.down(nil)
		isError(t, g.WaitHealthy(t.Context()), nil)
		decided(t, p.Process(t.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(t, "healthy", g.Healthy(), true)
	})
}

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
			secondrun.DeadLetter: errBad, secondrun.Retry: secondrun.Transient(errMail),
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

// completes settles the claim as a transaction does.
func completes(ctx context.Context, f *fixture, result any, commit bool) {
	f.Helper()
	h := store.HeldFrom(ctx)
	h.Completing()
	s := store.Settlement{ID: h.ID, Token: h.Token, Kind: store.Succeed, Payload: h.Encode(result), Retention: h.Retention}
	if commit {
		st, err := f.faults.Store.Settle(ctx, []store.Settlement{s})
		if err != nil || st[0].Code != store.OK {
			f.Error(st, err)
		}
	}
}

func TestTransactionSettlesTheClaim(t *testing.T) {
	for name, test := range map[string]struct {
		commit bool
		err    error
		away   bool
		action secondrun.Action
		is     error
	}{
		"committed":                  {commit: true, action: secondrun.Ack},
		"committed, then fails":      {commit: true, err: errBad, action: secondrun.Ack},
		"committed, then cancelled":  {commit: true, err: context.Canceled, action: secondrun.Ack},
		"rolled back":                {err: errBad, action: secondrun.DeadLetter, is: errBad},
		"rolled back, returns nil":   {action: secondrun.Retry, is: secondrun.ErrNotCommitted},
		"committed, store away":      {commit: true, away: true, action: secondrun.Leave, is: secondrun.ErrUnrecorded},
		"committed, fails, and away": {commit: true, err: errBad, away: true, action: secondrun.Leave, is: secondrun.ErrUnrecorded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				h := secondrun.WrapResult(f.g, body, func(ctx context.Context, _ msg) (int, error) {
					completes(ctx, f, 7, test.commit)
					if test.away {
						f.faults.on(only("settle", fault{before: errCut}))
					}
					time.Sleep(2 * lease) // no renewal any more, and no deadline
					isError(f, ctx.Err(), nil)
					if test.err != nil {
						return 0, test.err
					}
					return 7, nil
				})
				d := h.Processor().Process(f.Context(), delivery("a"))
				decided(f, d, test.action, true, test.is)
				is(f, "renewals", f.faults.count("renew"), 0)
				for _, e := range f.events.of(secondrun.EventSettled) {
					if e.Kept == store.Succeed {
						f.Error("the guard settled success by itself")
					}
				}
				if test.action == secondrun.Ack {
					n, err := h.HandleResult(f.Context(), "a")
					isError(f, err, nil)
					is(f, "replay", n, 7)
					is(f, "state", f.record("a").State, store.StateSucceeded)
				}
			})
		})
	}
}

func TestResultOfACommittedRunThatFailed(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		n, err := secondrun.Do(f.Context(), f.g, "a", func(ctx context.Context) (int, error) {
			completes(ctx, f, 7, true)
			return 0, errors.New("connection lost after the commit")
		})
		isError(f, err, nil)
		is(f, "result", n, 7)
	})
}

func TestHeldDescribesTheClaim(t *testing.T) {
	bubble(t, &secondrun.Options{MaxResult: 10, Retention: 48 * time.Hour}, func(f *fixture) {
		isError(f, secondrun.DoFunc(f.Context(), f.g, "a", func(ctx context.Context) error {
			h := store.HeldFrom(ctx)
			is(f, "ID", h.ID, store.ID{Scope: "test", Key: "a"})
			is(f, "fence", h.Fence, 1)
			is(f, "retention", h.Retention, 48*time.Hour)
			is(f, "token", h.Token.IsZero(), false)
			if b := h.Encode("longer than ten bytes"); len(b) == 0 {
				f.Error("no payload")
			}
			is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 1)
			return nil
		}), nil)
	})
}
