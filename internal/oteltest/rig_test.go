package oteltest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// What must never be seen.
const (
	canaryKey     = "canary-key-5f0c"
	canaryPayload = "canary-payload-91d2"
	canaryResult  = "canary-result-c27e"
	canaryError   = "canary-error-08ba"
	canaryTenant  = "canary-tenant-3a44"
)

const lease = 30 * time.Second

var errCanary = errors.New(canaryError)

// message is a message with canaries in it.
type message struct {
	key     string
	version string
	headers map[string]string
}

func (m *message) Body() []byte { return []byte(`{"secret":"` + canaryPayload + `"}`) }

func (m *message) Header(name string) []string {
	if v, ok := m.headers[name]; ok {
		return []string{v}
	}
	return nil
}

func keyOf(m keyfn.Message) (string, error) {
	k := m.(*message).key
	if k == "" {
		return "", errCanary
	}
	return canaryKey + k, nil
}

func versionOf(m keyfn.Message) (string, error) { return canaryPayload + m.(*message).version, nil }

// recording is a whole set of telemetry in memory.
type recording struct {
	t      testing.TB
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	tel    secondrun.Telemetry

	mu   sync.Mutex
	logs bytes.Buffer
}

func record(t testing.TB) *recording {
	r := &recording{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	r.tel = secondrun.Telemetry{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)),
		Propagator:     propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}
	return r
}

func (r *recording) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(p)
}

func (r *recording) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *recording) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.String()
}

// rig is a guard over a store in memory, in fake time.
type rig struct {
	*testing.T
	*recording
	st  *spy
	opt secondrun.Options
	g   *secondrun.Guard
}

func bubble(t *testing.T, change func(*secondrun.Options), f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, recording: record(t), st: &spy{Store: memstore.New(nil)}}
		r.opt = secondrun.Options{Lease: lease, Telemetry: &r.tel, OnEvent: secondrun.LogEvents(r.logger())}
		if change != nil {
			change(&r.opt)
		}
		r.g = r.guard("billing")
		f(r)
		if !r.tel.ReadableKeys {
			r.noCanaries(r.st)
		}
	})
}

func (r *rig) guard(scope string) *secondrun.Guard {
	g, err := secondrun.New(scope, r.st, &r.opt)
	if err != nil {
		r.Fatal(err)
	}
	return g
}

// noCanaries fails when anything recorded holds what must not be seen.
func (r *recording) noCanaries(st *spy) {
	r.t.Helper()
	all := r.everything()
	forbidden := append(st.seen(), canaryKey, canaryPayload, canaryResult, canaryError, canaryTenant)
	for _, canary := range forbidden {
		if i := strings.Index(all, canary); i >= 0 {
			r.t.Errorf("%q leaked: …%s…", canary, all[max(i-200, 0):min(i+100, len(all))])
		}
	}
}

func (r *recording) everything() string {
	var b strings.Builder
	for _, s := range r.spans.GetSpans() {
		fmt.Fprintf(&b, "%s %v %v %v %v %v\n", s.Name, s.Attributes, s.Events, s.Links, s.Status, s.SpanContext.TraceState())
	}
	fmt.Fprintf(&b, "%+v\n%s", r.collect(), r.logged())
	return b.String()
}

func (r *recording) collect() metricdata.ResourceMetrics {
	r.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &rm); err != nil {
		r.t.Fatal(err)
	}
	return rm
}

// metric returns the sum of the values of a metric whose labels hold all of the
// given ones ("name=value"); for a histogram the number of measurements.
func (r *recording) metric(name string, labels ...string) (n float64) {
	r.t.Helper()
	for _, sm := range r.collect().ScopeMetrics {
		for _, m := range sm.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				n += sum(d.DataPoints, labels)
			case metricdata.Gauge[int64]:
				n += sum(d.DataPoints, labels)
			case metricdata.Gauge[float64]:
				n += sum(d.DataPoints, labels)
			case metricdata.Histogram[float64]:
				n += times(d.DataPoints, labels)
			case metricdata.Histogram[int64]:
				n += times(d.DataPoints, labels)
			}
		}
	}
	return n
}

