package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

var (
	errMail = errors.New("mail server away")
	errBad  = errors.New("no such customer")
)

func TestH01_PanicIsATransientFailureAndGoesOn(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		a := process(f.g, func(context.Context, msg) error { panic("boom") }).Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		func() {
			defer func() { is(f, "panic", recover(), any("boom")) }()
			a.Run(f.Context())
		}()
		d := a.Decision()
		is(f, "action", d.Action, secondrun.Retry)
		is(f, "failed", d.Failed, true)
		r := f.record("a")
		is(f, "failure", r.Failure, store.FailedTransient)
		if strings.Contains(string(r.Payload), "boom") || !strings.Contains(string(r.Payload), "panicked") {
			f.Errorf("payload %q", r.Payload)
		}
		is(f, "shutdown", f.g.Shutdown(f.Context()), nil)
	})
}

func TestH02_Goexit(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		a := process(f.g, func(context.Context, msg) error { runtime.Goexit(); return nil }).Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(f.Context())
			f.Error("went on")
		}()
		<-done
		is(f, "action", a.Decision().Action, secondrun.Retry)
		is(f, "failure", f.record("a").Failure, store.FailedTransient)
	})
}

func TestH03_ShutdownReleasesAndCountsNothing(t *testing.T) {
	for name, handle := range map[string]func(context.Context, msg) error{
		"ctx error": untilDone,
		"cause":     func(ctx context.Context, _ msg) error { <-ctx.Done(); return context.Cause(ctx) },
		"wrapped":   func(ctx context.Context, _ msg) error { <-ctx.Done(); return fmt.Errorf("query: %w", ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				ctx, cancel := context.WithCancelCause(f.Context())
				done := start(ctx, process(f.g, handle), delivery("a"))
				time.Sleep(time.Second)
				cancel(secondrun.ErrShutdown)
				d := <-done
				is(f, "action", d.Action, secondrun.Retry)
				is(f, "failed", d.Failed, false)
				r := f.record("a")
				is(f, "state", r.State, store.StateReleased)
				is(f, "failures", r.Failures, 0)
				decided(f, process(f.guard(nil), nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
			})
		})
	}
}

func TestDeadlineOfTheConsumerIsAFailure(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		d := process(f.g, untilDone).Process(ctx, delivery("a"))
		decided(f, d, secondrun.Retry, true, context.DeadlineExceeded)
		is(f, "failures", f.record("a").Failures, 1)
	})
}

func TestH05_TransientFailureWaits(t *testing.T) {
	bubble(t, &secondrun.Options{Backoff: secondrun.Backoff{Base: time.Minute}}, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { return secondrun.Transient(errMail) })
		d := p.Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, true, errMail)
		if !d.Failed || d.After <= 0 || d.After > time.Minute {
			f.Errorf("failed %v, after %v", d.Failed, d.After)
		}
		r := f.record("a")
		if wait := time.Until(r.NotBefore); wait != d.After { // one draw for both
			f.Errorf("store waits %v, broker %v", wait, d.After)
		}
		early := p.Process(f.Context(), delivery("a"))
		decided(f, early, secondrun.Retry, false, secondrun.ErrBusy)
		if early.After < d.After {
			f.Errorf("busy for %v", early.After)
		}
		time.Sleep(d.After)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, true, errMail)
		is(f, "failures", f.record("a").Failures, 2)
	})
}

func TestRetryAfterTakesThePlaceOfTheBackoff(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { return secondrun.RetryAfter(errMail, time.Hour) })
		d := p.Process(f.Context(), delivery("a"))
		is(f, "after", d.After, time.Hour)
	})
}

func TestLastTransientFailureIsTerminal(t *testing.T) {
	bubble(t, &secondrun.Options{MaxFailures: 2}, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { return secondrun.RetryAfter(errMail, time.Second) })
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, true, errMail)
		time.Sleep(time.Second)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.DeadLetter, true, errMail)
		is(f, "failure", f.record("a").Failure, store.FailedTerminal)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.DeadLetter, false, secondrun.ErrFailed)
	})
}

func TestH06_TerminalFailure(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			bubble(t, &secondrun.Options{KeepFailures: keep}, func(f *fixture) {
				runs := 0
				p := process(f.g, func(context.Context, msg) error { runs++; return errBad })
				d := p.Process(f.Context(), delivery("a"))
				decided(f, d, secondrun.DeadLetter, true, errBad)
				is(f, "failed", d.Failed, true)
				d = p.Process(f.Context(), delivery("a")) // the copy to the dead-letter queue was interrupted
				decided(f, d, secondrun.DeadLetter, false, secondrun.ErrFailed)
				is(f, "suppressed", f.events.count(secondrun.EventSuppressed), 1)
				var failed *secondrun.FailedError
				if !errors.As(d.Err, &failed) || failed.Failure != store.FailedTerminal || failed.Text != "*errors.errorString" {
					f.Errorf("%+v", failed)
				}
				d = p.Process(f.Context(), secondrun.Delivery{Message: msg("a"), ID: strings.Repeat("replay", 100)})
				is(f, "runs", runs, map[bool]int{true: 1, false: 2}[keep])
				is(f, "action", d.Action, secondrun.DeadLetter)
			})
		})
	}
}

