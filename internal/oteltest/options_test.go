package oteltest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
)

const producer = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func sent(key string) secondrun.Delivery {
	return secondrun.Delivery{Message: &message{key: key, headers: map[string]string{
		"traceparent": producer, "baggage": "tenant=" + canaryTenant,
	}}}
}

func TestMessageIsALink(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.processor(succeeds).Process(r.Context(), sent("a"))
		s := r.last(claimSpan)
		r.linked(s, "message", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
		if s.Parent.IsValid() {
			r.Error("it is the parent too")
		}
	})
}

func TestMessageAsParent(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Telemetry.MessageParent = true }, func(r *rig) {
		r.processor(succeeds).Process(r.Context(), sent("a"))
		s := r.last(claimSpan)
		if s.Parent.SpanID().String() != "00f067aa0ba902b7" || !s.Parent.IsRemote() || len(s.Links) != 0 {
			r.Errorf("parent %v, links %v", s.Parent, s.Links)
		}
	})
}

func TestContextOfTheDelivery(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		ctx, span := r.tel.TracerProvider.Tracer("adapter").Start(r.Context(), "process")
		d := sent("a")
		d.Context = ctx
		r.processor(succeeds).Process(r.Context(), d)
		span.End()
		s := r.last(claimSpan)
		if s.Parent.SpanID() != span.SpanContext().SpanID() || len(s.Links) != 0 {
			r.Errorf("parent %v, links %v", s.Parent, s.Links)
		}
	})
}

func TestNothingBreaksOnAForgedTrace(t *testing.T) {
	for _, forged := range []string{"x", strings.Repeat("0", 55), "00-" + strings.Repeat("f", 200), producer[:54]} {
		bubble(t, nil, func(r *rig) {
			d := sent("a")
			d.Message.(*message).headers["traceparent"] = forged
			r.processor(succeeds).Process(r.Context(), d)
			if s := r.last(claimSpan); len(s.Links) != 0 {
				r.Errorf("%q became a link: %v", forged, s.Links)
			}
		})
	}
}

func TestUnsampledTraceGoesOn(t *testing.T) {
	bubble(t, func(o *secondrun.Options) {
		o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	}, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			if sc := trace.SpanContextFromContext(ctx); !sc.IsValid() || sc.IsSampled() {
				r.Errorf("the handler is in %v", sc)
			}
			return canaryResult, nil
		})
		if n := len(r.spans.GetSpans()); n != 0 {
			r.Errorf("%d spans", n)
		}
	})
}

func TestStoreSpans(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Telemetry.StoreSpans = true }, func(r *rig) {
		r.process("a", succeeds)
		claim, settle := r.last("secondrun.store.claim"), r.last("secondrun.store.settle")
		if claim.Parent.SpanID() != r.last(claimSpan).SpanContext.SpanID() || settle.Parent.SpanID() != r.last(runSpan).SpanContext.SpanID() {
			r.Error("the calls are not below whom they are for")
		}
		r.has(claim, map[string]string{"secondrun.store.batch": "1", "secondrun.scope": "billing"})
		r.st.down("claim", errCanary)
		r.process("b", succeeds)
		r.has(r.last("secondrun.store.claim"), map[string]string{"error.type": "*errors.errorString"})
	})
}

func TestStoreSpansAreAskedFor(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", succeeds)
		if n := len(r.named("secondrun.store.claim")); n != 0 {
			r.Errorf("%d spans", n)
		}
	})
}

func TestBatchHasASpanForEach(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		as := r.processor(succeeds).Claim(r.Context(), []secondrun.Delivery{
			{Message: &message{key: "a"}}, {Message: &message{key: "b"}}, {Message: &message{key: "a"}},
		})
		for _, a := range as {
			a.Run(r.Context())
		}
		r.counted(2, "secondrun.claims", "verdict=granted")
		r.counted(1, "secondrun.claims", "verdict=done") // the second of one key waited for the first
		if n := len(r.named(claimSpan)); n != 3 {
			r.Errorf("%d claim spans", n)
		}
		if n := len(r.named(runSpan)); n != 2 {
			r.Errorf("%d run spans", n)
		}
	})
}

