package sqslambda

import (
	"context"
	"sync"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// queues are the spans by the ARN of the queue: a function can be mapped to
// several.
type queues struct {
	mu    sync.Mutex
	spans map[string]*sqsadapter.Spans
}

func (q *queues) of(g *secondrun.Guard, arn string) *sqsadapter.Spans {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spans[arn]
	if s == nil {
		if q.spans == nil {
			q.spans = map[string]*sqsadapter.Spans{}
		}
		s = sqsadapter.NewSpans(g, arn)
		q.spans[arn] = s
	}
	return s
}

// begin starts the span of a message, below that of the invocation.
func (b *batch) begin(ctx context.Context, it *item) context.Context {
	return b.h.queues.of(b.h.p.Guard(), it.msg.QueueURL).Begin(ctx, it.msg)
}

// end ends the spans of the batch with what is reported.
func (b *batch) end(ctx context.Context, items []*item) {
	for _, it := range items {
		kind := sqsadapter.EventDeferred
		if it.done {
			kind = sqsadapter.EventDeleted
		}
		b.h.queues.of(b.h.p.Guard(), it.msg.QueueURL).End(ctx, it.msg, kind)
	}
}
