package sqsadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// Attributes of a message that was copied to a dead-letter queue. SQS allows
// ten attributes; where the message has too many of its own, the last of these
// are left out. All of them are when the copy would be too large with them.
const (
	AttributeReason = "secondrun.reason" // why, without the handler's error text
	AttributeKey    = "secondrun.key"    // the domain key; its hash if it is not readable text
	AttributeSource = "secondrun.source" // the queue it was received from
)

const maxAttributes = 10

// redriveDelay lies between the receives that use up maxReceiveCount.
const redriveDelay = time.Second

// bury sends a message the way of the dead letters. The order matters: the
// copy is confirmed before the original is deleted. If the process dies in
// between, the next delivery finds the failure recorded and comes here again;
// the copy can double, so it carries the key. It returns false when the message
// stays.
func (c *core) bury(ctx context.Context, it *item, d secondrun.Decision) bool {
	switch c.dead.kind {
	case copied:
		span := c.tel.startSettle(ctx, it.Message, opDeadLetter)
		err := c.copy(ctx, it, d)
		c.tel.endSettle(span, it.Message, err)
		if err != nil {
			c.emit(ctx, Event{Kind: EventSettleFailed, Message: it.Message, Err: fmt.Errorf("dead-letter copy: %w", err)})
			c.deferred(ctx, []*item{it}, c.opt.Visibility, err)
			return false
		}
		c.remove(ctx, it, Event{Kind: EventDeadLettered, Reason: reason(d.Err), Err: d.Err})
	case discarded:
		c.remove(ctx, it, Event{Kind: EventDiscarded, Reason: reason(d.Err), Err: d.Err})
	default: // the redrive policy counts receives: the message must come back to be moved
		it.letGo()
		e := Event{Reason: reason(d.Err), Err: d.Err}
		c.warnLast(ctx, it, e)
		c.hide(ctx, []*item{it}, redriveDelay, e)
		return false
	}
	return true
}

func (c *core) copy(ctx context.Context, it *item, d secondrun.Decision) error {
	in := &sqs.SendMessageInput{
		QueueUrl: &c.dead.url, MessageBody: it.Raw.Body, MessageAttributes: c.deadAttributes(it, d),
	}
	if trace := it.system(types.MessageSystemAttributeNameAWSTraceHeader); trace != "" {
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: aws.String("String"), StringValue: &trace},
		}
	}
	if strings.HasSuffix(c.dead.url, ".fifo") {
		in.MessageGroupId = aws.String(it.Group())
		if it.Group() == "" {
			in.MessageGroupId = aws.String("secondrun")
		}
		in.MessageDeduplicationId = aws.String(it.id())
	}
	err := c.sendLetter(ctx, in)
	if misfit(err) {
		in.MessageAttributes = it.Raw.MessageAttributes
		err = c.sendLetter(ctx, in)
	}
	return err
}

func (c *core) sendLetter(ctx context.Context, in *sqs.SendMessageInput) error {
	deadline := time.Now().Add(c.opt.SettleTimeout)
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		callCtx, cancel := context.WithTimeout(ctx, c.deletes.timeout)
		_, err := c.client.SendMessage(callCtx, in)
		cancel()
		if err == nil || missing(err) || misfit(err) || time.Now().Add(pause).After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

func (c *core) deadAttributes(it *item, d secondrun.Decision) map[string]types.MessageAttributeValue {
	all := make(map[string]types.MessageAttributeValue, maxAttributes)
	for name, v := range it.Raw.MessageAttributes {
		all[name] = v
	}
	_, key, _ := d.ID.Encode()
	for _, a := range [][2]string{{AttributeReason, reason(d.Err)}, {AttributeKey, key}, {AttributeSource, c.url}} {
		if _, replaced := all[a[0]]; a[1] != "" && (replaced || len(all) < maxAttributes) {
			all[a[0]] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(a[1])}
		}
	}
	return all
}

// reason says why a message is dead, in words that carry nothing of it.
func reason(err error) string {
	switch {
	case errors.Is(err, secondrun.ErrExhausted):
		return "exhausted"
	case errors.Is(err, secondrun.ErrParked):
		return "parked"
	case errors.Is(err, secondrun.ErrConflict):
		return "conflict"
	case errors.Is(err, keyfn.ErrBatch):
		return "several events in one message"
	case errors.Is(err, keyfn.ErrUnresolved):
		return "pointer to a payload"
	case errors.Is(err, secondrun.ErrKey):
		return "no key"
	case errors.Is(err, secondrun.ErrReentrant):
		return "re-entrant"
	case errors.Is(err, secondrun.ErrFailed):
		return "failed before"
	}
	return "failed"
}
