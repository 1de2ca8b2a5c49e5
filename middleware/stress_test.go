package secondrun_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// chaos makes one call in four fail in some way.
func chaos(r *rand.Rand) func(string, int, []store.ID) fault {
	return func(_ string, _ int, ids []store.ID) fault {
		switch r.IntN(32) {
		case 0, 1:
			return fault{before: errCut}
		case 2, 3:
			return fault{after: errCut}
		case 4:
			return fault{hang: true}
		case 5:
			return fault{delay: time.Duration(r.IntN(2000)) * time.Millisecond, after: errCut}
		case 6:
			bad := ids[r.IntN(len(ids))]
			return fault{item: func(id store.ID) error {
				if id == bad {
					return errCut
				}
				return nil
			}}
		}
		return fault{delay: time.Duration(r.IntN(200)) * time.Millisecond}
	}
}

// partitioned is a store that cannot be reached for 50 s of every two minutes,
// which is longer than a lease.
type partitioned struct {
	*faultStore
	epoch time.Time
}

func (p *partitioned) cut() bool { return time.Since(p.epoch)%(2*time.Minute) < 50*time.Second }

func (p *partitioned) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	if p.cut() {
		return nil, errCut
	}
	return p.faultStore.Claim(ctx, reqs)
}

func (p *partitioned) Renew(ctx context.Context, ls []store.Lease, d time.Duration) ([]store.Status, error) {
	if p.cut() {
		return nil, errCut
	}
	return p.faultStore.Renew(ctx, ls, d)
}

func (p *partitioned) Settle(ctx context.Context, ss []store.Settlement) ([]store.Status, error) {
	if p.cut() {
		return nil, errCut
	}
	return p.faultStore.Settle(ctx, ss)
}

// work counts what handlers do to one key.
type work struct {
	mu      sync.Mutex
	running map[context.Context]bool
	acks    int // of deliveries that ran
	runs    int
	charges int
	result  int
}

// begin notes a run. Nobody else may be at work on the key who was not told to
// stop.
func (w *work) begin(t testing.TB, ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	for other := range w.running {
		if other.Err() == nil {
			t.Error("two handlers of one key are at work")
		}
	}
	w.running[ctx] = true
}

func (w *work) end(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, ctx)
}

// handle is a handler with an effect, of some length and some outcome.
func (w *work) handle(t testing.TB, ctx context.Context, r *rand.Rand) (int, error) {
	w.begin(t, ctx)
	defer w.end(ctx)
	d, outcome := time.Duration(r.IntN(100))*time.Second, r.IntN(6)
	n, err := secondrun.Once(ctx, "charge", func(context.Context) (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.charges++
		return w.charges, nil
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(d):
	}
	switch outcome {
	case 0:
		return 0, secondrun.RetryAfter(errMail, time.Second)
	case 1:
		panic("boom")
	}
	return n, nil
}

// Three processes, every key delivered many times, a store that fails a quarter
// of its calls and is out of reach for some time: one outcome per key, and everybody gets it.
func TestChaos(t *testing.T) {
	opt := &secondrun.Options{MaxFailures: -1, MaxCrashes: -1, Backoff: secondrun.Backoff{Base: time.Second, Max: time.Minute}}
	seed := testenv.Seed(t)
	bubble(t, opt, func(f *fixture) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		f.faults.on(chaos(r))
		const keys, copies = 20, 10
		works := make([]work, keys)
		for i := range works {
			works[i].running = map[context.Context]bool{}
		}
		var all sync.WaitGroup
		for p := range 3 {
			local := rand.New(rand.NewPCG(seed, uint64(p)+2)) //nolint:gosec // a test
			var mu sync.Mutex
			away := &partitioned{f.faults, time.Now().Add(-time.Duration(p) * 40 * time.Second)}
			g, err := secondrun.New("test", away, opt)
			isError(f, err, nil)
			for k := range keys {
				w := &works[k]
				h := secondrun.WrapResult(g, keyOf(fmt.Sprint(k)), func(ctx context.Context, _ msg) (int, error) {
					mu.Lock()
					r := rand.New(rand.NewPCG(local.Uint64(), 0)) //nolint:gosec // a test
					mu.Unlock()
					return w.handle(f, ctx, r)
				})
				for c := range copies {
					all.Go(func() {
						time.Sleep(time.Duration(c) * time.Second)
						consume(f, w, h)
					})
				}
			}
		}
		all.Wait()
		f.faults.down(nil)
		runs := 0
		for k := range works {
			w := &works[k]
			runs += w.runs
			if w.acks > 1 {
				f.Errorf("key %d: %d deliveries ran and were acknowledged", k, w.acks)
			}
			is(f, "state", f.record(fmt.Sprint(k)).State, store.StateSucceeded)
		}
		f.Logf("seed %d: %d runs of %d keys, %d claim calls", seed, runs, keys, f.faults.count("claim"))
		isError(f, f.g.Shutdown(f.Context()), nil)
	})
}

// consume delivers one message until it is acknowledged.
func consume(f *fixture, w *work, h *secondrun.ResultHandler[msg, int]) {
	for {
		d := func() (d secondrun.Decision) {
			a := h.Processor().Claim(f.Context(), []secondrun.Delivery{delivery("x")})[0]
			defer func() { _ = recover(); d = a.Decision() }()
			return a.Run(f.Context())
		}()
		switch d.Action {
		case secondrun.Ack:
			w.mu.Lock()
			if d.Ran {
				w.acks++
			}
			w.mu.Unlock()
			n, err := h.HandleResult(f.Context(), "x")
			if err == nil {
				w.mu.Lock()
				if w.result == 0 {
					w.result = n
				}
				is(f, "result", n, w.result)
				w.mu.Unlock()
			}
			return
		case secondrun.DeadLetter:
			f.Errorf("dead letter: %v", d.Err)
			return
		}
		time.Sleep(d.After + time.Second)
	}
}
