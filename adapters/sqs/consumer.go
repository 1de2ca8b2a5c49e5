package sqsadapter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// Consumer receives from one queue and runs a handler. It is started once.
type Consumer struct {
	c     *core
	slots chan struct{} // a token for every message whose handler has not returned
	room  chan struct{} // a token for every message that is not settled
	held  sync.WaitGroup
	began atomic.Bool
}

// NewConsumer returns a consumer of the queue. It is an error when the options
// do not fit, or when the handler does not take *Message.
func NewConsumer(client Client, queueURL string, h secondrun.Wrapped, opt *Options) (*Consumer, error) {
	c, err := newCore(client, queueURL, h, opt)
	if err != nil {
		return nil, err
	}
	if c.opt.Visibility == 0 {
		c.opt.Visibility = defaultVisibility
	}
	c.arm()
	return &Consumer{
		c:     c,
		slots: make(chan struct{}, c.opt.Concurrency),
		room:  make(chan struct{}, 2*c.opt.Concurrency),
	}, nil
}

// Run receives until ctx ends. Then it stops receiving, gives back what has not
// started, lets running handlers finish for Options.Grace, cancels the rest
// with secondrun.ErrShutdown, and returns when everything is settled. A receive
// that ctx interrupts may have taken messages: they come back after the
// visibility timeout.
//
// It returns nil after such a shutdown. It returns an error at once when the
// queue does not exist, cannot be read, or has no way for dead letters
// ([ErrNoDeadLetter]), and an error at the end when handlers were still running
// after twice the grace. Failures of single calls never end Run.
//
// A consumer that has received, or is about to, is not run again: that is an
// error, and another consumer is needed. What returned before it received can be
// tried again.
func (c *Consumer) Run(ctx context.Context) error {
	if c.began.Swap(true) {
		return errors.New("sqs: the consumer was started before: a consumer runs once")
	}
	if err := c.c.check(ctx); err != nil {
		c.began.Store(false)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // shut down before it began
		}
		return err
	}
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var pollers sync.WaitGroup
	for range c.c.opt.Pollers {
		pollers.Go(func() { c.poll(ctx, work) })
	}
	<-ctx.Done()
	drained := make(chan struct{})
	go func() {
		pollers.Wait()
		c.held.Wait()
		close(drained)
	}()
	if waits(drained, c.c.opt.Grace) {
		return nil
	}
	cancel(secondrun.ErrShutdown)
	if waits(drained, c.c.opt.Grace) {
		return nil
	}
	return fmt.Errorf("sqs: %d handlers did not return after their context was cancelled", len(c.slots))
}