func TestReadableKeys(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Telemetry.ReadableKeys = true }, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			return canaryResult, secondrun.OnceFunc(ctx, "charge", func(context.Context) error { return nil })
		})
		r.has(r.last(runSpan), map[string]string{"secondrun.key": canaryKey + "a"})
		r.has(r.last(claimSpan), map[string]string{"secondrun.key": canaryKey + "a", "secondrun.effect": "charge"})
		if !strings.Contains(r.everything(), canaryKey) { // the search for canaries can find one
			r.Error("the key is nowhere")
		}
	})
}

func TestOff(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Telemetry.Off = true }, func(r *rig) {
		r.process("a", succeeds)
		r.process("a", succeeds)
		if n := len(r.spans.GetSpans()); n != 0 {
			r.Errorf("%d spans", n)
		}
		if n := len(r.collect().ScopeMetrics); n != 0 {
			r.Errorf("%d sets of metrics", n)
		}
		rec := r.st.Len()
		if rec != 1 {
			r.Errorf("%d records", rec)
		}
	})
}

var globalsAreSet bool

// TestProviderThatIsSetLater sets the global providers after the guard was made
// and has worked.
func TestProviderThatIsSetLater(t *testing.T) {
	if globalsAreSet {
		t.Skip("the global providers can be set once in a process")
	}
	globalsAreSet = true
	var late secondrun.Telemetry
	bubble(t, func(o *secondrun.Options) { late, o.Telemetry = *o.Telemetry, nil }, func(r *rig) {
		r.process("a", succeeds)
		otel.SetTracerProvider(late.TracerProvider)
		otel.SetMeterProvider(late.MeterProvider)
		time.Sleep(time.Second)
		r.process("a", succeeds)
		r.has(r.last(claimSpan), map[string]string{"secondrun.verdict": "done"})
		r.counted(1, "secondrun.suppressed")
		r.counted(0, "secondrun.breaker.open")
	})
}

func TestTenantsOfSubScopesAreNoLabels(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		for _, o := range []*secondrun.Options{nil, {}} {
			sub, err := r.g.Sub(canaryTenant, o)
			if err != nil {
				r.Fatal(err)
			}
			_ = secondrun.DoFunc(r.Context(), sub, canaryKey, func(context.Context) error { return nil })
		}
		r.counted(1, "secondrun.runs", "scope=billing")
		r.counted(1, "secondrun.suppressed", "scope=billing")
	})
}

func TestSubScopes(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Telemetry.SubScopes = true }, func(r *rig) {
		sub, err := r.g.Sub("mail", nil)
		if err != nil {
			r.Fatal(err)
		}
		_ = secondrun.DoFunc(r.Context(), sub, canaryKey, func(context.Context) error { return nil })
		r.counted(1, "secondrun.runs", "scope=billing/mail")
		r.has(r.last(claimSpan), map[string]string{"secondrun.scope": "billing/mail"})
	})
}

// TestGuardsAreCollected makes sure that the gauges, which nobody closes, do not
// keep a guard.
func TestGuardsAreCollected(t *testing.T) {
	r := record(t)
	collected := make(chan struct{})
	func() {
		st := &spy{}
		g, err := secondrun.New("x", st, &secondrun.Options{Telemetry: &r.tel})
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(st, func(c chan struct{}) { close(c) }, collected)
		if !g.Healthy() {
			t.Error("not healthy")
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the guard is kept")
}

// TestLabelsAreFew lists every label of every metric: none is free text.
func TestLabelsAreFew(t *testing.T) {
	known := map[attribute.Key]bool{
		"scope": true, "record": true, "verdict": true, "mode": true, "outcome": true, "hold": true,
		"result": true, "cause": true, "reason": true, "op": true, "state": true,
	}
	bubble(t, nil, func(r *rig) {
		for _, key := range []string{"a", "b", "c"} {
			r.process(key, succeeds)
			r.process(key, succeeds)
		}
		for _, set := range r.labelSets() {
			for _, kv := range set.ToSlice() {
				if !known[kv.Key] {
					r.Errorf("label %s = %q", kv.Key, kv.Value.Emit())
				}
			}
		}
	})
}
