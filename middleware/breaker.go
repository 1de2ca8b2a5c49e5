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
// Only a call that did real work proves that the store is back. A ping lets
// the callers try; when the next call fails, the breaker opens again at once
// and waits longer.
type breaker struct {
	ping    func(context.Context) error // nil when the store cannot be probed
	changed func(open bool, err error)  // told of every change
	turn    chan struct{}               // holds one element while somebody probes

	mu       sync.Mutex
	failures int           // whole calls in a row
	closed   chan struct{} // non-nil while open; closed when the breaker closes
	probes   int           // since the last call that worked
}

// opensAfter is the number of failed calls in a row that open the breaker. One
// is no evidence: a connection that the server had closed fails once.
const opensAfter = 3

// report takes the outcome of a call.
func (b *breaker) report(err error) {
	b.mu.Lock()
	if err == nil {
		b.failures, b.probes = 0, 0
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
			passed := b.probe(ctx, closed)
			<-b.turn
			if passed {
				return context.Cause(ctx)
			}
		}
	}
}

// probe waits its time and asks the store. It returns true when the caller
// itself must be the probe, since the store cannot be pinged.
func (b *breaker) probe(ctx context.Context, closed <-chan struct{}) bool {
	b.mu.Lock()
	b.probes = min(b.probes+1, 8)
	pause := time.NewTimer(Backoff{Base: 500 * time.Millisecond, Max: 5 * time.Second}.after(b.probes))
	b.mu.Unlock()
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-closed:
		return false
	case <-pause.C:
	}
	if b.ping == nil {
		return true
	}
	if b.ping(ctx) == nil {
		b.mu.Lock()
		b.failures = opensAfter - 1
		b.closeLocked()
	}
	return false
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed != nil
}

// pinger returns how to probe the store, nil when it cannot be probed.
func pinger(st store.Store, timeout time.Duration, emit func(Event)) func(context.Context) error {
	p, ok := st.(store.Pinger)
	if !ok {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		start := time.Now()
		err := p.Ping(ctx)
		emit(Event{Kind: EventStoreCall, Op: "ping", Duration: time.Since(start), Err: err})
		return err
	}
}
