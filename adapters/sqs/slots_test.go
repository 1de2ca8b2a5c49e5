package sqsadapter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

// slowSettle is a store whose settlements take their time.
type slowSettle struct {
	store.Store
	takes time.Duration
}

func (s *slowSettle) Settle(ctx context.Context, q []store.Settlement) ([]store.Status, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Store.Settle(ctx, q)
}

// A handler that has returned gives its slot to another one while its outcome is
// recorded; what is held is bounded all the same.
func TestSlots_FreedWhenTheHandlerReturns(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.st = &slowSettle{Store: r.st, takes: 500 * time.Millisecond}
		r.guard = r.newGuard(nil)
		r.opt.Concurrency = 3
		for i := range 30 {
			r.send(fmt.Sprint(i))
		}
		r.start(succeeds)
		r.sleep(100 * time.Millisecond)
		if n := len(r.started()); n != 6 {
			r.t.Errorf("%d handlers have run, want twice the concurrency of 3", n)
		}
		if n := r.srv.Queue(r.url).Counts().InFlight; n != 6 {
			r.t.Errorf("%d messages are held, want 6", n)
		}
		r.sleep(time.Minute)
		r.settled(30)
	})
}
