package secondrun_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

var errCut = errors.New("connection cut")

// fault is what happens to one call of the store. The zero fault is none.
type fault struct {
	before error                // fails and is not applied
	after  error                // is applied and fails: the reply is lost
	delay  time.Duration        // passes before the call is applied
	hang   bool                 // neither applied nor answered until the caller's timeout
	block  <-chan struct{}      // is applied when this is closed, whatever the context says
	item   func(store.ID) error // of single items, which are not applied
}

// call is one call as the store saw it.
type call struct {
	op  string
	ids []store.ID
	at  time.Time
}

// faultStore is a store in memory whose calls can be made to fail.
type faultStore struct {
	*memstore.Store
	limits store.Limits

	mu      sync.Mutex
	script  func(op string, n int, ids []store.ID) fault // n counts the calls of op from 1; called under mu
	calls   []call
	flying  map[string]int
	highest map[string]int // calls in flight at a time
}

func newFaults() *faultStore {
	return &faultStore{
		Store: memstore.New(nil), limits: store.Limits{Parallel: 2},
		flying: map[string]int{}, highest: map[string]int{},
	}
}

// on replaces the script. Nil means no faults.
func (f *faultStore) on(script func(op string, n int, ids []store.ID) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = script
}

// down makes every call fail, or none.
func (f *faultStore) down(err error) {
	f.on(func(string, int, []store.ID) fault { return fault{before: err} })
}

// count is the number of calls of op so far.
func (f *faultStore) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c.op == op {
			n++
		}
	}
	return n
}

func (f *faultStore) log() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *faultStore) Limits() store.Limits { return f.limits }

func (f *faultStore) Ping(ctx context.Context) error {
	_, err := faulty(f, ctx, "ping", []int{0}, func(int) store.ID { return store.ID{} },
		func([]int) ([]int, error) { return []int{0}, nil }, func(error) int { return 0 })
	return err
}

func (f *faultStore) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	return faulty(f, ctx, "claim", reqs, func(q store.ClaimRequest) store.ID { return q.ID },
		func(qs []store.ClaimRequest) ([]store.Claim, error) {
			return f.Store.Claim(context.WithoutCancel(ctx), qs)
		},
		func(err error) store.Claim {
			if errors.Is(err, errLockedRow) {
				return store.Claim{Verdict: store.Busy, Remaining: 50 * time.Millisecond}
			}
			return store.Claim{Err: err}
		})
}

func (f *faultStore) Renew(ctx context.Context, ls []store.Lease, d time.Duration) ([]store.Status, error) {
	return faulty(f, ctx, "renew", ls, func(l store.Lease) store.ID { return l.ID },
		func(ls []store.Lease) ([]store.Status, error) {
			return f.Store.Renew(context.WithoutCancel(ctx), ls, d)
		},
		func(err error) store.Status { return status(err) })
}

func (f *faultStore) Settle(ctx context.Context, ss []store.Settlement) ([]store.Status, error) {
	return faulty(f, ctx, "settle", ss, func(s store.Settlement) store.ID { return s.ID },
		func(ss []store.Settlement) ([]store.Status, error) {
			return f.Store.Settle(context.WithoutCancel(ctx), ss)
		},
		func(err error) store.Status { return status(err) })
}

// errLockedRow as the error of an item makes Renew answer Locked, and Claim
// answer Busy without having seen the record.
var errLockedRow = errors.New("locked")

func status(err error) store.Status {
	if errors.Is(err, errLockedRow) {
		return store.Status{Code: store.Locked}
	}
	return store.Status{Err: err}
}

// faulty makes one call as the script says.
func faulty[Q, A any](f *faultStore, ctx context.Context, op string, qs []Q, id func(Q) store.ID,
	apply func([]Q) ([]A, error), fail func(error) A,
) ([]A, error) {
	ids := make([]store.ID, len(qs))
	for i, q := range qs {
		ids[i] = id(q)
	}
	ft := f.begin(op, ids)
	defer f.end(op)
	if err := ft.pass(ctx); err != nil {
		return nil, err
	}
	answers, kept := make([]A, len(qs)), []Q{}
	for i, q := range qs {
		if ft.item != nil {
			if err := ft.item(ids[i]); err != nil {
				answers[i] = fail(err)
				continue
			}
		}
		kept = append(kept, q)
	}
	got, err := apply(kept)
	if err != nil {
		return nil, err
	}
	for i, j := 0, 0; i < len(qs); i++ {
		if ft.item == nil || ft.item(ids[i]) == nil {
			answers[i] = got[j]
			j++
		}
	}
	return answers, ft.after
}

func (f *faultStore) begin(op string, ids []store.ID) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call{op, ids, time.Now()})
	f.flying[op]++
	f.highest[op] = max(f.highest[op], f.flying[op])
	if f.script == nil {
		return fault{}
	}
	n := 0
	for _, c := range f.calls {
		if c.op == op {
			n++
		}
	}
	return f.script(op, n, ids)
}

func (f *faultStore) end(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flying[op]--
}

// pass is what happens before the call is applied.
func (ft fault) pass(ctx context.Context) error {
	if ft.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if ft.block != nil {
		<-ft.block
	}
	if ft.delay > 0 {
		select {
		case <-time.After(ft.delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return ft.before
}

// only makes a script of one fault for the calls of op whose number is in ns;
// none given means all of them.
func only(op string, ft fault, ns ...int) func(string, int, []store.ID) fault {
	return func(o string, n int, _ []store.ID) fault {
		if o == op && (len(ns) == 0 || slices.Contains(ns, n)) {
			return ft
		}
		return fault{}
	}
}

// toxic makes every call of op fail that carries an item of the key.
func toxic(op, key string) func(string, int, []store.ID) fault {
	return func(o string, _ int, ids []store.ID) fault {
		if o == op && slices.ContainsFunc(ids, func(id store.ID) bool { return id.Key == key }) {
			return fault{before: errCut}
		}
		return fault{}
	}
}
