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
// a minute before the 12 hours end for which SQS lets a message be held. It is
// also a secondrun.ErrMaxRuntime.
var ErrVisibilityLimit = fmt.Errorf("sqs: 12 hours of visibility are over: %w", secondrun.ErrMaxRuntime)

// How long before the 12 hours end a handler is cancelled, and a hold ends. SQS
// counts from its receive, which is earlier than ours by as long as its reply
// took.
const (
	cancelBefore = time.Minute
	endBefore    = 30 * time.Second
)

// core does with received messages what Consumer and Handler have in common.
type core struct {
	client Client
	url    string
	p      *secondrun.Processor
	opt    Options
	fifo   bool

	dead        DeadLetter // decided
	maxReceives int        // of the redrive policy; 0 when there is none, or it is not known

	holds   *secondrun.Holds
	deletes *calls
	hides   *calls
	took    durations
	tel     *telemetry
}

// newCore leaves Options.Visibility at zero: what it means then, and with it
// arm, is the caller's.
func newCore(client Client, queueURL string, h secondrun.Wrapped, opt *Options) (*core, error) {
	switch {
	case client == nil:
		return nil, errors.New("sqs: no client")
	case queueURL == "":
		return nil, errors.New("sqs: no queue URL")
	case strings.HasPrefix(queueURL, "arn:"):
		return nil, errors.New("sqs: the queue is given by its ARN, and must be by its URL")
	case h == nil:
		return nil, errors.New("sqs: no handler")
	}
	o, err := opt.resolve()
	if err == nil && o.DeadLetter.url == queueURL {
		err = errors.New("DeadLetter is the queue itself")
	}
	if err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	p := h.Processor()
	if !p.Accepts(&Message{}) {
		return nil, errors.New("sqs: the handler does not take *sqsadapter.Message (nor an interface that it implements)")
	}
	return &core{
		client: client, url: queueURL, p: p, opt: o, fifo: strings.HasSuffix(queueURL, ".fifo"),
		tel: newTelemetry(p.Guard(), queueURL),
	}, nil
}

// arm prepares the calls to the queue.
func (c *core) arm() {
	timeout := min(c.opt.SettleTimeout, 5*time.Second)
	c.deletes = &calls{send: singly(c.deleteBatch), timeout: timeout}
	c.hides = &calls{send: singly(c.hideBatch), timeout: timeout}
	c.holds = c.p.Guard().NewHolds(secondrun.HoldConfig{
		Lasts: c.opt.Visibility, Batch: maxBatch, Timeout: min(c.opt.Visibility/6, 5*time.Second), Extend: c.extend,
	})
}

// extend is one beat: every message that is due gets its visibility timeout
// anew. An entry that SQS refuses is lost for good.
func (c *core) extend(ctx context.Context, holds []*secondrun.Hold) []error {
	entries := make([]entry, len(holds))
	for i, h := range holds {
		it := h.Value.(*item)
		entries[i] = entry{handle: it.receipt, seconds: it.seconds(c.opt.Visibility)}
	}
	errs := c.hides.send(ctx, entries)
	for i, err := range errs {
		switch {
		case err == nil:
		case beyondLimit(err): // it is still held, for as long as it was
			c.lost(holds[i].Value.(*item), ErrVisibilityLimit)
		case refused(code(err)):
			errs[i] = secondrun.Gone(err)
		}
	}
	return errs
}

// take holds what was received, from the receive on. freed is called for every
// item once its handler has returned, or when it is settled without one.
func (c *core) take(msgs []*Message, received time.Time, freed func()) []*item {
	items := make([]*item, len(msgs))
	for i, m := range msgs {
		it := &item{Message: m, receipt: m.handle(), received: received, free: sync.OnceFunc(freed)}
		it.hold = c.holds.Add(it, received.Add(c.opt.Visibility), func(cause error) { c.lost(it, cause) })
		it.hold.Limit(received.Add(maxVisibility-endBefore), nil)
		it.limit = time.AfterFunc(time.Until(received)+maxVisibility-cancelBefore, func() { c.lost(it, ErrVisibilityLimit) })
		items[i] = it
	}
	return items
}

