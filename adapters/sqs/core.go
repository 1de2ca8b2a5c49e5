package sqsadapter

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// ErrVisibilityLimit is the cause with which a handler's context is cancelled
// shortly before the 12 hours end for which SQS lets a message be held. It is
// also a secondrun.ErrMaxRuntime.
var ErrVisibilityLimit = fmt.Errorf("sqs: 12 hours of visibility are over: %w", secondrun.ErrMaxRuntime)

// core does with received messages what Consumer and Handler have in common.
type core struct {
	client Client
	url    string
	p      *secondrun.Processor
	opt    Options
	dead   DeadLetter // decided
	fifo   bool

	holds   *secondrun.Holds
	deletes *calls
	hides   *calls
	took    durations
	tel     *telemetry
}

// item is one message that is held.
type item struct {
	*Message
	received time.Time
	hold     *secondrun.Hold

	mu      sync.Mutex
	attempt *secondrun.Attempt // nil until the claim was answered
	cause   error              // of a loss before that
}

func newCore(client Client, queueURL string, h secondrun.Wrapped, opt *Options) (*core, error) {
	switch {
	case client == nil:
		return nil, errors.New("sqs: no client")
	case queueURL == "":
		return nil, errors.New("sqs: no queue URL")
	case h == nil:
		return nil, errors.New("sqs: no handler")
	}
	o, err := opt.resolve()
	if err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	p := h.Processor()
	if !p.Accepts(&Message{}) {
		return nil, fmt.Errorf("sqs: the handler does not take *sqsadapter.Message (nor an interface that it implements)")
	}
	c := &core{client: client, url: queueURL, p: p, opt: o, fifo: strings.HasSuffix(queueURL, ".fifo")}
	c.tel = newTelemetry(p.Guard(), queueURL)
	c.holds = p.Guard().NewHolds(secondrun.HoldConfig{
		Lasts: o.Visibility, Batch: maxBatch, Timeout: min(o.Visibility/6, 5*time.Second), Extend: c.extend,
	})
	callTimeout := min(o.SettleTimeout, 5*time.Second)
	c.deletes = &calls{send: c.deleteBatch, timeout: callTimeout}
	c.hides = &calls{send: c.hideBatch, timeout: callTimeout}
	return c, nil
}

// extend is one beat: every message that is due gets its visibility timeout
// anew. An entry that SQS refuses is lost for good.
func (c *core) extend(ctx context.Context, holds []*secondrun.Hold) []error {
	entries := make([]entry, len(holds))
	for i, h := range holds {
		entries[i] = entry{handle: h.Value.(*item).handle(), seconds: int32(c.opt.Visibility / time.Second)} //nolint:gosec // at most 12 h
	}
	errs := c.hideBatch(ctx, entries)
	for i, err := range errs {
		if err == nil {
			continue
		}
		var e *entryError
		if errors.As(err, &e) && refused(e.code) || refused(code(err)) {
			errs[i] = secondrun.Gone(err)
		}
	}
	return errs
}

// take holds what was received and claims all of it in one call of the store.
func (c *core) take(ctx context.Context, msgs []*Message, received time.Time) []*item {
	items := make([]*item, len(msgs))
	ds := make([]secondrun.Delivery, len(msgs))
	for i, m := range msgs {
		it := &item{Message: m, received: received}
		it.hold = c.holds.Add(it, received.Add(c.opt.Visibility), func(cause error) { c.lost(it, cause) })
		it.hold.Limit(received.Add(maxVisibility-c.opt.Visibility-2*time.Second), ErrVisibilityLimit)
		items[i], ds[i] = it, m.delivery()
		ds[i].Context = c.tel.begin(m)
	}
	for i, a := range c.p.Claim(ctx, ds) {
		it := items[i]
		it.mu.Lock()
		it.attempt = a
		cause := it.cause
		it.mu.Unlock()
		if cause != nil {
			c.lost(it, cause)
		}
	}
	return items
}

func (c *core) lost(it *item, cause error) {
	it.mu.Lock()
	it.cause = cause
	early := it.attempt == nil
	it.mu.Unlock()
	switch {
	case early: // take comes back to it
	case errors.Is(cause, ErrVisibilityLimit):
		it.attempt.Cancel(cause)
	case c.opt.GoOnWithoutHold:
		it.attempt.Lose(nil)
	default:
		it.attempt.Lose(cause)
	}
}

// process runs and settles the items: each by itself, or, on a FIFO queue, the
// groups side by side and each group in order. It returns at once; done is
// called for every item when it is settled. Items that have not started when
// stop is closed are given back.
func (c *core) process(ctx context.Context, items []*item, stop <-chan struct{}, done func()) {
	if !c.fifo {
		for _, it := range items {
			go func() {
				defer done()
				c.work(ctx, it)
			}()
		}
		return
	}
	for _, group := range byGroup(items) {
		go c.serial(ctx, group, stop, done)
	}
}

func byGroup(items []*item) [][]*item {
	var groups [][]*item
	at := map[string]int{}
	for _, it := range items {
		i, ok := at[it.Group()]
		if !ok {
			i = len(groups)
			at[it.Group()] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], it)
	}
	return groups
}

// work runs one message and settles it, also when the handler panics or calls
// runtime.Goexit.
func (c *core) work(ctx context.Context, it *item) {
	defer func() { c.settle(it, it.attempt.Decision()) }()
	c.run(ctx, it)
}

func (c *core) run(ctx context.Context, it *item) {
	if c.opt.OnPanic != nil {
		defer func() {
			if v := recover(); v != nil {
				c.opt.OnPanic(it.Message, v, debug.Stack())
			}
		}()
	}
	start := time.Now()
	if d := it.attempt.Run(ctx); d.Ran {
		c.ran(ctx, time.Since(start))
	}
}

// serial runs the messages of one group in order. When one of them is not done
// with, the group stops: what is behind it is given back, to become visible no
// sooner than it.
func (c *core) serial(ctx context.Context, group []*item, stop <-chan struct{}, done func()) {
	next := 0
	defer func() { // also after a panic that goes on, or a runtime.Goexit
		c.settleGroup(group, next)
		for range group {
			done()
		}
	}()
	for ; next < len(group); next++ {
		it := group[next]
		select {
		case <-stop:
			return
		default:
		}
		if it.hold.Left() <= 0 {
			return // its handle is dead, and so is the order
		}
		c.run(ctx, it)
		if !finished(it.attempt.Decision(), c.dead) {
			return
		}
		c.settle(it, it.attempt.Decision())
	}
}

// finished reports whether the group may go on behind a message.
func finished(d secondrun.Decision, dead DeadLetter) bool {
	return !d.HoldLost && (d.Action == secondrun.Ack || d.Action == secondrun.DeadLetter && dead.kind != redriven)
}

// handleAll is process for callers that wait.
func (c *core) handleAll(ctx context.Context, items []*item) {
	var wg sync.WaitGroup
	wg.Add(len(items))
	c.process(ctx, items, ctx.Done(), wg.Done)
	wg.Wait()
}

func (c *core) emit(ctx context.Context, e Event) {
	c.tel.event(ctx, &e)
	if c.opt.OnEvent != nil {
		e.QueueURL = c.url
		c.opt.OnEvent(ctx, e)
	}
}
