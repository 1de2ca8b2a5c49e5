package sqsadapter

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// settle tells the queue what was decided, with the handle of this delivery,
// although the consumer may be shutting down. It returns false when the message
// is still in the way of those behind it.
func (c *core) settle(it *item, d secondrun.Decision) bool {
	it.settled = true
	ctx := context.Background()
	switch {
	case d.HoldLost: // a dead handle is not used; the next delivery is answered from the record
		c.leave(ctx, it, d.Err)
		return false
	case d.Action == secondrun.Ack:
		c.remove(ctx, it, Event{Kind: EventDeleted, Err: d.Err})
		return true
	case d.Action == secondrun.DeadLetter:
		return c.bury(ctx, it, d)
	case d.Action == secondrun.Retry:
		c.deferred(ctx, []*item{it}, it.wait(d), d.Err)
		return false
	}
	c.leave(ctx, it, d.Err)
	return false
}

// settleRest gives back what is left of a lane. Its first message has run and
// is not done with, or it has not started, as those behind it.
func (c *core) settleRest(rest []*item) {
	if len(rest) == 0 {
		return
	}
	ctx := context.Background()
	head, d := rest[0], rest[0].decision()
	delay := time.Duration(0)
	switch {
	case d.Action == 0:
	case head.settled: // the dead-letter copy failed
		rest, delay = rest[1:], c.opt.Visibility
	case d.Action == secondrun.Retry && !d.HoldLost:
		delay = head.wait(d) // in one call with those behind it
	default:
		c.settle(head, d)
		rest, delay = rest[1:], c.opt.Visibility
		if d.Action == secondrun.DeadLetter && !d.HoldLost {
			delay = c.untilMoved(head)
		}
	}
	for _, it := range rest {
		if it != head || d.Action == 0 {
			it.release()
		}
	}
	c.deferred(ctx, rest, delay, d.Err)
}

// untilMoved is how long what stands behind a message must wait that the redrive
// policy is to move: were it visible before, each receive of the head would
// count for it too, and the policy would move the whole group.
func (c *core) untilMoved(head *item) time.Duration {
	return max(time.Duration(c.maxReceives-head.ReceiveCount()+1)*2*redriveDelay, redriveDelay)
}

// leave lets a message come back when its visibility timeout ends.
func (c *core) leave(ctx context.Context, it *item, cause error) {
	it.letGo()
	c.emit(ctx, Event{Kind: EventLeft, Message: it.Message, Err: cause})
}

// remove deletes a message. The beat in flight is waited for: one that lands
// after the delete looks like a lost hold. done is what to tell then.
func (c *core) remove(ctx context.Context, it *item, done Event) {
	it.letGo()
	span := c.tel.startSettle(ctx, it.Message, opAck)
	errs := c.deletes.retrying([]entry{{handle: it.receipt}}, time.Now().Add(c.opt.SettleTimeout))
	c.tel.endSettle(span, it.Message, errs[0])
	if errs[0] != nil {
		c.emit(ctx, Event{Kind: EventSettleFailed, Message: it.Message, Err: errs[0]})
		return
	}
	done.Message = it.Message
	c.emit(ctx, done)
}

// deferred makes messages visible again after the delay, as many together as
// one call takes.
func (c *core) deferred(ctx context.Context, items []*item, delay time.Duration, cause error) {
	var held []*item
	for _, it := range items {
		it.letGo()
		if it.isDead() {
			c.leave(ctx, it, cause)
			continue
		}
		held = append(held, it)
		c.warnLast(ctx, it, Event{Err: cause})
	}
	for len(held) > 0 {
		n := min(len(held), maxBatch)
		c.hide(ctx, held[:n], delay, Event{Err: cause})
		held = held[n:]
	}
}

// warnLast warns of a message that the redrive policy moves instead of
// delivering it again. e says why it is not done with.
func (c *core) warnLast(ctx context.Context, it *item, e Event) {
	n := it.ReceiveCount()
	if c.maxReceives == 0 || n < c.maxReceives {
		return
	}
	e.Kind, e.Message = EventWarning, it.Message
	e.Text = fmt.Sprintf("the message was received %d times and is not done with: the queue moves it to its dead-letter queue instead of delivering it again", n)
	c.emit(ctx, e)
}

// hide makes messages visible again after the delay. why says what for.
func (c *core) hide(ctx context.Context, items []*item, delay time.Duration, why Event) {
	entries, spans := make([]entry, len(items)), make([]trace.Span, len(items))
	for i, it := range items {
		spans[i] = c.tel.startSettle(ctx, it.Message, opNack)
		entries[i] = entry{handle: it.receipt, seconds: it.seconds(delay)}
	}
	for i, err := range c.hides.retrying(entries, time.Now().Add(c.opt.SettleTimeout)) {
		c.tel.endSettle(spans[i], items[i].Message, err)
		e := why
		e.Kind, e.Message = EventDeferred, items[i].Message
		if err != nil {
			e.Kind, e.Err = EventSettleFailed, err
		}
		c.emit(ctx, e)
	}
}
