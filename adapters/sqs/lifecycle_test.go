package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// A11, A10, U26 (a): handlers that finish within the grace are recorded and
// acknowledged, and nothing is received after the end.
func TestA11_Drain(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		stop := r.start(sleeps(10 * time.Second))
		r.sleep(5 * time.Second)
		start := time.Now()
		stop()
		if d := time.Since(start); d > 6*time.Second {
			r.t.Errorf("stopping took %v, the handler needed 5s", d)
		}
		r.settled(1)
		r.send("late")
		r.sleep(time.Minute)
		if len(r.started()) != 1 {
			r.t.Error("a message was received after Run had returned")
		}
	})
}

// A12: when the grace has passed the handler is cancelled; its claim is
// released and the next worker starts without waiting for the lease.
func TestA12_GracePasses(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		var cause error
		stop := r.start(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		r.sleep(time.Second)
		stop()
		if !errors.Is(cause, secondrun.ErrShutdown) {
			r.t.Errorf("cause = %v, want ErrShutdown", cause)
		}
		if c := r.srv.Queue(r.url).Counts(); c.InFlight != 1 {
			r.t.Errorf("given back without the pause of a second: %+v", c)
		}
		rec, _ := r.record("k")
		if rec.State != store.StateReleased || rec.Failures != 0 {
			r.t.Errorf("record after the shutdown: %+v", rec)
		}
		defer r.start(succeeds)()
		r.sleep(3 * time.Second)
		r.settled(2)
	})
}

// A12: a handler that ignores its context keeps its claim; Run says so.
func TestA12_HandlerIgnoresItsContext(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		c, err := sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, func(context.Context, string) error {
			time.Sleep(10 * time.Minute)
			return nil
		}), &r.opt)
		r.must(err)
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		if err := c.Run(ctx); err == nil {
			r.t.Error("Run returned nil although a handler was still running")
		}
		if rec, _ := r.record("k"); rec.State != store.StateClaimed {
			r.t.Errorf("record: %v", rec.State)
		}
		r.sleep(20 * time.Minute)
	})
}

// H10: the same key many times in one receive: one run, and one call of the
// store for all of it.
func TestRoundTrips_TenMessages(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		counting := &countingStore{Store: r.st}
		r.st = counting
		r.guard = r.newGuard(nil)
		for i := range 10 {
			r.send(fmt.Sprint(i))
		}
		r.start(sleeps(time.Second))
		r.sleep(30 * time.Second)
		r.settled(10)
		if counting.claims != 1 || counting.renews != 0 {
			r.t.Errorf("%d claim calls and %d renewals for ten messages of one receive", counting.claims, counting.renews)
		}
	})
}

type countingStore struct {
	store.Store
	mu                      sync.Mutex
	claims, renews, settles int
}

func (c *countingStore) Claim(ctx context.Context, q []store.ClaimRequest) ([]store.Claim, error) {
	c.mu.Lock()
	c.claims++
	c.mu.Unlock()
	return c.Store.Claim(ctx, q)
}

func (c *countingStore) Renew(ctx context.Context, q []store.Lease, d time.Duration) ([]store.Status, error) {
	c.mu.Lock()
	c.renews++
	c.mu.Unlock()
	return c.Store.Renew(ctx, q, d)
}

func (c *countingStore) Settle(ctx context.Context, q []store.Settlement) ([]store.Status, error) {
	c.mu.Lock()
	c.settles++
	c.mu.Unlock()
	return c.Store.Settle(ctx, q)
}

// A loop of one's own gets what the consumer gives.
func TestHandler_OwnLoop(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("a", "b", "a", "bad")
		h, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, func(_ context.Context, key string) error {
			time.Sleep(time.Minute) // beyond the visibility timeout
			if key == "bad" {
				return errors.New("no")
			}
			return nil
		}), &r.opt)
		r.must(err)
		out, err := r.client.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &r.url, MaxNumberOfMessages: 10, VisibilityTimeout: 30,
			MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		r.must(err)
		if err := h.Handle(r.t.Context(), out.Messages...); err == nil {
			r.t.Error("the failure of one message is not reported")
		}
		r.sleep(time.Minute)
		r.settled(3)
		if r.deadCount() != 1 {
			r.t.Errorf("%d messages in the dead-letter queue, want 1", r.deadCount())
		}
	})
}

// FIFO: groups run side by side, each in order; a failure stops its group, and
// the rest comes back behind it.
func TestFIFO_OrderOnFailure(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.opt.Visibility = 30 * time.Second
		r.sendFIFO("g1", "a1", "a2", "a3")
		r.sendFIFO("g2", "b1", "b2")
		failed := map[string]int{}
		var mu sync.Mutex
		var done []string
		r.start(func(ctx context.Context, key string) error {
			if err := sleeps(40*time.Second)(ctx, key); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if failed[key]++; key == "a2" && failed[key] < 3 {
				return secondrun.Transient(errors.New("not yet"))
			}
			done = append(done, key)
			return nil
		})
		r.sleep(20 * time.Minute)
		r.settled(7)
		mu.Lock()
		defer mu.Unlock()
		for _, group := range []string{"a", "b"} {
			var order []string
			for _, key := range done {
				if key[:1] == group {
					order = append(order, key)
				}
			}
			if !slices.IsSorted(order) {
				r.t.Errorf("order of group %s: %v", group, order)
			}
		}
	})
}

// FIFO: a dead-lettered message does not hold up its group for ever.
func TestFIFO_TerminalGoesOn(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.sendFIFO("g", "1", "2", "3")
		r.start(func(_ context.Context, key string) error {
			if key == "2" {
				return errors.New("no")
			}
			return nil
		})
		r.sleep(time.Minute)
		r.settled(3)
		if got := r.started(); !slices.Equal(got, []string{"1", "2", "3"}) {
			r.t.Errorf("order %v", got)
		}
		dead := r.srv.Queue(r.dead).Messages()
		if len(dead) != 1 || dead[0].GroupID != "g" {
			r.t.Errorf("dead letters: %+v", dead)
		}
	})
}

// U26 (d): what a FIFO group has not started when the consumer stops is given
// back at once, and was not claimed.
func TestU26_NotStarted(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.sendFIFO("g", "1", "2", "3")
		stop := r.start(sleeps(10 * time.Second))
		r.sleep(5 * time.Second)
		stop()
		synctest.Wait()
		if got := r.started(); !slices.Equal(got, []string{"1"}) {
			r.t.Fatalf("started %v", got)
		}
		if rec, ok := r.record("2"); ok {
			r.t.Errorf("a message that was not started was claimed: %+v", rec)
		}
		defer r.start(succeeds)()
		r.sleep(2 * time.Second)
		r.settled(3)
	})
}

// U07: ten messages of one group, handled one by one beyond the visibility
// timeout, each once and in order.
func TestU07_TenInOneGroup(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		var keys []string
		for i := range 10 {
			keys = append(keys, fmt.Sprintf("c-%02d", i))
		}
		r.sendFIFO("g", keys...)
		r.start(sleeps(5 * time.Second))
		r.start(sleeps(5 * time.Second))
		r.sleep(10 * time.Minute)
		r.settled(10)
		if got := r.started(); !slices.Equal(got, keys) {
			r.t.Errorf("order %v", got)
		}
	})
}
