package sqsadapter

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// telemetry shows what happens between the adapter and the queue, with the
// settings of the guard (secondrun.Options.Telemetry). A nil *telemetry shows
// nothing.
type telemetry struct {
	secondrun.Telemetry
	tracer   trace.Tracer
	names    map[string]string // of the spans, by operation
	messages metric.Int64Counter
	results  map[EventKind][]metric.AddOption
	common   []attribute.KeyValue
	receive  []trace.SpanStartOption
	process  []trace.SpanStartOption
	settle   map[string][]trace.SpanStartOption
}

func newTelemetry(g *secondrun.Guard, queueURL string) *telemetry {
	t := &telemetry{Telemetry: g.Telemetry(), names: map[string]string{}}
	if t.Off {
		return nil
	}
	queue := queueURL[strings.LastIndexAny(queueURL, "/:")+1:] // an ARN has colons
	for _, op := range []string{opReceive, opProcess, opAck, opNack, opDeadLetter} {
		t.names[op] = op + " " + queue
	}
	t.tracer = t.TracerProvider.Tracer(tracerName)
	t.common = []attribute.KeyValue{attribute.String(attrSystem, systemSQS), attribute.String(attrDestination, queue)}
	results := slices.Clip(t.common)
	if u, err := url.Parse(queueURL); err == nil && u.Hostname() != "" {
		t.common = append(t.common, attribute.String(attrServer, u.Hostname()))
	}
	var err error
	t.messages, err = t.MeterProvider.Meter(tracerName).Int64Counter(metricMessages, metric.WithUnit("{message}"),
		metric.WithDescription("Messages by what the adapter did with them"))
	if err != nil {
		otel.Handle(err)
		t.messages = noop.Int64Counter{}
	}
	t.results = map[EventKind][]metric.AddOption{}
	for _, k := range []EventKind{EventReceived, EventDeleted, EventDeferred, EventSettleFailed, EventDeadLettered, EventDiscarded, EventLeft} {
		t.results[k] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(append(results, attribute.String(labelResult, k.String()))...))}
	}
	t.receive = t.options(opReceive, opReceive, trace.SpanKindClient)
	t.process = t.options(opProcess, opProcess, trace.SpanKindConsumer)
	t.settle = map[string][]trace.SpanStartOption{}
	for _, op := range []string{opAck, opNack, opDeadLetter} {
		t.settle[op] = t.options(op, typeSettle, trace.SpanKindClient)
	}
	return t
}

// options are those of every span of an operation, made once.
func (t *telemetry) options(op, kind string, k trace.SpanKind) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(k),
		trace.WithAttributes(append(slices.Clip(t.common), attribute.String(attrOperation, op), attribute.String(attrOperationType, kind))...),
	}
}

// received shows a receive that began at the given instant, unless it was
// empty: a queue without messages is polled all day.
func (t *telemetry) received(ctx context.Context, since time.Time, msgs []*Message, err error) {
	if t == nil {
		return
	}
	t.messages.Add(ctx, int64(len(msgs)), t.results[EventReceived]...)
	_, span := t.tracer.Start(ctx, t.names[opReceive], append(slices.Clip(t.receive), trace.WithTimestamp(since))...)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if err != nil {
		fail(span, errorType(err))
		return
	}
	span.SetAttributes(attribute.Int(attrBatchCount, len(msgs)))
	for _, m := range msgs {
		t.link(span, m)
	}
}

// begin starts the span of a message's processing, unless it has begun. It ends
// when the message is settled. It returns the context for the claim.
func (t *telemetry) begin(ctx context.Context, m *Message) context.Context {
	switch {
	case t == nil:
		return nil
	case m.span != nil:
		return trace.ContextWithSpan(ctx, m.span)
	}
	if sc := t.parent(m); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	ctx, span := t.tracer.Start(ctx, t.names[opProcess], t.process...)
	if !span.IsRecording() && !span.SpanContext().IsValid() {
		return nil // the guard may still find a trace in the headers
	}
	m.span = span
	if span.IsRecording() {
		span.SetAttributes(attribute.String(attrMessageID, m.id()))
		if !t.MessageParent {
			t.link(span, m)
		}
	}
	return ctx
}

// parent is the trace context of a message that is a parent and not a link.
func (t *telemetry) parent(m *Message) trace.SpanContext {
	if !t.MessageParent {
		return trace.SpanContext{}
	}
	return t.extract(m)
}

func (t *telemetry) link(span trace.Span, m *Message) {
	if sc := t.extract(m); sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String(attrLink, linkMessage)}})
	}
}

func (t *telemetry) extract(m *Message) trace.SpanContext {
	return trace.SpanContextFromContext(t.Propagator.Extract(context.Background(), carrier{m}))
}

// event counts what became of a message and ends its span.
func (t *telemetry) event(ctx context.Context, e *Event) {
	if t == nil || e.Message == nil || e.Kind == EventWarning {
		return
	}
	if opts := t.results[e.Kind]; opts != nil {
		t.messages.Add(ctx, 1, opts...)
	}
	span := e.Message.span
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrSettled, e.Kind.String()))
	switch e.Kind {
	case EventSettleFailed, EventDeadLettered, EventDiscarded, EventLeft:
		fail(span, e.Kind.String())
	}
}

// startSettle starts the span of a settlement below the message's.
func (t *telemetry) startSettle(ctx context.Context, m *Message, op string) trace.Span {
	if t == nil || m.span == nil {
		return nil
	}
	_, span := t.tracer.Start(trace.ContextWithSpan(ctx, m.span), t.names[op], t.settle[op]...)
	return span
}

func (t *telemetry) endSettle(span trace.Span, m *Message, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrMessageID, m.id()))
	if err != nil {
		fail(span, errorType(err))
	}
}

func fail(span trace.Span, kind string) {
	span.SetAttributes(attribute.String(attrErrorType, kind))
	span.SetStatus(codes.Error, kind)
}

// errorType names an error of SQS without its text.
func errorType(err error) string {
	if c := code(err); c != "" {
		return c
	}
	if e, ok := err.(*entryError); ok { //nolint:errorlint // never wrapped
		return e.code
	}
	return "_OTHER"
}

// TraceHeader returns the message attribute of that name, and for the header of
// AWS X-Ray the system attribute in which SQS hands it on: what propagators
// read. It is empty when there is none.
func (m *Message) TraceHeader(name string) string {
	if v := m.Header(name); len(v) > 0 {
		return v[0]
	}
	if v, ok := m.Raw.MessageAttributes[name]; ok && v.StringValue != nil { // outside of the view
		return *v.StringValue
	}
	if strings.EqualFold(name, xrayHeader) {
		return m.Raw.Attributes[xrayAttribute]
	}
	return ""
}

// carrier lets a propagator read a message.
type carrier struct{ m *Message }

func (c carrier) Get(name string) string { return c.m.TraceHeader(name) }

// Set does nothing: a message that was received is not changed.
func (carrier) Set(string, string) {}

func (c carrier) Keys() []string {
	names := make([]string, 0, len(c.m.Raw.MessageAttributes))
	for name := range c.m.Raw.MessageAttributes {
		names = append(names, name)
	}
	return names
}