func sum[N int64 | float64](ps []metricdata.DataPoint[N], labels []string) (n float64) {
	for _, p := range ps {
		if fits(p.Attributes, labels) {
			n += float64(p.Value)
		}
	}
	return n
}

func times[N int64 | float64](ps []metricdata.HistogramDataPoint[N], labels []string) (n float64) {
	for _, p := range ps {
		if fits(p.Attributes, labels) {
			n += float64(p.Count)
		}
	}
	return n
}

func fits(set attribute.Set, labels []string) bool {
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		v, ok := set.Value(attribute.Key(name))
		if !ok || v.Emit() != value {
			return false
		}
	}
	return true
}

func (r *recording) counted(want float64, name string, labels ...string) {
	r.t.Helper()
	if got := r.metric(name, labels...); got != want {
		r.t.Errorf("%s%v = %v, want %v", name, labels, got, want)
	}
}

// named returns the spans of that name, in the order in which they ended.
func (r *recording) named(name string) (found tracetest.SpanStubs) {
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// last is the last span of that name to have ended.
func (r *recording) last(name string) tracetest.SpanStub {
	r.t.Helper()
	found := r.named(name)
	if len(found) == 0 {
		r.t.Fatalf("no span %q", name)
	}
	return found[len(found)-1]
}

// has compares attributes of a span, given as they print.
func (r *recording) has(s tracetest.SpanStub, want map[string]string) {
	r.t.Helper()
	got := map[string]string{}
	for _, kv := range s.Attributes {
		got[string(kv.Key)] = kv.Value.Emit()
	}
	for name, value := range want {
		if got[name] != value {
			r.t.Errorf("span %s: %s = %q, want %q (all: %v)", s.Name, name, got[name], value, got)
		}
	}
}

// linked compares the only link of that kind.
func (r *recording) linked(s tracetest.SpanStub, kind, trace, span string) {
	r.t.Helper()
	for _, l := range s.Links {
		if len(l.Attributes) == 1 && l.Attributes[0].Value.AsString() == kind {
			if l.SpanContext.TraceID().String() != trace || l.SpanContext.SpanID().String() != span {
				r.t.Errorf("link %s leads to %s-%s, want %s-%s", kind, l.SpanContext.TraceID(), l.SpanContext.SpanID(), trace, span)
			}
			return
		}
	}
	r.t.Errorf("span %s has no link %q: %v", s.Name, kind, s.Links)
}

// spy is a store that remembers the tokens it was given, and can be away.
type spy struct {
	*memstore.Store
	mu     sync.Mutex
	tokens []store.Token
	fail   map[string]error // by operation
}

func (s *spy) down(op string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.fail = map[string]error{}
	}
	s.fail[op] = err
}

func (s *spy) note(op string, ts ...store.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, ts...)
	return s.fail[op]
}

func (s *spy) seen() (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		texts = append(texts, string(t[:]), hex.EncodeToString(t[:]), fmt.Sprint([16]byte(t)))
	}
	return texts
}

func (s *spy) Claim(ctx context.Context, qs []store.ClaimRequest) ([]store.Claim, error) {
	for _, q := range qs {
		if err := s.note("claim", q.Token); err != nil {
			return nil, err
		}
	}
	return s.Store.Claim(ctx, qs)
}

func (s *spy) Renew(ctx context.Context, ls []store.Lease, d time.Duration) ([]store.Status, error) {
	if err := s.note("renew"); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, ls, d)
}

func (s *spy) Settle(ctx context.Context, ss []store.Settlement) ([]store.Status, error) {
	if err := s.note("settle"); err != nil {
		return nil, err
	}
	return s.Store.Settle(ctx, ss)
}

// labelSets are those of all measurements.
func (r *recording) labelSets() (sets []attribute.Set) {
	for _, sm := range r.collect().ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			}
		}
	}
	return sets
}