func TestH07_ReentrantClaim(t *testing.T) {
	for _, mode := range []secondrun.Mode{secondrun.Enforce, secondrun.Observe} {
		bubble(t, &secondrun.Options{Mode: mode}, func(f *fixture) {
			var inner, nested error
			err := secondrun.DoFunc(f.Context(), f.g, "a", func(ctx context.Context) error {
				inner = secondrun.DoFunc(ctx, f.g, "a", func(context.Context) error { f.Error("ran"); return nil })
				return secondrun.DoFunc(ctx, f.g, "b", func(ctx context.Context) error {
					nested = secondrun.DoFunc(ctx, f.g, "a", func(context.Context) error { f.Error("ran"); return nil })
					return nil
				})
			})
			isError(f, err, nil)
			isError(f, inner, secondrun.ErrReentrant)
			isError(f, nested, secondrun.ErrReentrant)
		})
	}
}

func TestH08_NestedClaimsInOppositeOrder(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		nest := func(outer, inner string) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- secondrun.DoFunc(f.Context(), f.g, outer, func(ctx context.Context) error {
					time.Sleep(time.Second)
					return secondrun.DoFunc(ctx, f.g, inner, func(context.Context) error { return nil })
				})
			}()
			return done
		}
		began := time.Now()
		x, y := nest("a", "b"), nest("b", "a")
		ex, ey := <-x, <-y
		if !errors.Is(ex, secondrun.ErrBusy) && !errors.Is(ey, secondrun.ErrBusy) {
			f.Error(ex, ey)
		}
		if time.Since(began) > 2*time.Second {
			f.Error("waited while holding")
		}
		for _, key := range []string{"a", "b"} { // busy is nobody's failure
			is(f, "failures", f.record(key).Failures, 0)
		}
	})
}

func TestH12_PoisonThatKillsItsProcess(t *testing.T) {
	bubble(t, &secondrun.Options{MaxCrashes: 3}, func(f *fixture) {
		starts := 0
		for range 10 {
			a := process(f.guard(&secondrun.Options{MaxCrashes: 3, MaxRuntime: time.Second}), nothing).
				Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
			if d, ok := a.Decided(); ok {
				decided(f, d, secondrun.DeadLetter, false, secondrun.ErrFailed)
				if starts == 4 {
					isError(f, d.Err, secondrun.ErrExhausted)
				}
				break
			}
			starts++ // and dies: neither Run nor Release
			time.Sleep(2 * lease)
		}
		is(f, "starts", starts, 4)
		is(f, "failure", f.record("a").Failure, store.FailedExhausted)
		d := process(f.g, nothing).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.DeadLetter, false, secondrun.ErrExhausted)
	})
}

func TestU10_FailedIsNotSeen(t *testing.T) {
	bubble(t, nil, func(f *fixture) { // (a) and (c)
		runs, effects := 0, 0
		p := process(f.g, func(context.Context, msg) error {
			if runs++; runs == 1 {
				return secondrun.RetryAfter(errMail, time.Second)
			}
			effects++
			return nil
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, true, errMail)
		time.Sleep(time.Minute)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		time.Sleep(time.Minute)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, false, nil)
		is(f, "runs", runs, 2)
		is(f, "effects", effects, 1)

		process(f.guard(&secondrun.Options{MaxRuntime: time.Second}), nothing).Claim(f.Context(), []secondrun.Delivery{delivery("c")})
		time.Sleep(lease + time.Second)
		decided(f, p.Process(f.Context(), delivery("c")), secondrun.Ack, true, nil)
		is(f, "effects", effects, 2)
	})
	bubble(t, nil, func(f *fixture) { // (b)
		runs := 0
		p := process(f.g, func(context.Context, msg) error { runs++; time.Sleep(16 * time.Second); return nil })
		first := start(f.Context(), p, delivery("a"))
		time.Sleep(3 * time.Millisecond)
		decided(f, process(f.guard(nil), nothing).Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		decided(f, <-first, secondrun.Ack, true, nil)
		is(f, "runs", runs, 1)
	})
}

func TestU11_EveryLaterDeliveryIsAcknowledged(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		runs := 0
		p := process(f.g, counting(&runs))
		for i, id := range []string{"m-1", "m-1", "m-1", "redriven"} {
			d := p.Process(f.Context(), secondrun.Delivery{Message: msg("ord-501"), ID: id})
			decided(f, d, secondrun.Ack, i == 0, nil)
		}
		is(f, "runs", runs, 1)
		is(f, "suppressed", f.events.count(secondrun.EventSuppressed), 3)
	})
}

func TestH07_ReentrantClaimAcrossKeyFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t, nil)
		r.set(func(ctx context.Context) error {
			isError(t, r.new.Handle(ctx, record41()), secondrun.ErrReentrant)
			return nil
		})
		isError(t, r.new.Handle(t.Context(), record41()), nil)
		r.wants("new")
	})
}
