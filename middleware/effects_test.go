package secondrun_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func ok(context.Context) error { return nil }

// provider is an outside service that knows idempotency keys.
type provider struct {
	calls []string
	seen  map[string]bool
}

func (p *provider) send(ctx context.Context, effect string) error {
	key, err := secondrun.EffectKey(ctx, effect)
	if err != nil {
		return err
	}
	p.calls = append(p.calls, effect)
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[key] = true
	return nil
}

func TestU17_HalfTheEffectsHappened(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var out provider
		runs := 0
		p := process(f.g, func(ctx context.Context, _ msg) error {
			runs++
			if err := secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error { return out.send(ctx, "charge") }); err != nil {
				return err
			}
			to := []string{"r-1", "r-2", "r-3", "r-4", "r-5"}
			if runs > 1 {
				to = []string{"r-5", "r-4", "r-3", "r-2", "r-1"}
			}
			for _, r := range to {
				err := secondrun.OnceFunc(ctx, "mail:"+r, func(ctx context.Context) error {
					if err := out.send(ctx, "mail:"+r); err != nil {
						return err
					}
					if runs == 1 && r == "r-4" {
						return context.DeadlineExceeded // though the server took it
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		decided(f, p.Process(f.Context(), delivery("oc-77")), secondrun.Retry, true, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		decided(f, p.Process(f.Context(), delivery("oc-77")), secondrun.Ack, true, nil)
		decided(f, p.Process(f.Context(), delivery("oc-77")), secondrun.Ack, false, nil)
		is(f, "calls", len(out.calls), 7)
		is(f, "effects that the provider saw", len(out.seen), 6)
		is(f, "r-4", strings.Count(strings.Join(out.calls, " "), "mail:r-4"), 2)
		is(f, "replayed", f.events.count(secondrun.EventEffectReplayed), 4)
		is(f, "succeeded", f.events.count(secondrun.EventEffectSucceeded), 6)
	})
}

func TestEffectKeyIsStable(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		key := func(g *secondrun.Guard, k, effect string) (out string) {
			_ = secondrun.DoFunc(f.Context(), g, k, func(ctx context.Context) (err error) {
				out, err = secondrun.EffectKey(ctx, effect)
				return errors.Join(err, secondrun.Terminal(errBad))
			})
			return out
		}
		// A provider has seen this one: it must never change.
		const golden = "9f6684ea1dcd04af08d2ab283c42b410d137eea273ad0c9dcd1e6a2a05b6c534"
		is(f, "key", key(f.g, "invoice:1", "charge"), golden)
		is(f, "key in another process", key(f.guard(nil), "invoice:1", "charge"), golden)
		sub, err := f.g.Sub("x", nil)
		isError(f, err, nil)
		seen := map[string]bool{}
		for _, k := range []string{
			key(f.g, "a", "b"), key(f.g, "ab", ""), key(f.g, "a", "bc"), key(f.g, "b", "a"), key(sub, "a", "b"),
		} {
			seen[k] = true
		}
		is(f, "different keys", len(seen), 5)
		_, err = secondrun.EffectKey(f.Context(), "charge")
		isError(f, err, secondrun.ErrNoClaim)
	})
}

func TestOnceRefuses(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		isError(f, secondrun.OnceFunc(f.Context(), "x", ok), secondrun.ErrNoClaim)
		_ = secondrun.DoFunc(f.Context(), f.g, "a", func(ctx context.Context) error {
			for _, name := range []string{"", strings.Repeat("e", store.MaxKey+1)} {
				if err := secondrun.OnceFunc(ctx, name, ok); err == nil {
					f.Error("no error")
				}
			}
			ran := false
			err := secondrun.OnceFunc(ctx, "x", func(ctx context.Context) error {
				isError(f, secondrun.OnceFunc(ctx, "x", ok), secondrun.ErrReentrant)
				isError(f, secondrun.OnceFunc(ctx, "y", func(ctx context.Context) error {
					return secondrun.OnceFunc(ctx, "x", ok)
				}), secondrun.ErrReentrant)
				// The effect of another key is another effect.
				return secondrun.DoFunc(ctx, f.g, "b", func(ctx context.Context) error {
					return secondrun.OnceFunc(ctx, "x", func(context.Context) error { ran = true; return nil })
				})
			})
			isError(f, err, nil)
			is(f, "ran", ran, true)
			gone, cancel := context.WithCancel(ctx)
			cancel()
			isError(f, secondrun.OnceFunc(gone, "z", func(context.Context) error { f.Error("ran"); return nil }), context.Canceled)
			return nil
		})
	})
}

