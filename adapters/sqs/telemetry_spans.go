package sqsadapter

import (
	"context"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// Spans shows the processing of messages that somebody else than a [Consumer] or
// a [Handler] receives and settles, such as package sqslambda: a span for each,
// and the count of what became of them.
type Spans struct{ t *telemetry }

// NewSpans returns the spans for messages of a queue, named by its URL or ARN,
// with the telemetry settings of the guard.
func NewSpans(g *secondrun.Guard, queue string) *Spans { return &Spans{newTelemetry(g, queue)} }

// Begin starts the span of a message below that of ctx, unless it has begun, and
// returns what secondrun.Delivery.Context takes: nil when nobody records.
func (s *Spans) Begin(ctx context.Context, m *Message) context.Context { return s.t.begin(ctx, m) }

// End ends the span: EventDeleted for a message that is done with, EventDeferred
// for one that comes again.
func (s *Spans) End(ctx context.Context, m *Message, k EventKind) {
	s.t.event(ctx, &Event{Kind: k, Message: m})
}
