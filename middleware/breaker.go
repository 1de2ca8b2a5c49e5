package secondrun

import (
	"context"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
)

// breaker knows whether the store answers. Adapters stop receiving while it
// is open: what they received could not be claimed, and every receive that
// ends that way brings a healthy message nearer to the dead-letter queue.
//
// Only a call that did real work proves that the store is back. A probe lets
// the callers try; when the next call fails, the breaker opens again at once
// and waits longer.
type breaker struct {
	ask     func(context.Context) error // probes the store
	changed func(open bool, err error)  // told of every change
	turn    chan struct{}               // holds one element while somebody probes

	mu       sync.Mutex
	failures int           // whole calls in a row
	claims   bool          // the last claim call failed
	closed   chan struct{} // non-nil while open; closed when the breaker closes
	probes   int           // since the last call that worked
	passes   int           // those of them that the store answered
}

// opensAfter is the number of failed calls in a row that open the breaker. One
// is no evidence: a connection that the server had closed fails once.
const opensAfter = 3

// report takes the outcome of a call. While claims fail, other calls that work
// are no comfort: it is claims that a receive is for.
func (b *breaker) report(claim bool, err error) {
	b.mu.Lock()
	b.claims = claim && err != nil || !claim && b.claims
	switch {
	case err == nil && b.claims:
		b.mu.Unlock()
		return
	case err == nil:
		b.failures, b.probes, b.passes = 0, 0, 0
		b.closeLocked()
		return
	}
	b.failures++
	opens := b.failures >= opensAfter && b.closed == nil
	if opens {
		b.closed = make(chan struct{})
	}
	b.mu.Unlock()
	if opens {
		b.changed(true, err)
	}
}

// closeLocked closes the breaker, unlocks it and tells.
func (b *breaker) closeLocked() {
	closed := b.closed
	b.closed = nil
	b.mu.Unlock()
	if closed != nil {
		close(closed)
		b.changed(false, nil)
	}
}

// wait returns nil when the store answers, after probing it if need be, or the
// cause of ctx when that ends first. Of all who wait, one probes at a time.
func (b *breaker) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		closed := b.closed
		b.mu.Unlock()
		if closed == nil {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-closed:
		case b.turn <- struct{}{}:
			b.probe(ctx, closed)
			<-b.turn
		}
	}
}

// probe waits its time and asks the store.
func (b *breaker) probe(ctx context.Context, closed <-chan struct{}) {
	pause := time.NewTimer(b.pause())
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return
	case <-closed:
		return
	case <-pause.C:
	}
	if b.ask(ctx) == nil {
		b.mu.Lock()
		b.failures = opensAfter - 1
		b.passes++
		b.closeLocked()
	}
}

// pause is the wait before the next probe: some seconds at most, but more when
// probes have been answered and the calls after them have not.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes = min(b.probes+1, 8)
	if b.passes > 0 {
		return around(min(5*time.Second<<min(b.passes, 8), time.Minute))
	}
	return Backoff{Base: 500 * time.Millisecond, Max: 5 * time.Second}.after(b.probes)
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed != nil
}

// prober returns how to probe the store: a ping, if it has one, and the renewal
// of a lease that nobody holds, which writes nothing but needs what a claim
// needs, such as a table and the permission to write.
func prober(st store.Store, scope string, timeout time.Duration, emit func(Event)) func(context.Context) error {
	nobody := []store.Lease{{ID: store.ID{Scope: scope, Key: "probe"}, Token: store.NewToken()}}
	return func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		start := time.Now()
		if p, ok := st.(store.Pinger); ok {
			err = p.Ping(ctx)
		}
		if err == nil {
			var answers []store.Status
			if answers, err = st.Renew(ctx, nobody, time.Second); err == nil && len(answers) == 1 {
				err = answers[0].Err
			}
		}
		emit(Event{Kind: EventStoreCall, Op: "ping", Duration: time.Since(start), Err: err})
		return err
	}
}