func (c *core) lost(it *item, cause error) {
	if a := it.lose(cause); a != nil {
		c.tell(a, cause)
	}
}

func (c *core) tell(a *secondrun.Attempt, cause error) {
	switch {
	case errors.Is(cause, ErrVisibilityLimit):
		a.Cancel(cause)
	case c.opt.GoOnWithoutHold:
		a.Lose(nil)
	default:
		a.Lose(cause)
	}
}

// claim claims the items in one call of the store.
func (c *core) claim(ctx context.Context, items []*item) {
	ds := make([]secondrun.Delivery, len(items))
	for i, it := range items {
		ds[i] = secondrun.Delivery{Message: it.Message, ID: it.id(), Err: it.unseen, Returned: func() { c.returned(it) }, Context: c.tel.begin(context.Background(), it.Message)}
	}
	for i, a := range c.p.Claim(ctx, ds) {
		if cause := items[i].claimed(a); cause != nil {
			c.tell(a, cause)
		}
	}
}

// process runs and settles the items: each by itself, or, on a FIFO queue, the
// groups side by side and each group in order. It returns when those that start
// at once are claimed; done is called for every item when it is settled. Items
// that have not started when stop is closed are given back.
func (c *core) process(ctx context.Context, items []*item, stop <-chan struct{}, done func()) {
	lanes := c.lanes(items)
	if !closed(stop) {
		c.look(items)
		heads := make([]*item, len(lanes))
		for i, lane := range lanes {
			heads[i] = lane[0]
		}
		// What stands behind the head of a group is claimed when its turn comes: a
		// head that kills the process would use up the crashes of all the others.
		c.claim(ctx, heads)
	}
	for _, lane := range lanes {
		go c.serial(ctx, lane, stop, done)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// look replaces the messages by what Options.View finds in them.
func (c *core) look(items []*item) {
	if c.opt.View == nil {
		return
	}
	var wg sync.WaitGroup
	for _, it := range items {
		wg.Go(func() {
			m, err := it.Message.View(c.opt.View)
			if err != nil {
				it.unseen = err
				return
			}
			it.Message = m
		})
	}
	wg.Wait()
}

// lanes are the sequences that may run side by side.
func (c *core) lanes(items []*item) [][]*item {
	var lanes [][]*item
	at := map[string]int{}
	for _, it := range items {
		i, ok := at[it.Group()]
		if !ok || !c.fifo { // groups of a standard queue imply no order
			i = len(lanes)
			at[it.Group()] = i
			lanes = append(lanes, nil)
		}
		lanes[i] = append(lanes[i], it)
	}
	return lanes
}

// serial runs the messages of one lane in order. When one of them is not done
// with, the lane stops: what is behind it is given back, to become visible no
// sooner than it.
func (c *core) serial(ctx context.Context, lane []*item, stop <-chan struct{}, done func()) {
	next := 0
	defer func() { // also after a panic that goes on, or a runtime.Goexit
		c.settleRest(lane[next:])
		for _, it := range lane {
			it.free()
			done()
		}
	}()
	for ; next < len(lane); next++ {
		it := lane[next]
		if closed(stop) || !it.alive() { // a dead handle ends the order too
			return
		}
		if it.attempt == nil {
			c.claim(ctx, lane[next:next+1])
		}
		c.run(ctx, it)
		if !c.finished(it.attempt.Decision()) || !c.settle(it, it.attempt.Decision()) {
			return
		}
	}
}

func (c *core) run(ctx context.Context, it *item) {
	if c.opt.OnPanic != nil {
		defer func() {
			if v := recover(); v != nil {
				c.opt.OnPanic(it.Message, v, debug.Stack())
			}
		}()
	}
	it.started = time.Now()
	it.attempt.Run(ctx)
}

// returned notes that the handler has returned: its slot is free while its
// outcome is recorded, and its duration is known.
func (c *core) returned(it *item) {
	it.free()
	c.ran(context.Background(), time.Since(it.started))
}

// finished reports whether a lane may go on behind a message, once it is
// settled.
func (c *core) finished(d secondrun.Decision) bool {
	return !d.HoldLost && (d.Action == secondrun.Ack || d.Action == secondrun.DeadLetter && c.dead.kind != redriven)
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