func waits(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// poll receives as many messages as have a free slot, until ctx ends. work is
// the context of the handlers.
func (c *Consumer) poll(ctx, work context.Context) {
	failed := 0
	for {
		if c.c.p.Guard().WaitHealthy(ctx) != nil {
			return
		}
		n := c.acquire(ctx)
		if n == 0 {
			return
		}
		asked := time.Now()
		msgs, err := c.receive(ctx, n)
		received := time.Now()
		release(c.slots, n-len(msgs))
		release(c.room, n-len(msgs))
		if ctx.Err() != nil && err != nil {
			return
		}
		if err != nil {
			failed++
			c.c.tel.received(ctx, asked, nil, err)
			c.c.emit(ctx, Event{Kind: EventPollFailed, Err: err})
			pause(ctx, backoff(failed))
			continue
		}
		failed = 0
		if len(msgs) == 0 {
			continue
		}
		c.c.tel.received(ctx, asked, msgs, nil)
		c.c.emit(ctx, Event{Kind: EventReceived, Count: len(msgs)})
		c.held.Add(len(msgs))
		items := c.c.take(msgs, received, func() { release(c.slots, 1) })
		c.c.process(work, items, ctx.Done(), func() {
			release(c.room, 1)
			c.held.Done()
		})
	}
}

// acquire takes at least one slot, and up to a batch of them, with the room for
// as many messages. A handler that has returned gives up its slot while its
// outcome is recorded, so there is room for twice as many: what piles up behind
// a slow store or queue is bounded. It returns 0 when ctx has ended.
func (c *Consumer) acquire(ctx context.Context) int {
	for i, tokens := range []chan struct{}{c.room, c.slots} {
		select {
		case tokens <- struct{}{}:
		case <-ctx.Done():
			release(c.room, i)
			return 0
		}
	}
	if ctx.Err() != nil {
		release(c.room, 1)
		release(c.slots, 1)
		return 0
	}
	for n := 1; n < maxBatch; n++ {
		if !try(c.room) {
			return n
		}
		if !try(c.slots) {
			release(c.room, 1)
			return n
		}
	}
	return maxBatch
}

func try(tokens chan struct{}) bool {
	select {
	case tokens <- struct{}{}:
		return true
	default:
		return false
	}
}

func release(tokens chan struct{}, n int) {
	for range n {
		<-tokens
	}
}

// receive is one long poll. On a FIFO queue it is repeated with the same
// attempt id when its reply was lost, which gives the same messages again.
func (c *Consumer) receive(ctx context.Context, n int) ([]*Message, error) {
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &c.c.url, MaxNumberOfMessages: int32(n), //nolint:gosec // at most 10
		WaitTimeSeconds:             int32(c.c.opt.Wait / time.Second),       //nolint:gosec // at most 20
		VisibilityTimeout:           int32(c.c.opt.Visibility / time.Second), //nolint:gosec // at most 43200
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	if c.c.fifo {
		in.ReceiveRequestAttemptId = aws.String(rand.Text())
	}
	out, err := c.ask(ctx, in)
	for failed := 1; c.c.fifo && failed < 4 && err != nil && ctx.Err() == nil && code(err) == ""; failed++ {
		pause(ctx, time.Second<<failed/4)
		out, err = c.ask(ctx, in)
	}
	if err != nil {
		return nil, err
	}
	msgs := make([]*Message, min(n, len(out.Messages))) // for more there are no slots
	for i := range msgs {
		msgs[i] = NewMessage(c.c.url, out.Messages[i])
	}
	return msgs, nil
}

// ask receives once. A connection that died silently must not stop the poller.
func (c *Consumer) ask(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, c.c.opt.Wait+pollSlack)
	defer cancel()
	return c.c.client.ReceiveMessage(ctx, in)
}

// pollSlack is what a long poll may take beyond its wait.
const pollSlack = 10 * time.Second

// backoff is the wait after a failed receive: longer each time, and not for
// ever.
func backoff(failed int) time.Duration { return min(time.Second<<min(failed-1, 5), 20*time.Second) }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Handler handles what a loop of one's own has received.
type Handler struct {
	c *core
}

// NewHandler returns a handler for messages received from the queue. It reads
// the queue's attributes as [Consumer.Run] does.
func NewHandler(ctx context.Context, client Client, queueURL string, h secondrun.Wrapped, opt *Options) (*Handler, error) {
	c, err := newCore(client, queueURL, h, opt)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	c.arm()
	return &Handler{c: c}, nil
}

// Handle runs what one receive returned and settles every message with the
// queue. It returns when all are settled. Call it right after the receive,
// which must have asked for Options.Visibility as its visibility timeout (zero
// on both sides means the queue's), for all message attributes, and for all
// system attributes.
//
// The handlers' contexts end with ctx; what has not started is given back
// then. The error joins what went wrong with messages that were not
// acknowledged, for a log: nothing is left to do about them.
func (h *Handler) Handle(ctx context.Context, received ...types.Message) error {
	msgs := make([]*Message, len(received))
	for i, raw := range received {
		msgs[i] = NewMessage(h.c.url, raw)
	}
	items := h.c.take(msgs, time.Now(), func() {})
	h.c.handleAll(ctx, items)
	var errs []error
	for _, it := range items {
		if d := it.decision(); d.Action != secondrun.Ack {
			errs = append(errs, fmt.Errorf("message %s: %v: %w", it.id(), d.Action, or(d.Err, errGivenBack)))
		}
	}
	return errors.Join(errs...)
}

var errGivenBack = errors.New("given back before it started")

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
