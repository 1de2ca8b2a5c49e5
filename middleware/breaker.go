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
type breaker struct {
	ping    func(context.Context) error // nil when the store cannot be probed
	changed func(open bool, err error)  // told of every change

	mu       sync.Mutex
	failures int           // whole calls in a row
	closed   chan struct{} // non-nil while open; closed when the breaker closes
	probes   int           // since it opened
}

// opensAfter is the number of failed calls in a row that open the breaker. One
// is no evidence: a connection that the server had closed fails once.
const opensAfter = 3

func (b *breaker) report(err error) {
	b.mu.Lock()
	var closed chan struct{}
	opened := false
	if err == nil {
		b.failures, b.probes = 0, 0
		closed, b.closed = b.closed, nil
	} else if b.failures++; b.failures >= opensAfter && b.closed == nil {
		b.closed, opened = make(chan struct{}), true
	}
	b.mu.Unlock()
	if closed != nil {
		close(closed)
		b.changed(false, nil)
	}
	if opened {
		b.changed(true, err)
	}
}

// wait returns nil when the store answers, after probing it if need be, or the
// cause of ctx when that ends first.
func (b *breaker) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		closed, probes := b.closed, b.probes
		b.probes++
		b.mu.Unlock()
		if closed == nil {
			return context.Cause(ctx)
		}
		pause := time.NewTimer(Backoff{Base: 500 * time.Millisecond, Max: 5 * time.Second}.after(min(probes, 8) + 1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		case <-closed:
			pause.Stop()
			continue
		case <-pause.C:
		}
		if b.ping == nil {
			return nil // the next claim is the probe
		}
		if b.ping(ctx) == nil {
			b.report(nil)
		}
	}
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed != nil
}

func pinger(st store.Store, timeout time.Duration) func(context.Context) error {
	p, ok := st.(store.Pinger)
	if !ok {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return p.Ping(ctx)
	}
}
