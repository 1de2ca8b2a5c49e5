// Package sqslambda runs a secondrun handler in an AWS Lambda function that an
// SQS event source mapping invokes.
//
//	h, err := sqslambda.New(handler, nil)
//	lambda.Start(h.Handle)
//
// The mapping must have ReportBatchItemFailures set; without it SQS ignores the
// answer and deletes every message of a batch that did not fail as a whole.
// The queue's visibility timeout should be six times the function's timeout.
//
// The function deletes nothing and extends nothing: the mapping does. A message
// that is done with is left out of the answer, any other is reported as a
// failure and delivered again after the queue's visibility timeout.
package sqslambda

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// Options are the optional settings of a [Handler]. Nil and the zero value mean
// the defaults.
type Options struct {
	// Concurrency is the number of messages of a batch that run at a time; FIFO
	// groups stay in order. Zero means 1.
	Concurrency int
	// Reserve is how long before the invocation's deadline handlers are
	// cancelled, so that their claims can be given back and the answer be sent.
	// Messages that have not started by then are reported as failures. Zero
	// means 1 s; it must be shorter than the function's timeout.
	Reserve time.Duration
	// DeadLetter is called for a message that must not be tried again, with
	// the reason in d.Err. If it returns nil the message is done with. An error
	// reports the message as a failure, and it is called again for the next
	// delivery. Nil leaves such messages to the queue's redrive policy: they
	// are reported as failures, and delivered again without a run until they
	// have used up maxReceiveCount.
	DeadLetter func(ctx context.Context, m *sqsadapter.Message, d secondrun.Decision) error
	// OnDecision is told what became of every message. It must return quickly.
	OnDecision func(ctx context.Context, m *sqsadapter.Message, d secondrun.Decision)
}

// Handler handles SQS events. It is safe for concurrent use.
type Handler struct {
	p   *secondrun.Processor
	opt Options
}

// New returns a handler of SQS events. It is an error when h does not take
// *sqsadapter.Message, or when an option is negative.
func New(h secondrun.Wrapped, opt *Options) (*Handler, error) {
	if h == nil {
		return nil, errors.New("sqslambda: no handler")
	}
	p := h.Processor()
	if !p.Accepts(&sqsadapter.Message{}) {
		return nil, errors.New("sqslambda: the handler does not take *sqsadapter.Message (nor an interface that it implements)")
	}
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Concurrency < 0 || o.Reserve < 0 {
		return nil, fmt.Errorf("sqslambda: Concurrency (%d) and Reserve (%v) must not be negative", o.Concurrency, o.Reserve)
	}
	o.Concurrency = max(o.Concurrency, 1)
	if o.Reserve == 0 {
		o.Reserve = time.Second
	}
	return &Handler{p: p, opt: o}, nil
}

// item is one record of the event.
type item struct {
	id      string
	msg     *sqsadapter.Message
	attempt *secondrun.Attempt
	failed  bool
}

// Handle runs one batch and reports the messages that must come again. It
// claims the whole batch in one call of the store. The error is always nil: an
// error would bring the whole batch back.
func (h *Handler) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	items := make([]*item, len(event.Records))
	ds := make([]secondrun.Delivery, len(items))
	deadline, bounded := ctx.Deadline()
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-h.opt.Reserve), secondrun.ErrShutdown)
		defer cancel()
	}
	for i := range event.Records {
		r := &event.Records[i]
		items[i] = &item{id: r.MessageId, msg: message(r)}
		ds[i] = secondrun.Delivery{Message: items[i].msg, ID: r.MessageId, Until: deadline}
	}
	for i, a := range h.p.Claim(ctx, ds) {
		items[i].attempt = a
	}
	h.runAll(ctx, lanes(items, event))
	return report(items), nil
}

// lanes are the sequences that may run side by side: on a FIFO queue the
// message groups, else every message by itself.
func lanes(items []*item, event events.SQSEvent) [][]*item {
	var out [][]*item
	group := map[string]int{}
	for i, it := range items {
		if !strings.HasSuffix(event.Records[i].EventSourceARN, ".fifo") {
			out = append(out, []*item{it})
			continue
		}
		n, ok := group[it.msg.Group()]
		if !ok {
			n = len(out)
			group[it.msg.Group()] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], it)
	}
	return out
}

// runAll runs the lanes, so many at a time, in the order of the event.
func (h *Handler) runAll(ctx context.Context, lanes [][]*item) {
	next := make(chan []*item)
	var wg sync.WaitGroup
	for range min(h.opt.Concurrency, len(lanes)) {
		wg.Go(func() {
			for lane := range next {
				h.runLane(ctx, lane)
			}
		})
	}
	for _, lane := range lanes {
		next <- lane
	}
	close(next)
	wg.Wait()
}

// runLane runs messages in order. When one of them must come again, those
// behind it must too: they are given back unstarted and reported with it.
func (h *Handler) runLane(ctx context.Context, lane []*item) {
	for i, it := range lane {
		it.failed = true // also when the handler panics
		if ctx.Err() == nil {
			it.failed = !h.settle(ctx, it, it.attempt.Run(ctx))
		} else {
			it.attempt.Release(0)
		}
		if !it.failed {
			continue
		}
		for _, rest := range lane[i+1:] {
			rest.failed = true
			rest.attempt.Release(0)
		}
		return
	}
}

// settle reports whether the message is done with.
func (h *Handler) settle(ctx context.Context, it *item, d secondrun.Decision) bool {
	ctx = context.WithoutCancel(ctx)
	if h.opt.OnDecision != nil {
		h.opt.OnDecision(ctx, it.msg, d)
	}
	switch d.Action {
	case secondrun.Ack:
		return true
	case secondrun.DeadLetter:
		return h.opt.DeadLetter != nil && h.opt.DeadLetter(ctx, it.msg, d) == nil
	}
	return false
}

// report lists the failures: only ids that came with the event, since an
// unknown one would fail the whole batch.
func report(items []*item) events.SQSEventResponse {
	r := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, it := range items {
		if it.failed {
			r.BatchItemFailures = append(r.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: it.id})
		}
	}
	return r
}

// message is the record in the form in which a consumer receives it, so that
// one handler serves both.
func message(r *events.SQSMessage) *sqsadapter.Message {
	raw := types.Message{
		MessageId: &r.MessageId, ReceiptHandle: &r.ReceiptHandle, Body: &r.Body, MD5OfBody: &r.Md5OfBody,
		Attributes: r.Attributes,
	}
	if len(r.MessageAttributes) > 0 {
		raw.MessageAttributes = make(map[string]types.MessageAttributeValue, len(r.MessageAttributes))
	}
	for name, v := range r.MessageAttributes {
		raw.MessageAttributes[name] = types.MessageAttributeValue{
			DataType: aws.String(v.DataType), StringValue: v.StringValue, BinaryValue: v.BinaryValue,
			StringListValues: v.StringListValues, BinaryListValues: v.BinaryListValues,
		}
	}
	return sqsadapter.NewMessage(r.EventSourceARN, raw)
}
