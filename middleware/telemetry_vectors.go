package secondrun

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// builder makes instruments whose measurements carry the scope.
type builder struct {
	meter metric.Meter
	scope attribute.KeyValue
}

// counter is a counter with the options of each of its labels, made beforehand.
// A label that it does not know is not counted: the set of labels is closed.
type counter[K comparable] struct {
	inst metric.Int64Counter
	opts map[K][]metric.AddOption
}

func newCounter[K comparable](b builder, name, unit, text string, labels map[K][]attribute.KeyValue) counter[K] {
	inst, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
	if err != nil {
		otel.Handle(err)
		inst = noop.Int64Counter{}
	}
	c := counter[K]{inst, make(map[K][]metric.AddOption, len(labels))}
	for k, attrs := range labels {
		c.opts[k] = []metric.AddOption{b.with(attrs)}
	}
	return c
}

func (c *counter[K]) add(ctx context.Context, label K, n int64) {
	if opts := c.opts[label]; opts != nil && n > 0 {
		c.inst.Add(ctx, n, opts...)
	}
}

// zero makes every label known with the value 0: a counter that first shows up
// with its first event cannot be seen to increase.
func (c *counter[K]) zero(ctx context.Context) {
	for _, opts := range c.opts {
		c.inst.Add(ctx, 0, opts...)
	}
}

// histogram is the same for a histogram.
type histogram[K comparable] struct {
	inst metric.Float64Histogram
	opts map[K][]metric.RecordOption
}

func newHistogram[K comparable](b builder, name, unit, text string, bounds []float64, labels map[K][]attribute.KeyValue) histogram[K] {
	inst, err := b.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		otel.Handle(err)
		inst = noop.Float64Histogram{}
	}
	h := histogram[K]{inst, make(map[K][]metric.RecordOption, len(labels))}
	for k, attrs := range labels {
		h.opts[k] = []metric.RecordOption{b.with(attrs)}
	}
	return h
}

func (h *histogram[K]) record(ctx context.Context, label K, v float64) {
	if opts := h.opts[label]; opts != nil {
		h.inst.Record(ctx, v, opts...)
	}
}

// counts is a histogram of the items in the calls of the store.
type counts struct {
	inst metric.Int64Histogram
	opts map[string][]metric.RecordOption
}

func newCounts(b builder) counts {
	inst, err := b.meter.Int64Histogram(metricStoreBatch, metric.WithUnit("{item}"),
		metric.WithDescription("Items in one call of the store"), metric.WithExplicitBucketBoundaries(batchItems...))
	if err != nil {
		otel.Handle(err)
		inst = noop.Int64Histogram{}
	}
	c := counts{inst, map[string][]metric.RecordOption{}}
	for op, attrs := range labelled(labelOp, "claim", "renew", "settle") {
		c.opts[op] = []metric.RecordOption{b.with(attrs)}
	}
	return c
}

func (c *counts) record(ctx context.Context, op string, n int64) {
	if opts := c.opts[op]; opts != nil {
		c.inst.Record(ctx, n, opts...)
	}
}

func (b builder) with(attrs []attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue{b.scope}, attrs...)...))
}