func TestOnceReplaysItsResult(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		n := 0
		p := process(f.g, func(ctx context.Context, _ msg) error {
			n++
			got, err := secondrun.Once(ctx, "n", func(context.Context) (int, error) { return n, nil })
			isError(f, err, nil)
			is(f, "result", got, 1)
			bad, err := secondrun.Once(ctx, "bad", func(context.Context) (any, error) { return make(chan int), nil })
			if n == 1 {
				isError(f, err, nil)
			} else {
				isError(f, err, secondrun.ErrResultUnavailable)
				is(f, "bad", bad, nil)
			}
			return secondrun.RetryAfter(errMail, time.Second)
		})
		p.Process(f.Context(), delivery("a"))
		time.Sleep(time.Minute)
		p.Process(f.Context(), delivery("a"))
		is(f, "runs", n, 2)
		is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 1)
	})
}

func TestEffectErrorAndPanicLeaveItToTheNextAttempt(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		n := 0
		p := process(f.g, func(ctx context.Context, _ msg) error {
			return secondrun.OnceFunc(ctx, "x", func(context.Context) error {
				switch n++; n {
				case 1:
					return secondrun.RetryAfter(errMail, time.Second)
				case 2:
					panic("boom")
				}
				return nil
			})
		})
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, true, errMail)
		time.Sleep(time.Minute)
		func() {
			defer func() { _ = recover() }()
			p.Process(f.Context(), delivery("a"))
		}()
		time.Sleep(time.Hour)
		is(f, "effect", f.effect("a", "x").State, store.StateReleased)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "calls", n, 3)
		is(f, "crashes of the effect", f.effect("a", "x").Crashes, 0)
	})
}

func TestBusyEffectReleasesTheRun(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		hold := make(chan struct{})
		d := process(f.g, func(ctx context.Context, _ msg) error {
			go func() { _ = secondrun.OnceFunc(ctx, "x", func(context.Context) error { <-hold; return nil }) }()
			synctest.Wait()
			err := secondrun.OnceFunc(ctx, "x", ok) // a second time at once
			isError(f, err, secondrun.ErrBusy)
			time.AfterFunc(time.Hour, func() { close(hold) })
			return nil // swallows it
		}).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, true, secondrun.ErrBusy)
		if d.Failed || d.After < lease/2 {
			f.Errorf("%+v", d)
		}
		is(f, "state", f.record("a").State, store.StateReleased)
		time.Sleep(2 * time.Hour)
	})
}

func TestDisplacedRunCannotBeginAnEffect(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var cause error
		d := process(f.g, func(ctx context.Context, _ msg) error {
			_, _ = f.faults.ForceRelease(ctx, f.record("a").ID, "test")
			isError(f, secondrun.OnceFunc(ctx, "x", func(context.Context) error { f.Error("ran"); return nil }), secondrun.ErrLeaseLost)
			cause = context.Cause(ctx)
			return nil
		}).Process(f.Context(), delivery("a"))
		isError(f, cause, secondrun.ErrLeaseLost)
		decided(f, d, secondrun.Retry, true, secondrun.ErrLeaseLost)
	})
}

func TestStoreAwayInsideOnce(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		d := process(f.g, func(ctx context.Context, _ msg) error {
			f.faults.down(errCut)
			err := secondrun.OnceFunc(ctx, "x", func(context.Context) error { f.Error("ran"); return nil })
			isError(f, err, secondrun.ErrStore)
			f.faults.down(nil)
			return nil
		}).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, true, secondrun.ErrStore)
		is(f, "state", f.record("a").State, store.StateReleased)
	})
}

