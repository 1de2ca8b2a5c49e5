package secondrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/secondrun/secondrun/store"
)

// A span here is nil where nobody records and no trace goes on. No attribute is
// built unless a span records.

// startClaim starts the span of a delivery's claim.
func (t *telemetry) startClaim(ctx context.Context, d *Delivery) trace.Span {
	if t == nil {
		return nil
	}
	switch {
	case d.Context != nil:
		ctx = d.Context
	case t.MessageParent:
		ctx = t.extract(ctx, d.Message)
	}
	root := !trace.SpanContextFromContext(ctx).IsValid()
	if root && t.idle() {
		return nil
	}
	_, span := t.tracer.Start(ctx, spanClaim)
	if !live(span) {
		t.rest()
		return nil
	}
	if d.Context == nil && !t.MessageParent && span.IsRecording() {
		if sc := trace.SpanContextFromContext(t.extract(context.Background(), d.Message)); !sc.Equal(trace.SpanContextFromContext(ctx)) {
			addLink(span, sc, linkMessage)
		}
	}
	return span
}

// startEffect starts the span of an effect's claim inside a traced run.
func (t *telemetry) startEffect(ctx context.Context) trace.Span {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	_, span := t.tracer.Start(ctx, spanClaim)
	return span
}

// restFor is how long nobody is asked again whether a root span is recorded,
// when the answer was no. A span that nobody records costs three allocations.
const restFor = time.Second

func (t *telemetry) idle() bool { return int64(time.Since(t.born)) < t.restUntil.Load() }
func (t *telemetry) rest()      { t.restUntil.Store(int64(time.Since(t.born) + restFor)) }

// live reports whether a span must be handed on: it records, or it carries the
// decision of others not to.
func live(s trace.Span) bool { return s.IsRecording() || s.SpanContext().IsValid() }

// endClaim ends the span of a claim with the store's answer.
func (t *telemetry) endClaim(span trace.Span, id store.ID, c *store.Claim, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(t.identity(id)...)
	if err != nil {
		span.SetAttributes(attribute.String(attrVerdict, verdictUnavailable), attribute.String(attrErrorType, errorType(err)))
		span.SetStatus(codes.Error, verdictUnavailable)
		return
	}
	span.SetAttributes(
		attribute.String(attrVerdict, c.Verdict.String()),
		attribute.Int(attrAttempt, c.Starts),
		attribute.Int64(attrFence, c.Fence),
		attribute.Bool(attrTakeover, c.Takeover),
		attribute.Float64(attrRemaining, c.Remaining.Seconds()),
	)
	switch v := c.Verdict; v {
	case store.Failed, store.Exhausted, store.Conflict:
		span.SetStatus(codes.Error, v.String())
	}
	if kind := linkOf(c); kind != "" {
		addLink(span, parseTrace(c.Trace), kind)
	}
}

// linkOf says how a claim is related to the run that its answer refers to.
func linkOf(c *store.Claim) string {
	switch c.Verdict {
	case store.Done, store.Failed, store.Exhausted:
		return linkReplay
	case store.Busy:
		return linkBusy
	case store.Granted:
		if c.Takeover {
			return linkTakeover
		}
	}
	return ""
}

func addLink(span trace.Span, to trace.SpanContext, kind string) {
	if to.IsValid() {
		span.AddLink(trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String(attrLink, kind)}})
	}
}

// identity is what spans show of a record.
func (t *telemetry) identity(id store.ID) []attribute.KeyValue {
	record := "key"
	if id.Effect != "" {
		record = "effect"
	}
	attrs := []attribute.KeyValue{
		t.label, attribute.String("secondrun."+labelRecord, record), attribute.String(attrKeyHash, id.KeyHash()),
	}
	if t.ReadableKeys {
		attrs = append(attrs, attribute.String(attrKey, id.Key))
		if id.Effect != "" {
			attrs = append(attrs, attribute.String(attrEffect, id.Effect))
		}
	}
	return attrs
}

// startRun starts the span of a run below that of its claim, and returns the
// context for the handler. c is nil for the run of an effect, whose claim says
// the same.
func (t *telemetry) startRun(ctx context.Context, claim trace.Span, id store.ID, c *store.Claim) (context.Context, trace.Span) {
	if t == nil || claim == nil {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpan(ctx, claim), spanRun)
	if span.IsRecording() {
		span.SetAttributes(t.identity(id)...)
		if c != nil {
			span.SetAttributes(
				attribute.Int(attrAttempt, c.Starts),
				attribute.Int64(attrFence, c.Fence),
				attribute.Bool(attrTakeover, c.Takeover),
			)
		}
	}
	return ctx, span
}

// endRun ends the span of a handler's run with what became of it. err is what
// the handler returned.
func (t *telemetry) endRun(span trace.Span, d *Decision, err error, took, lease time.Duration) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	outcome := outcomeOf(d)
	span.SetAttributes(attribute.String(attrOutcome, outcome), attribute.Float64(attrHoldRatio, took.Seconds()/lease.Seconds()))
	endWith(span, outcome, err)
}

// endEffect ends the span of an effect's run.
func endEffect(span trace.Span, err error, returned bool) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	outcome := outcomeSucceeded
	switch {
	case !returned:
		err = errPanic
		fallthrough
	case err != nil:
		outcome = outcomeFailed
	}
	span.SetAttributes(attribute.String(attrOutcome, outcome))
	endWith(span, outcome, err)
}

func endWith(span trace.Span, outcome string, err error) {
	if err != nil {
		span.SetAttributes(attribute.String(attrErrorType, errorType(err)))
	}
	if outcome != outcomeSucceeded && outcome != outcomeReleased {
		span.SetStatus(codes.Error, outcome)
	}
}

// startStore starts the span of a call of the store, if asked for. ctx carries
// the span of whom the call is for.
func (t *telemetry) startStore(ctx context.Context, op string, items int) (context.Context, trace.Span) {
	if t == nil || !t.StoreSpans || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, spanStore+op, storeKind...)
	if span.IsRecording() {
		span.SetAttributes(t.label, attribute.Int(attrBatch, items))
	}
	return ctx, span
}

var storeKind = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}

func endStore(span trace.Span, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if err != nil && span.IsRecording() {
		kind := errorType(err)
		span.SetAttributes(attribute.String(attrErrorType, kind))
		span.SetStatus(codes.Error, kind)
	}
}

// errorType names an error without its text, which may carry payloads.
func errorType(err error) string {
	switch {
	case errors.Is(err, errPanicked):
		return "panic"
	case errors.Is(err, ErrMaxRuntime):
		return "max_runtime"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	for {
		name := fmt.Sprintf("%T", err)
		switch name {
		case "*secondrun.marked", "*secondrun.storeError", "*fmt.wrapError": // say nothing themselves
			err = errors.Unwrap(err)
		default:
			return name
		}
	}
}
