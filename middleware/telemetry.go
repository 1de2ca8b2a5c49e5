package secondrun

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry says where spans and metrics go. It uses the OpenTelemetry API
// only: nothing is recorded, and next to nothing is spent, until the program
// configures an SDK. Nil and the zero value mean the global providers.
//
// By default nothing of a message is in spans and metrics but the first 8
// hexadecimal digits of its key's hash, on spans. Payloads, results, tokens and
// the texts of errors are never there.
type Telemetry struct {
	// TracerProvider gets the spans: one for every claim, and one for every
	// run. Nil means otel.GetTracerProvider(), which may also be set later:
	// spans begin within a second.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the metrics. Nil means otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// Propagator reads the trace context that a message carries. Nil means
	// otel.GetTextMapPropagator(). Only the span context is used: baggage of a
	// message is not.
	Propagator propagation.TextMapPropagator

	// Off records nothing, and asks nobody whether to.
	Off bool
	// ReadableKeys adds the key itself to spans. Keys can name people.
	ReadableKeys bool
	// StoreSpans adds a span for every claim and settle call of the store. A
	// call for several deliveries is a child of the first one's span.
	StoreSpans bool
	// MessageParent makes the trace context of a message the parent of its
	// spans. By default it is a link, since a message can be read long after
	// the producer's trace has ended, and more than once.
	MessageParent bool
	// SubScopes labels the metrics of a [Guard.Sub] with its whole scope. By
	// default they carry the name that was given to [New], since a segment may
	// name a tenant. Set it where segments are few, such as task types.
	SubScopes bool
}

// Telemetry returns the settings in effect, with providers and propagator set.
// Adapters record with them.
func (g *Guard) Telemetry() Telemetry { return g.opt.Telemetry.resolve() }

// ObserveHold records how long a run took of the broker's hold on its delivery.
// Adapters call it; the ratio to the lease is recorded by itself.
func (g *Guard) ObserveHold(ctx context.Context, took, hold time.Duration) {
	if g.tel != nil && hold > 0 {
		g.tel.ratio.record(ctx, holdBroker, took.Seconds()/hold.Seconds())
	}
}

func (t *Telemetry) resolve() Telemetry {
	var r Telemetry
	if t != nil {
		r = *t
	}
	if r.TracerProvider == nil {
		r.TracerProvider = otel.GetTracerProvider()
	}
	if r.MeterProvider == nil {
		r.MeterProvider = otel.GetMeterProvider()
	}
	if r.Propagator == nil {
		r.Propagator = otel.GetTextMapPropagator()
	}
	return r
}

// telemetry is what a guard records with. Everything that does not depend on
// the single delivery is made once. A nil *telemetry records nothing.
type telemetry struct {
	Telemetry
	label  attribute.KeyValue
	tracer trace.Tracer
	*instruments

	zeroed    sync.Once
	born      time.Time
	restUntil atomic.Int64 // nanoseconds after born
}

// newTelemetry returns nil when telemetry is off.
func newTelemetry(t *Telemetry, label string) *telemetry {
	r := t.resolve()
	if r.Off {
		return nil
	}
	return &telemetry{
		Telemetry:   r,
		label:       attribute.String(attrScope, label),
		tracer:      r.TracerProvider.Tracer(scopeName),
		instruments: newInstruments(r.MeterProvider.Meter(scopeName), label),
		born:        time.Now(),
	}
}

// subTelemetry is that of a guard made by Sub: the parent's, unless the options
// differ. Options without Telemetry mean the parent's.
func (g *Guard) subTelemetry(sub *Guard) {
	same := sub.opt.Telemetry == nil || sub.opt.Telemetry == g.opt.Telemetry
	if sub.opt.Telemetry == nil {
		sub.opt.Telemetry = g.opt.Telemetry
	}
	sub.label = g.label
	if t := sub.opt.Telemetry; t != nil && t.SubScopes {
		sub.label = sub.scope
	}
	if sub.tel = g.tel; !same || sub.label != g.label {
		sub.tel = newTelemetry(sub.opt.Telemetry, sub.label)
	}
}

// observe registers the gauges of an engine. Guards need no Close, so the
// callback must not keep the engine: it looks through a weak pointer.
func (t *telemetry) observe(e *engine) {
	if t == nil {
		return
	}
	w, label := weak.Make(e), t.scope
	reg, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		e := w.Value()
		if e == nil {
			return nil
		}
		t.zeroed.Do(func() { t.zero(ctx) }) // here a provider is there, however late it was set
		open := int64(0)
		if e.health.open() {
			open = 1
		}
		o.ObserveInt64(t.breaker, open, label...)
		o.ObserveInt64(t.active, e.beats.leases(), label...)
		return nil
	}, t.breaker, t.active)
	if err != nil {
		otel.Handle(err)
		return
	}
	unregister(e, reg)
}
