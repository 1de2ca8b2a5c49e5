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
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/keyfn"
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
	// View looks into the envelope in which every message comes, as
	// sqsadapter.Options.View does.
	View keyfn.View
	// OnPanic is told of a panic of a handler, after it was recorded as a
	// transient failure; the message is reported as a failure. Nil lets the
	// panic end the process, and Lambda brings the whole batch back.
	OnPanic func(m *sqsadapter.Message, value any, stack []byte)
	// OnDecision is told what became of every message. It must return quickly.
	OnDecision func(ctx context.Context, m *sqsadapter.Message, d secondrun.Decision)
}

// Handler handles SQS events. It is safe for concurrent use.
type Handler struct {
	p      *secondrun.Processor
	opt    Options
	queues queues
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
	seen    bool               // through Options.View
	attempt *secondrun.Attempt // nil until its turn comes
	done    bool               // not to come again
}

// Handle runs one batch and reports the messages that must come again. The
// error is always nil: an error would bring the whole batch back.
//
// A message is claimed when its turn comes, those that start at once in one call
// of the store: a function that dies, or is killed at its deadline, then leaves
// behind no claims of messages that it had not come to. A message whose key is
// busy, perhaps by another one of the batch, is tried again after all others.
func (h *Handler) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	b := batch{h: h}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-h.opt.Reserve), secondrun.ErrShutdown)
		defer cancel()
		b.until = deadline
	}
	items := make([]*item, len(event.Records))
	for i := range event.Records {
		r := &event.Records[i]
		items[i] = &item{id: r.MessageId, msg: message(r)}
	}
	if busy := b.run(ctx, lanes(items, event), false); len(busy) > 0 {
		b.run(ctx, busy, true)
	}
	b.end(ctx, items)
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

// batch is one invocation.
type batch struct {
	h     *Handler
	until time.Time // the deadline; zero means none
}

// run runs the lanes, so many at a time, in the order of the event. It returns
// what is left of the lanes that met a busy key, unless this is the last try.
func (b *batch) run(ctx context.Context, lanes [][]*item, last bool) (busy [][]*item) {
	heads := make([]*item, 0, len(lanes))
	for _, lane := range lanes[:min(b.h.opt.Concurrency, len(lanes))] {
		heads = append(heads, lane[0])
	}
	b.claim(ctx, heads)
	slots := make(chan struct{}, b.h.opt.Concurrency)
	left := make([][]*item, len(lanes))
	var wg sync.WaitGroup
	for i, lane := range lanes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			left[i] = b.runLane(ctx, lane, last)
		})
	}
	wg.Wait()
	return slices.DeleteFunc(left, func(lane []*item) bool { return len(lane) == 0 })
}

func (b *batch) claim(ctx context.Context, items []*item) {
	ds := make([]secondrun.Delivery, len(items))
	for i, it := range items {
		ds[i] = b.delivery(it)
		ds[i].Context = b.begin(ctx, it)
	}
	for i, a := range b.h.p.Claim(ctx, ds) {
		items[i].attempt = a
	}
}

func (b *batch) delivery(it *item) secondrun.Delivery {
	d := secondrun.Delivery{ID: it.id, Until: b.until}
	if b.h.opt.View != nil && !it.seen {
		var m *sqsadapter.Message
		if m, d.Err = it.msg.View(b.h.opt.View); d.Err == nil {
			it.msg, it.seen = m, true
		}
	}
	d.Message = it.msg
	return d
}

// runLane runs messages in order. When one of them must come again, those
// behind it must too: they are not started.
func (b *batch) runLane(ctx context.Context, lane []*item, last bool) (busy []*item) {
	for i, it := range lane {
		if ctx.Err() != nil {
			if it.attempt != nil {
				it.attempt.Release(0)
			}
			return nil
		}
		if it.attempt == nil {
			b.claim(ctx, lane[i:i+1])
		}
		b.h.run(ctx, it)
		d := it.attempt.Decision()
		if !last && !d.Ran && errors.Is(d.Err, secondrun.ErrBusy) {
			it.attempt = nil
			return lane[i:]
		}
		if it.done = b.h.settle(ctx, it, d); !it.done {
			return nil
		}
	}
	return nil
}

func (h *Handler) run(ctx context.Context, it *item) {
	if h.opt.OnPanic != nil {
		defer func() {
			if v := recover(); v != nil {
				h.opt.OnPanic(it.msg, v, debug.Stack())
			}
		}()
	}
	it.attempt.Run(ctx)
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
		if !it.done {
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
