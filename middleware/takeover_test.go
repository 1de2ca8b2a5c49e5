package secondrun_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// dies claims the key, begins the effect if it has a name, and never ends.
func dies(f *fixture, opt *secondrun.Options, key, effect string) {
	f.Helper()
	o := secondrun.Options{}
	if opt != nil {
		o = *opt
	}
	o.MaxRuntime = time.Second
	forever := make(chan struct{})
	f.Cleanup(func() { close(forever) })
	start(context.WithoutCancel(f.Context()), process(f.guard(&o), func(ctx context.Context, _ msg) error {
		if effect == "" {
			<-forever
			return nil
		}
		return secondrun.OnceFunc(ctx, effect, func(context.Context) error { <-forever; return nil })
	}), delivery(key))
	time.Sleep(lease + 2*time.Second)
}

func TestTakeoverPolicies(t *testing.T) {
	answers := map[string]secondrun.Takeover{
		"retry":   {},
		"park":    {Park: true},
		"done":    {Probe: answering(secondrun.Probed{Answer: secondrun.ProbeDone, Result: 7}, nil)},
		"notdone": {Probe: answering(secondrun.Probed{Answer: secondrun.ProbeNotDone}, nil)},
		"unknown": {Probe: answering(secondrun.Probed{}, nil)},
	}
	for name, policy := range answers {
		t.Run(name, func(t *testing.T) {
			opt := &secondrun.Options{Takeover: policy}
			bubble(t, opt, func(f *fixture) {
				dies(f, opt, "a", "")
				runs := 0
				h := secondrun.WrapResult(f.g, body, func(context.Context, msg) (int, error) { runs++; return 7, nil })
				n, err := h.HandleResult(f.Context(), "a")
				d := h.Processor().Process(f.Context(), secondrun.Delivery{Message: msg("a"), ID: "replay"})
				switch name {
				case "park", "unknown":
					isError(f, err, secondrun.ErrParked)
					decided(f, d, secondrun.DeadLetter, false, secondrun.ErrParked)
					is(f, "failed", d.Failed, false)
					is(f, "runs", runs, 0)
				default:
					isError(f, err, nil)
					is(f, "result", n, 7)
					decided(f, d, secondrun.Ack, false, nil)
					is(f, "runs", runs, map[string]int{"retry": 1, "notdone": 1}[name])
				}
			})
		})
		t.Run("effect "+name, func(t *testing.T) {
			opt := &secondrun.Options{Effects: map[string]secondrun.Takeover{"x": policy}}
			bubble(t, opt, func(f *fixture) {
				dies(f, opt, "a", "x")
				calls := 0
				var n int
				var err error
				d := process(f.g, func(ctx context.Context, _ msg) error {
					n, err = secondrun.Once(ctx, "x", func(context.Context) (int, error) { calls++; return 7, nil })
					return err
				}).Process(f.Context(), delivery("a"))
				switch name {
				case "park", "unknown":
					isError(f, err, secondrun.ErrParked)
					is(f, "action", d.Action, secondrun.DeadLetter)
					is(f, "calls", calls, 0)
				default:
					isError(f, err, nil)
					is(f, "result", n, 7)
					is(f, "calls", calls, map[string]int{"retry": 1, "notdone": 1}[name])
				}
			})
		})
	}
}

func answering(p secondrun.Probed, err error) func(context.Context, string) (secondrun.Probed, error) {
	return func(context.Context, string) (secondrun.Probed, error) { return p, err }
}

// A takeover that was not probed must stay a takeover: whatever ends the probe,
// the next owner has to ask again.
func TestUnansweredProbeIsAskedAgain(t *testing.T) {
	for name, fails := range map[string]func(ctx context.Context) error{
		"error":  func(context.Context) error { return secondrun.Terminal(errCut) },
		"panic":  func(context.Context) error { panic("probe") },
		"cancel": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		for _, effect := range []string{"", "x"} {
			t.Run(fmt.Sprint(name, effect), func(t *testing.T) {
				asked := 0
				policy := secondrun.Takeover{Probe: func(ctx context.Context, key string) (secondrun.Probed, error) {
					is(t, "key", key, "a")
					if asked++; asked == 1 {
						return secondrun.Probed{}, fails(ctx)
					}
					return secondrun.Probed{Answer: secondrun.ProbeDone}, nil
				}}
				opt := &secondrun.Options{Takeover: policy}
				if effect != "" {
					opt = &secondrun.Options{Effects: map[string]secondrun.Takeover{effect: policy}}
				}
				bubble(t, opt, func(f *fixture) {
					dies(f, opt, "a", effect)
					calls := 0
					p := process(f.g, func(ctx context.Context, _ msg) error {
						if effect == "" {
							calls++
							return nil
						}
						return secondrun.OnceFunc(ctx, effect, func(context.Context) error { calls++; return nil })
					})
					ctx, cancel := context.WithTimeout(f.Context(), time.Second)
					defer cancel()
					var d secondrun.Decision
					func() {
						a := p.Claim(ctx, []secondrun.Delivery{delivery("a")})[0]
						defer func() { _ = recover(); d = a.Decision() }()
						a.Run(ctx)
					}()
					is(f, "action", d.Action, secondrun.Retry)
					if effect == "" {
						is(f, "ran", d.Ran, false)
						is(f, "state", f.record("a").State, store.StateClaimed)
					}
					time.Sleep(2 * lease)
					renewals := f.faults.count("renew")
					is(f, "shutdown", f.guard(nil).Shutdown(f.Context()), nil)
					decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, effect != "", nil)
					is(f, "asked", asked, 2)
					is(f, "calls", calls, 0)
					is(f, "renewals of the abandoned probe", f.faults.count("renew"), renewals)
				})
			})
		}
	}
}

func TestUnprobedTakeoverIsNotReleased(t *testing.T) {
	asked := 0
	opt := &secondrun.Options{Takeover: secondrun.Takeover{Probe: func(context.Context, string) (secondrun.Probed, error) {
		asked++
		return secondrun.Probed{Answer: secondrun.ProbeDone}, nil
	}}}
	for name, end := range map[string]func(ctx context.Context, a *secondrun.Attempt){
		"released": func(_ context.Context, a *secondrun.Attempt) { a.Release(0) },
		"run after the end": func(ctx context.Context, a *secondrun.Attempt) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			a.Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, opt, func(f *fixture) {
				asked = 0
				dies(f, opt, "a", "")
				p := process(f.g, func(context.Context, msg) error { f.Error("ran"); return nil })
				end(f.Context(), p.Claim(f.Context(), []secondrun.Delivery{delivery("a")})[0])
				decided(f, p.Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
				time.Sleep(lease)
				decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, false, nil)
				is(f, "asked", asked, 1)
			})
		})
	}
}