func TestUnrecordedEffectIsSettledBeforeAFailure(t *testing.T) {
	for name, test := range map[string]struct {
		outage time.Duration
		err    error
	}{
		"then the handler fails":               {15 * time.Second, errMail},
		"then the handler fails, store away":   {time.Hour, errMail},
		"then the handler succeeds":            {15 * time.Second, nil},
		"then the handler succeeds store away": {time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				charges := 0
				handle := func(ctx context.Context, _ msg) error {
					n, err := secondrun.Once(ctx, "charge", func(context.Context) (int, error) {
						charges++
						if charges == 1 {
							f.faults.on(only("settle", fault{before: errCut}))
							time.AfterFunc(test.outage, func() { f.faults.down(nil) })
						}
						return 42, nil
					})
					is(f, "result", n, 42)
					isError(f, err, nil)
					return secondrun.Transient(test.err)
				}
				d := process(f.g, handle).Process(f.Context(), delivery("a"))
				is(f, "charges", charges, 1)
				switch {
				case test.outage > time.Minute:
					decided(f, d, secondrun.Leave, true, secondrun.ErrUnrecorded)
					is(f, "state", f.record("a").State, store.StateClaimed) // no failure is settled
				case test.err != nil:
					decided(f, d, secondrun.Retry, true, errMail)
					is(f, "effect", f.effect("a", "charge").State, store.StateSucceeded)
				default:
					decided(f, d, secondrun.Ack, true, nil)
				}
				renewals := f.faults.count("renew")
				time.Sleep(2 * time.Hour)
				is(f, "renewals after the end", f.faults.count("renew"), renewals)
				if test.outage < time.Minute && test.err != nil {
					process(f.g, handle).Process(f.Context(), delivery("a"))
					is(f, "charges", charges, 1)
				}
			})
		})
	}
}

func TestNoFailureIsSettledBeforeItsEffects(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(func(op string, _ int, ids []store.ID) fault {
			if op == "settle" && ids[0].Effect != "" {
				return fault{before: errCut}
			}
			return fault{}
		})
		d := process(f.g, func(ctx context.Context, _ msg) error {
			isError(f, secondrun.OnceFunc(ctx, "charge", ok), nil)
			return secondrun.Terminal(errBad)
		}).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Leave, true, secondrun.ErrUnrecorded)
		is(f, "state", f.record("a").State, store.StateClaimed)
	})
}

func TestEffectsMayFinishWhileTheGuardDrains(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(ctx context.Context, _ msg) error {
			time.Sleep(time.Second) // Shutdown comes
			if err := secondrun.OnceFunc(ctx, "x", ok); err != nil {
				return err
			}
			return secondrun.DoFunc(ctx, f.g, "nested", ok)
		})
		done := start(f.Context(), p, delivery("a"))
		synctest.Wait()
		is(f, "shutdown", f.g.Shutdown(f.Context()), nil)
		decided(f, <-done, secondrun.Ack, true, nil)
		decided(f, p.Process(f.Context(), delivery("b")), secondrun.Retry, false, secondrun.ErrShutdown)
	})
}

// A record lives on while its key waits for the next attempt, and its effects
// with it.
func TestEffectsOutliveALongWait(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { return secondrun.RetryAfter(errBad, math.MaxInt64) })
		is(f, "action", p.Process(f.Context(), delivery("a")).Action, secondrun.Retry)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
	})
	bubble(t, &secondrun.Options{FailureRetention: time.Minute}, func(f *fixture) {
		charges, fails := 0, true
		p := process(f.g, func(ctx context.Context, _ msg) error {
			err := secondrun.OnceFunc(ctx, "charge", func(context.Context) error { charges++; return nil })
			if err == nil && fails {
				err = secondrun.RetryAfter(errors.New("not yet"), time.Hour)
			}
			return err
		})
		is(f, "action", p.Process(f.Context(), delivery("a")).Action, secondrun.Retry)
		time.Sleep(time.Hour - time.Second)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		time.Sleep(2 * time.Second)
		fails = false
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "charges", charges, 1)
	})
}

// What was cancelled while its claim was on the way does not begin.
func TestEffectDoesNotBeginAfterACancellation(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		charged := false
		var a *secondrun.Attempt
		a = process(f.g, func(ctx context.Context, _ msg) error {
			f.faults.on(only("claim", fault{delay: 2 * time.Second}))
			time.AfterFunc(time.Second, func() { a.Lose(secondrun.ErrHoldLost) })
			err := secondrun.OnceFunc(ctx, "charge", func(context.Context) error { charged = true; return nil })
			isError(f, err, secondrun.ErrHoldLost)
			return err
		}).Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0]
		is(f, "action", a.Run(f.Context()).Action, secondrun.Retry)
		is(f, "charged", charged, false)
		is(f, "effect", f.effect("a", "charge").State, store.StateReleased)
		f.faults.on(nil)
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
	})
}
