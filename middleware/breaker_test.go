package secondrun_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// open makes the breaker open.
func (f *fixture) open() {
	f.Helper()
	f.faults.down(errCut)
	process(f.g, nothing).Process(f.Context(), delivery("opens"))
	is(f, "healthy", f.g.Healthy(), false)
}

func TestBreakerOpensAndCloses(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		f.open()
		is(f, "down", f.events.count(secondrun.EventStoreDown), 1)
		var waiting []<-chan error
		for range 10 {
			c := make(chan error, 1)
			go func() { c <- f.g.WaitHealthy(f.Context()) }()
			waiting = append(waiting, c)
		}
		const outage = 10 * time.Minute
		time.Sleep(outage)
		if n := f.faults.count("ping"); n < 60 || n > 1000 {
			f.Errorf("%d pings in %v", n, outage)
		}
		is(f, "pings at a time", f.faults.highest["ping"], 1)
		f.faults.down(nil)
		for _, c := range waiting {
			isError(f, <-c, nil)
		}
		is(f, "healthy", f.g.Healthy(), true)
		is(f, "up", f.events.count(secondrun.EventStoreUp), 1)
	})
}

func TestOneFailedCallIsNoOutage(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("claim", fault{after: errCut}, 1, 2))
		decided(f, process(f.g, nothing).Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "down", f.events.count(secondrun.EventStoreDown), 0)
	})
}

func TestFailureAfterAProbeOpensAtOnce(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.open()
		f.faults.down(nil)
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		f.faults.on(only("claim", fault{before: store.ErrPermanent}))
		process(f.g, nothing).Process(f.Context(), delivery("a")) // one call
		is(f, "healthy", f.g.Healthy(), false)
	})
}

func TestWaitHealthyEndsWithItsContext(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.open()
		for range 2 { // the second one waits for its turn to probe
			ctx, cancel := context.WithCancelCause(f.Context())
			time.AfterFunc(time.Minute, func() { cancel(secondrun.ErrShutdown) })
			isError(f, f.g.WaitHealthy(ctx), secondrun.ErrShutdown)
		}
	})
}

// B15: a store that can be pinged but cannot claim. Every delivery that is
// received meanwhile is one receive nearer to the dead-letter queue.
func TestB15_PingAloneDoesNotEndAnOutage(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, nothing)
		f.faults.on(only("claim", fault{before: errCut}))
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Minute)
		defer cancel()
		received := 0
		for f.g.WaitHealthy(ctx) == nil {
			received++
			if d := p.Process(ctx, delivery("a")); d.Action == secondrun.DeadLetter || d.Failed {
				f.Fatal(d)
			}
		}
		if received > 20 {
			f.Errorf("received %d times during the outage", received)
		}
		f.faults.down(nil)
		isError(f, f.g.WaitHealthy(f.Context()), nil)
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		if f.record("a").Failures+f.record("a").Crashes != 0 {
			f.Errorf("%+v", f.record("a"))
		}
	})
}

func TestStoreThatCannotBePinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := newFaults()
		g, err := secondrun.New("test", bare{faults}, nil)
		isError(t, err, nil)
		p := process(g, nothing)
		faults.down(errCut)
		p.Process(t.Context(), delivery("a"))
		is(t, "healthy", g.Healthy(), false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		isError(t, g.WaitHealthy(ctx), context.DeadlineExceeded)
		faults.down(nil)
		isError(t, g.WaitHealthy(t.Context()), nil)
		decided(t, p.Process(t.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(t, "healthy", g.Healthy(), true)
	})
}

// bare hides what a store can do beside the contract.
type bare struct{ store.Store }
