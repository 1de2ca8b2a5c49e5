package secondrun_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestRetentions(t *testing.T) {
	opt := &secondrun.Options{Retention: 3 * time.Hour, FailureRetention: 2 * time.Hour}
	bubble(t, opt, func(f *fixture) {
		for key, want := range map[string]time.Duration{"good": 3 * time.Hour, "bad": 2 * time.Hour} {
			process(f.g, func(context.Context, msg) error {
				is(f, "claimed", time.Until(f.record(key).ExpiresAt), 3*time.Hour)
				if key == "bad" {
					return errBad
				}
				return nil
			}).Process(f.Context(), delivery(key))
			is(f, key, time.Until(f.record(key).ExpiresAt), want)
		}
		is(f, "retention", f.g.Retention(), 2*time.Hour)
	})
}

func TestLoseAndCancel(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		run := func(key string, tell func(a *secondrun.Attempt)) (d secondrun.Decision, cause error) {
			a := process(f.g, func(ctx context.Context, _ msg) error {
				select {
				case <-ctx.Done():
					cause = context.Cause(ctx)
				case <-time.After(time.Minute):
				}
				return nil
			}).Claim(f.Context(), []secondrun.Delivery{delivery(key)})[0]
			time.AfterFunc(time.Second, func() { tell(a) })
			d = a.Run(f.Context())
			return d, cause
		}
		d, cause := run("a", func(a *secondrun.Attempt) { a.Lose(secondrun.ErrHoldLost); a.Lose(secondrun.ErrHoldLost) })
		isError(f, cause, secondrun.ErrHoldLost)
		decided(f, d, secondrun.Ack, true, nil) // the outcome is recorded
		is(f, "hold lost", d.HoldLost, true)
		is(f, "events", f.events.count(secondrun.EventHoldLost), 1)

		d, cause = run("b", func(a *secondrun.Attempt) { a.Lose(nil) })
		is(f, "cause", cause, nil)
		is(f, "hold lost", d.HoldLost, true)

		d, cause = run("c", func(a *secondrun.Attempt) { a.Cancel(nil); a.Cancel(secondrun.ErrShutdown) })
		isError(f, cause, secondrun.ErrShutdown)
		is(f, "hold lost", d.HoldLost, false)
	})
}

func TestHoldLostBeforeTheRun(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		runs := 0
		a := process(f.g, counting(&runs)).Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		a.Lose(secondrun.ErrHoldLost)
		d := a.Run(f.Context())
		decided(f, d, secondrun.Retry, false, secondrun.ErrHoldLost)
		is(f, "hold lost", d.HoldLost, true)
		is(f, "runs", runs, 0)
		is(f, "state", f.record("a").State, store.StateReleased)
	})
}

func TestReleaseWaits(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, nothing)
		p.Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0].Release(time.Minute)
		d := p.Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, false, secondrun.ErrBusy)
		time.Sleep(d.After)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "shutdown", f.g.Shutdown(f.Context()), nil)
	})
}

func TestFollowerNeverWaitsInVain(t *testing.T) {
	for name, end := range map[string]func(f *fixture, a *secondrun.Attempt, cancel func()){
		"released":  func(_ *fixture, a *secondrun.Attempt, _ func()) { a.Release(0) },
		"failed":    func(f *fixture, a *secondrun.Attempt, _ func()) { a.Run(f.Context()) },
		"cancelled": func(_ *fixture, _ *secondrun.Attempt, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				runs := 0
				p := process(f.g, func(context.Context, msg) error { runs++; return secondrun.Transient(errMail) })
				ctx, cancel := context.WithCancel(f.Context())
				defer cancel()
				as := p.Claim(ctx, []secondrun.Delivery{delivery("a"), delivery("a")})
				done := make(chan secondrun.Decision, 1)
				go func() { done <- as[1].Run(ctx) }()
				synctest.Wait()
				end(f, as[0], cancel)
				d := <-done
				switch name {
				case "released":
					decided(f, d, secondrun.Retry, true, errMail)
				case "failed":
					decided(f, d, secondrun.Retry, false, secondrun.ErrBusy)
				case "cancelled":
					decided(f, d, secondrun.Retry, false, context.Canceled)
					as[0].Release(0)
				}
			})
		})
	}
}

func TestFollowerOfADecidedLeader(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, nothing)
		p.Process(f.Context(), delivery("a"))
		as := p.Claim(f.Context(), []secondrun.Delivery{delivery("a"), delivery("a")})
		decided(f, as[1].Run(f.Context()), secondrun.Ack, false, nil) // before the leader is looked at
		d, ok := as[0].Decided()
		is(f, "decided", ok, true)
		decided(f, d, secondrun.Ack, false, nil)
		decided(f, as[0].Run(f.Context()), secondrun.Ack, false, nil)
	})
}

func TestH09_SameKeyTwiceInABatch(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		runs := 0
		p := process(f.g, counting(&runs))
		as := p.Claim(f.Context(), []secondrun.Delivery{delivery("b"), delivery("a"), {Message: msg("b"), ID: "copy"}, delivery("b")})
		is(f, "claims", f.faults.count("claim"), 1)
		for i, ran := range []bool{true, true, false, false} {
			if _, ok := as[i].Decided(); ok {
				f.Error("decided before it ran")
			}
			decided(f, as[i].Run(f.Context()), secondrun.Ack, ran, nil)
		}
		is(f, "runs", runs, 2)
	})
}
