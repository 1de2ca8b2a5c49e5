package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

// rollout is one store with a consumer of the old key format and one of the new
// format beside each other.
type rollout struct {
	t               *testing.T
	st              *memstore.Store
	old, new, after *secondrun.Handler[keyfn.Message]
	mu              sync.Mutex
	runs            []string // "old" or "new"
	behave          func(ctx context.Context) error
}

func newRollout(t *testing.T, opt *secondrun.Options) *rollout {
	r := &rollout{t: t, st: memstore.New(nil), behave: func(context.Context) error { return nil }}
	oldFormat := keyfn.Format{Scope: "billing", Version: 1, Func: keyfn.Template("{header:topic}:{header:offset}")}
	newFormat := keyfn.Format{Scope: "billing", Version: 2, Func: keyfn.Template("{header:topic}:{header:partition}:{header:offset}")}
	handle := func(who string) func(context.Context, keyfn.Message) error {
		return func(ctx context.Context, _ keyfn.Message) error {
			r.mu.Lock()
			r.runs = append(r.runs, who)
			f := r.behave
			r.mu.Unlock()
			return f(ctx)
		}
	}
	guard := func() *secondrun.Guard {
		g, err := secondrun.New("billing", r.st, opt)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	r.old = secondrun.Wrap(guard(), oldFormat.AsFunc(), handle("old"))
	r.after = secondrun.Wrap(guard(), newFormat.AsFunc(), handle("new"))
	r.new = r.after.WithEvolution(keyfn.Evolve(newFormat, oldFormat))
	return r
}

func (r *rollout) set(f func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behave = f
}

func record41() keyfn.Message {
	return keyfn.NewMessage([]byte(`{"orderId":"ord-1"}`), map[string][]string{
		"topic": {"orders"}, "partition": {"0"}, "offset": {"41"},
	})
}

func (r *rollout) wants(runs ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.runs, runs) {
		r.t.Errorf("runs %v, want %v", r.runs, runs)
	}
}

// U31: whichever consumer ran, the other one finds the outcome, in either
// order, and so does a redelivery to either.
func TestU31_OldAndNewAgree(t *testing.T) {
	for _, first := range []string{"old", "new"} {
		t.Run(first+" first", func(t *testing.T) {
			r := newRollout(t, nil)
			one, other := r.old, r.new
			if first == "new" {
				one, other = r.new, r.old
			}
			for i, h := range []*secondrun.Handler[keyfn.Message]{one, other, one, other} {
				if d := h.Processor().Process(t.Context(), secondrun.Delivery{Message: record41()}); d.Action != secondrun.Ack || d.Ran != (i == 0) {
					t.Errorf("delivery %d: %+v", i, d)
				}
			}
			r.wants(first)
		})
	}
}

// While one of them runs, the other one is busy; after its failure either can
// run, and no claim is left behind.
func TestU31_BusyAndFailure(t *testing.T) {
	for _, first := range []string{"old", "new"} {
		t.Run(first+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRollout(t, nil)
				one, other := r.old, r.new
				if first == "new" {
					one, other = r.new, r.old
				}
				r.behave = func(context.Context) error {
					time.Sleep(2 * time.Minute) // beyond the lease: both claims are renewed
					return secondrun.RetryAfter(errors.New("not yet"), time.Second)
				}
				go one.Handle(t.Context(), record41()) //nolint:errcheck // fails on purpose
				for range 4 {
					time.Sleep(25 * time.Second)
					synctest.Wait()
					if err := other.Handle(t.Context(), record41()); !errors.Is(err, secondrun.ErrBusy) {
						t.Fatalf("while the other one runs: %v", err)
					}
				}
				time.Sleep(time.Minute)
				r.set(func(context.Context) error { return nil })
				if err := other.Handle(t.Context(), record41()); err != nil {
					t.Errorf("after the failure: %v", err)
				}
				if err := one.Handle(t.Context(), record41()); err != nil {
					t.Errorf("after the success: %v", err)
				}
				if len(r.runs) != 2 {
					t.Errorf("runs %v", r.runs)
				}
			})
		})
	}
}

// Both records end alike, and a panic or a cancellation leaves neither claimed.
func TestEvolution_BothRecords(t *testing.T) {
	behaviours := map[string]struct {
		f    func(context.Context) error
		want store.State
	}{
		"success":   {func(context.Context) error { return nil }, store.StateSucceeded},
		"transient": {func(context.Context) error { return secondrun.Transient(errors.New("t")) }, store.StateFailed},
		"terminal":  {func(context.Context) error { return secondrun.Terminal(errors.New("t")) }, store.StateFailed},
		"panic":     {func(context.Context) error { panic("p") }, store.StateFailed},
	}
	for name, b := range behaviours {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t, nil)
			r.behave = b.f
			func() {
				defer func() { _ = recover() }()
				_ = r.new.Handle(t.Context(), record41())
			}()
			for _, key := range []string{"orders:41", "v2:orders:0:41"} {
				rec, ok, err := r.st.Get(t.Context(), store.ID{Scope: "billing", Key: key})
				if err != nil || !ok || rec.State != b.want {
					t.Errorf("%s: %v, %v, %v, want %v", key, rec.State, ok, err, b.want)
				}
			}
		})
	}
}

