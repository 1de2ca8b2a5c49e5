package secondrun

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
)

// batcher collects concurrent calls of one store operation. An idle store is
// called at once, in the caller's goroutine and with its items alone; what
// arrives while the allowed number of calls is in flight travels together in
// the next one. No timer is involved: a batch grows exactly as large as the
// store is slow.
//
// Calls run on a context that is detached from the callers', since an item
// that was sent may have been applied: a caller that leaves early does not
// take the others' call with it.
type batcher[Q, A any] struct {
	call     func(ctx context.Context, qs []Q) ([]A, error)
	id       func(*Q) store.ID
	same     func(a, b *Q, x *A) bool // b may share a's answer x; nil means never
	timeout  time.Duration
	parallel int
	max      int

	mu      sync.Mutex
	inCall  map[store.ID]struct{} // the IDs of the calls in flight
	calls   int
	waiting []*pending[Q, A]
}

type pending[Q, A any] struct {
	q    Q
	a    A
	err  error
	solo bool            // travels alone: its last call failed as a whole
	left bool            // the caller is gone
	ctx  context.Context // carries the caller's span
	done chan struct{}
	next *pending[Q, A] // the same ID, waiting to share the answer
}

// leftError says that the caller left before the answer. What was sent may be
// applied all the same: the caller must still take care of that.
type leftError struct {
	cause  error
	answer <-chan struct{} // closed when it was answered, or dropped unsent; nil if nobody was asked
	sent   func() bool     // once answer is closed: whether the item was sent
}

func (e *leftError) Error() string { return e.cause.Error() }
func (e *leftError) Unwrap() error { return e.cause }

// do sends the items in one call if it can, and returns the answer or the
// error of each; nil errors mean none. The items must be sorted and have distinct
// IDs. solo keeps them apart from everybody else's.
func (b *batcher[Q, A]) do(ctx context.Context, qs []Q, solo bool) ([]A, []error) {
	b.mu.Lock()
	if b.calls < b.parallel && len(b.waiting) == 0 && len(qs) <= b.max && !b.anyInCall(qs) {
		b.begin(qs)
		b.mu.Unlock()
		answers, err := b.send(detach(ctx), qs)
		if err != nil {
			return make([]A, len(qs)), slices.Repeat([]error{err}, len(qs))
		}
		return answers, nil
	}
	ps := make([]*pending[Q, A], len(qs))
	for i, q := range qs {
		ps[i] = &pending[Q, A]{q: q, solo: solo, ctx: detach(ctx), done: make(chan struct{})}
	}
	b.waiting = append(b.waiting, ps...)
	b.startLocked()
	b.mu.Unlock()
	return b.await(ctx, ps)
}

func (b *batcher[Q, A]) await(ctx context.Context, ps []*pending[Q, A]) ([]A, []error) {
	answers, errs := make([]A, len(ps)), make([]error, len(ps))
	for i, p := range ps {
		select {
		case <-p.done:
		case <-ctx.Done():
			if b.leave(p) {
				errs[i] = &leftError{
					cause: context.Cause(ctx), answer: p.done,
					sent: func() bool { return p.err != errNotSent }, //nolint:errorlint // never wrapped
				}
				continue
			}
		}
		answers[i], errs[i] = p.a, p.err
	}
	return answers, errs
}

func errAt(errs []error, i int) error {
	if errs == nil {
		return nil
	}
	return errs[i]
}

// errNotSent is the error of an item whose caller left before it was sent.
var errNotSent = errors.New("not sent")

// leave gives up waiting for p; false when it has been answered.
func (b *batcher[Q, A]) leave(p *pending[Q, A]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
		p.left = true
		return true
	}
}

func (b *batcher[Q, A]) anyInCall(qs []Q) bool {
	for i := range qs {
		if _, ok := b.inCall[b.id(&qs[i])]; ok {
			return true
		}
	}
	return false
}

func (b *batcher[Q, A]) begin(qs []Q) {
	b.calls++
	for i := range qs {
		b.inCall[b.id(&qs[i])] = struct{}{}
	}
}

func (b *batcher[Q, A]) end(qs []Q) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	for i := range qs {
		delete(b.inCall, b.id(&qs[i]))
	}
	b.startLocked()
}

// send calls the store. The call is over for the batcher even if it panics.
func (b *batcher[Q, A]) send(ctx context.Context, qs []Q) ([]A, error) {
	defer b.end(qs)
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.call(ctx, qs)
}

// startLocked starts as many calls as are allowed and needed.
func (b *batcher[Q, A]) startLocked() {
	for b.calls < b.parallel {
		batch := b.takeLocked()
		if len(batch) == 0 {
			return
		}
		qs := make([]Q, len(batch))
		for i, p := range batch {
			qs[i] = p.q
		}
		b.begin(qs)
		go b.run(batch, qs)
	}
}

// takeLocked removes from the queue what the next call carries: distinct IDs
// that are in no other call, in order. A request for an ID that the call
// carries already waits for its answer, to share it or to be sent next.
func (b *batcher[Q, A]) takeLocked() []*pending[Q, A] {
	var batch []*pending[Q, A]
	taken := map[store.ID]*pending[Q, A]{}
	rest := b.waiting[:0:0]
	for i, p := range b.waiting {
		if p.left {
			p.err = errNotSent
			close(p.done)
			continue
		}
		id := b.id(&p.q)
		first := taken[id]
		_, busy := b.inCall[id]
		switch {
		case len(batch) > 0 && batch[0].solo, len(batch) >= b.max:
			rest = append(rest, b.waiting[i:]...)
			b.waiting = rest
			return sorted(batch, b.id)
		case first != nil:
			p.next, first.next = first.next, p
		case busy || p.solo && len(batch) > 0:
			rest = append(rest, p)
		default:
			taken[id] = p
			batch = append(batch, p)
		}
	}
	b.waiting = rest
	return sorted(batch, b.id)
}

func sorted[Q, A any](batch []*pending[Q, A], id func(*Q) store.ID) []*pending[Q, A] {
	slices.SortFunc(batch, func(x, y *pending[Q, A]) int { return id(&x.q).Compare(id(&y.q)) })
	return batch
}

func (b *batcher[Q, A]) run(batch []*pending[Q, A], qs []Q) {
	answers, err := b.send(batch[0].ctx, qs)
	b.mu.Lock()
	defer b.mu.Unlock()
	var again []*pending[Q, A]
	for i, p := range batch {
		if p.err = err; err == nil {
			p.a = answers[i]
		}
		for s := p.next; s != nil; {
			next := s.next
			s.next = nil
			if err == nil && b.shares(p, s) {
				s.a = p.a
				close(s.done)
			} else {
				again = append(again, s)
			}
			s = next
		}
		close(p.done)
	}
	b.waiting = append(again, b.waiting...)
	b.startLocked()
}

// shares reports whether s, which waited behind p, may take p's answer. What is
// repeated may not: it may hold the claim that stood in p's way.
func (b *batcher[Q, A]) shares(p, s *pending[Q, A]) bool {
	return b.same != nil && !s.solo && b.same(&p.q, &s.q, &p.a)
}
