package sqsadapter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// settle tells the queue what was decided, with the handle of this delivery,
// although the consumer may be shutting down.
func (c *core) settle(it *item, d secondrun.Decision) {
	ctx := context.Background()
	if d.HoldLost {
		it.hold.Stop()
		c.emit(ctx, Event{Kind: EventLeft, Message: it.Message, Err: d.Err})
		return // a dead handle is not used; the next delivery is answered from the record
	}
	switch d.Action {
	case secondrun.Ack:
		c.remove(ctx, it, EventDeleted, d.Err)
	case secondrun.Retry:
		c.hide(ctx, []*item{it}, it.wait(d), d.Err)
	case secondrun.DeadLetter:
		c.bury(ctx, it, d)
	default:
		it.hold.Stop()
		c.emit(ctx, Event{Kind: EventLeft, Message: it.Message, Err: d.Err})
	}
}

// settleGroup gives back what is left of a FIFO group, from the message at
// next on: it has run and is not done with, or it has not started.
func (c *core) settleGroup(group []*item, next int) {
	if next == len(group) {
		return
	}
	ctx := context.Background()
	head, rest := group[next], group[next+1:]
	delay := time.Duration(0)
	var err error
	if d := head.attempt.Decision(); d.Action != 0 {
		err = d.Err
		switch {
		case d.HoldLost || d.Action == secondrun.Leave:
			c.settle(head, d)
			delay = c.opt.Visibility
		case d.Action == secondrun.Retry:
			delay = head.wait(d)
			rest = group[next:]
		default:
			c.settle(head, d)
			delay = time.Second
		}
	} else {
		rest = group[next:]
	}
	for _, it := range rest {
		if it.attempt.Decision().Action == 0 {
			it.attempt.Release(0)
		}
	}
	for len(rest) > 0 {
		n := min(len(rest), maxBatch)
		c.hide(ctx, rest[:n], delay, err)
		rest = rest[n:]
	}
}

// remove deletes a message. The beat in flight is waited for: one that lands
// after the delete looks like a lost hold.
func (c *core) remove(ctx context.Context, it *item, kind EventKind, cause error) {
	it.hold.Stop()
	span := c.tel.startSettle(ctx, it.Message, opAck)
	errs := c.deletes.retrying([]entry{{handle: it.handle()}}, time.Now().Add(c.opt.SettleTimeout))
	c.tel.endSettle(span, it.Message, errs[0])
	if errs[0] != nil {
		c.emit(ctx, Event{Kind: EventSettleFailed, Message: it.Message, Err: errs[0]})
		return
	}
	c.emit(ctx, Event{Kind: kind, Message: it.Message, Err: cause})
}

// hide makes messages visible again after the delay, together.
func (c *core) hide(ctx context.Context, items []*item, delay time.Duration, cause error) {
	entries, spans := make([]entry, len(items)), make([]trace.Span, len(items))
	for i, it := range items {
		it.hold.Stop()
		spans[i] = c.tel.startSettle(ctx, it.Message, opNack)
		entries[i] = entry{handle: it.handle(), seconds: it.seconds(delay)}
	}
	for i, err := range c.hides.retrying(entries, time.Now().Add(c.opt.SettleTimeout)) {
		c.tel.endSettle(spans[i], items[i].Message, err)
		kind := EventDeferred
		if err != nil {
			kind, cause = EventSettleFailed, err
		}
		c.emit(ctx, Event{Kind: kind, Message: items[i].Message, Err: cause})
	}
}

// seconds rounds a delay up to whole seconds within what SQS allows: the total
// since the receive is limited.
func (it *item) seconds(delay time.Duration) int32 {
	left := maxVisibility - time.Since(it.received) - time.Second
	delay = max(min(delay, left), 0)
	return int32((delay + time.Second - 1) / time.Second) //nolint:gosec // at most 12 h
}

// wait is the delay of a message that must come again: a second at least, or
// an impatient queue would burn through its receives.
func (it *item) wait(d secondrun.Decision) time.Duration {
	after := d.After
	if errors.Is(d.Err, secondrun.ErrBusy) {
		after = busyWait(after, it.ReceiveCount())
	}
	return max(after, time.Second)
}