// A claim that was granted beside one that was not is given back.
func TestEvolution_GivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t, nil)
		r.behave = func(context.Context) error { return secondrun.RetryAfter(errors.New("not yet"), time.Hour) }
		_ = r.old.Handle(t.Context(), record41())
		if err := r.new.Handle(t.Context(), record41()); !errors.Is(err, secondrun.ErrBusy) {
			t.Fatal(err)
		}
		synctest.Wait()
		rec, ok, err := r.st.Get(t.Context(), store.ID{Scope: "billing", Key: "v2:orders:0:41"})
		if err != nil || !ok || rec.State != store.StateReleased {
			t.Errorf("record of the new key: %+v, %v", rec, err)
		}
	})
}

// Effects, and the keys for providers, are shared: a charge that the old
// consumer made is not repeated by the new one.
func TestEvolution_Effects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t, nil)
		charges := map[string]int{}
		mails := 0
		r.behave = func(ctx context.Context) error {
			err := secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error {
				key, err := secondrun.EffectKey(ctx, "charge")
				charges[key]++
				return err
			})
			if err != nil {
				return err
			}
			if mails++; mails == 1 {
				return secondrun.RetryAfter(errors.New("mail server away"), time.Second)
			}
			return nil
		}
		if err := r.old.Handle(t.Context(), record41()); err == nil {
			t.Fatal("the first run should have failed")
		}
		time.Sleep(time.Minute)
		if err := r.new.Handle(t.Context(), record41()); err != nil {
			t.Fatal(err)
		}
		if len(charges) != 1 || mails != 2 {
			t.Errorf("charges %v, mails %d", charges, mails)
		}
		for _, n := range charges {
			if n != 1 {
				t.Errorf("charged %d times", n)
			}
		}
		r.wants("old", "new")
	})
}

// Messages of one batch that share only an old key run one after the other, and
// a whole batch is one call of the store.
func TestEvolution_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t, nil)
		var ds []secondrun.Delivery
		for i := range 5 {
			ds = append(ds, secondrun.Delivery{Message: keyfn.NewMessage(nil, map[string][]string{
				"topic": {"orders"}, "partition": {"0"}, "offset": {fmt.Sprint(i / 2)},
			})})
		}
		attempts := r.new.Processor().Claim(t.Context(), ds)
		var wg sync.WaitGroup
		for _, a := range attempts {
			wg.Go(func() {
				if d := a.Run(t.Context()); d.Action != secondrun.Ack {
					t.Errorf("%+v", d)
				}
			})
		}
		wg.Wait()
		r.wants("new", "new", "new")
	})
}

// A successor of the old format displaces a new consumer that has stalled, and
// the other way round.
func TestEvolution_Takeover(t *testing.T) {
	for _, stalled := range []string{"old", "new"} {
		t.Run(stalled+" stalls", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRollout(t, &secondrun.Options{MaxRuntime: time.Second, Grace: time.Second})
				one, other := r.old, r.new
				if stalled == "new" {
					one, other = r.new, r.old
				}
				release := make(chan struct{})
				r.set(func(context.Context) error { <-release; return nil })
				var late error
				done := make(chan struct{})
				go func() {
					defer close(done)
					late = one.Handle(t.Context(), record41())
				}()
				time.Sleep(2 * time.Minute) // not renewed beyond MaxRuntime
				r.set(func(context.Context) error { return nil })
				if err := other.Handle(t.Context(), record41()); err != nil {
					t.Fatal(err)
				}
				close(release)
				<-done
				if !errors.Is(late, secondrun.ErrLeaseLost) {
					t.Errorf("the displaced run ended with %v", late)
				}
			})
		})
	}
}

// A watch sees the keys of the guard beside the broker's ids.
func TestWatch(t *testing.T) {
	w := keyfn.NewWatch(nil)
	g, err := secondrun.New("s", memstore.New(nil), &secondrun.Options{Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	h := secondrun.Wrap(g, keyfn.Header("id"), func(context.Context, keyfn.Message) error { return nil })
	h.Processor().Process(t.Context(), secondrun.Delivery{
		ID: "m-1", Message: keyfn.NewMessage(nil, map[string][]string{"id": {"m-1"}}),
	})
	h.Processor().Process(t.Context(), secondrun.Delivery{ID: "m-2", Message: keyfn.NewMessage(nil, nil)})
	if w.Warnings(keyfn.WarnTransportID) != 1 || w.Failures(keyfn.ErrMissing) != 1 {
		t.Errorf("warnings %d, failures %d, want 1 and 1", w.Warnings(keyfn.WarnTransportID), w.Failures(keyfn.ErrMissing))
	}
}

// What was done under the old key alone is known under the new one too, as soon
// as a new consumer has seen it: it stays known when the old format is given up.
func TestEvolution_SuccessIsKnownAfterItsEnd(t *testing.T) {
	r := newRollout(t, nil)
	for _, h := range []*secondrun.Handler[keyfn.Message]{r.old, r.new} {
		if err := h.Handle(t.Context(), record41()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.after.Handle(t.Context(), record41()); err != nil {
		t.Fatal(err)
	}
	r.wants("old")
}

func TestEvolution_Reentrant(t *testing.T) {
	r := newRollout(t, nil)
	var inner error
	r.behave = func(ctx context.Context) error {
		inner = r.new.Handle(ctx, record41())
		return nil
	}
	if err := r.new.Handle(t.Context(), record41()); err != nil || !errors.Is(inner, secondrun.ErrReentrant) {
		t.Errorf("outer %v, inner %v", err, inner)
	}
}
