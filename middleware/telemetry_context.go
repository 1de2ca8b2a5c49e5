package secondrun

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// carrier reads a trace context out of a message's headers.
type carrier struct{ m keyfn.Message }

func (c carrier) Get(name string) string {
	if c.m == nil {
		return ""
	}
	if h, ok := c.m.(interface{ TraceHeader(string) string }); ok { // the adapter knows more than its headers
		return h.TraceHeader(name)
	}
	if v := c.m.Header(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set does nothing: a message that was received is not changed.
func (carrier) Set(string, string) {}

// Keys returns nothing: the headers of a message cannot be listed.
func (carrier) Keys() []string { return nil }

// extract returns ctx with the span context that the message carries, if any.
// What else the propagator finds, such as baggage, is the sender's and left out.
func (t *telemetry) extract(ctx context.Context, m keyfn.Message) context.Context {
	sc := trace.SpanContextFromContext(t.Propagator.Extract(context.Background(), carrier{m}))
	if !sc.IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, sc)
}

const traceparent = "traceparent"

// formatTrace is the W3C traceparent of a span, empty for none: what the record
// keeps of a run, so that later deliveries can point to it.
func formatTrace(span trace.Span) string {
	if span == nil {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), span), c)
	if v := c[traceparent]; len(v) <= store.MaxText {
		return v
	}
	return ""
}

// parseTrace reads what formatTrace wrote; anything else is no span context.
func parseTrace(v string) trace.SpanContext {
	if v == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: v}))
}

// withSpan returns ctx with the span, if there is one.
func withSpan(ctx context.Context, span trace.Span) context.Context {
	if span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span)
}

// detach returns a context with the span of ctx and nothing else: a call for
// several callers ends with none of them, and what the store's client traces
// still finds its place.
func detach(ctx context.Context) context.Context {
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() {
		return trace.ContextWithSpan(context.Background(), span)
	}
	return context.Background()
}

// traced starts the span of the attempt's run, if its claim has one, and returns
// the context for the handler.
func (a *Attempt) traced(ctx context.Context) context.Context {
	t := a.g.tel
	if a.span == nil && a.id.Key == "" && t != nil { // a run without a key has no claim
		_, span := t.tracer.Start(ctx, spanRun)
		if !live(span) {
			return ctx
		}
		a.setRunSpan(span)
		return trace.ContextWithSpan(ctx, span)
	}
	ctx, span := t.startRun(ctx, a.span, a.id, &a.claim)
	a.setRunSpan(span)
	return ctx
}

func (a *Attempt) setRunSpan(span trace.Span) {
	if span == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runSpan = span
}

// mark notes on the span of the run what happened to it.
func (a *Attempt) mark(event string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runSpan != nil {
		a.runSpan.AddEvent(event)
	}
}

// ran records the run that has ended. err is what the handler returned.
func (a *Attempt) ran(ctx context.Context, took time.Duration, err error) {
	lease := a.g.opt.Lease
	a.g.tel.ran(ctx, &a.decision, took, lease)
	a.g.tel.endRun(a.runSpan, &a.decision, err, took, lease)
}

// late reports whether the lease has ended by the local deadline. In a
// transaction that settles the claim it is the row lock that holds it.
func (a *Attempt) late() bool {
	return a.beat != nil && !a.shared.completing.Load() && a.g.beats.left(a.beat) <= 0
}
