package oteltest

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestRunOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		handle  handle
		status  codes.Code
		errType string
	}{
		"succeeded": {succeeds, codes.Unset, ""},
		"failed":    {returns(errCanary), codes.Error, "*errors.errorString"},
		"transient": {returns(secondrun.Transient(errCanary)), codes.Error, "*errors.errorString"},
		"released":  {returns(&secondrun.BusyError{}), codes.Unset, "*secondrun.BusyError"},
		"lost":      {returns(secondrun.ErrLeaseLost), codes.Error, "*errors.errorString"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				r.process("a", c.handle)
				s := r.last(runSpan)
				r.has(s, map[string]string{"secondrun.outcome": name, "error.type": c.errType})
				r.status(s.Status.Code, c.status, name)
				r.counted(1, "secondrun.runs", "outcome="+name)
			})
		})
	}
}

func TestPanicEndsTheSpan(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		func() {
			defer func() { _ = recover() }()
			r.process("a", func(context.Context, *message) (string, error) { panic(canaryError) })
		}()
		r.has(r.last(runSpan), map[string]string{"secondrun.outcome": "transient", "error.type": "panic"})
		r.counted(1, "secondrun.runs", "outcome=transient")
	})
}

func TestUnrecordedOutcome(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.SettleTimeout = time.Second }, func(r *rig) {
		r.st.down("settle", errCanary)
		r.process("a", succeeds)
		s := r.last(runSpan)
		r.has(s, map[string]string{"secondrun.outcome": "unrecorded"})
		r.status(s.Status.Code, codes.Error, "the run")
		r.counted(1, "secondrun.unrecorded", "record=key")
		r.counted(1, "secondrun.runs", "outcome=unrecorded")
		if !strings.Contains(r.logged(), `level=WARN msg="secondrun unrecorded"`) {
			r.Errorf("no warning: %s", r.logged())
		}
	})
}

func TestLostLeaseAndLateCompletion(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			r.counted(1, "secondrun.leases.active", "scope=billing")
			time.Sleep(lease / 2) // one renewal
			r.st.down("renew", errCanary)
			<-ctx.Done()
			return canaryResult, nil // finished all the same
		})
		r.counted(1, "secondrun.leases.lost", "cause=lease")
		r.counted(1, "secondrun.late.completions")
		r.counted(1, "secondrun.renewals", "result=ok")
		if r.metric("secondrun.renewals", "result=failed") == 0 {
			r.Error("failed renewals are not counted")
		}
		r.counted(0, "secondrun.leases.active")
		s := r.last(runSpan)
		if len(s.Events) != 1 || s.Events[0].Name != "secondrun.lease.lost" {
			r.Errorf("events of the run: %v", s.Events)
		}
		r.has(s, map[string]string{"secondrun.outcome": "succeeded"})
		if !strings.Contains(r.logged(), `level=WARN msg="secondrun lease-lost"`) {
			r.Errorf("no warning: %s", r.logged())
		}
	})
}

func TestMaxRuntimeIsNotALostLease(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.MaxRuntime = time.Minute }, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		r.counted(1, "secondrun.leases.lost", "cause=max-runtime")
		r.has(r.last(runSpan), map[string]string{"secondrun.outcome": "transient", "error.type": "max_runtime"})
	})
}

func TestOmittedResultsAndKeyErrors(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.MaxResult = 8 }, func(r *rig) {
		r.process("a", succeeds)
		r.counted(1, "secondrun.results.omitted", "reason=too-large")
		secondrun.WrapResult(r.g, keyOf, func(context.Context, *message) (any, error) { return make(chan int), nil }).
			Processor().Process(r.Context(), secondrun.Delivery{Message: &message{key: "b"}})
		r.counted(1, "secondrun.results.omitted", "reason=not-encodable")
		r.process("", succeeds)
		r.counted(1, "secondrun.key.errors")
		r.counted(1, "secondrun.dead.letters", "reason=key-error")
	})
}

func TestReleases(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", returns(&secondrun.BusyError{}))
		r.counted(1, "secondrun.releases", "reason=run")
		r.processor(succeeds).Claim(r.Context(), []secondrun.Delivery{{Message: &message{key: "b"}}})[0].Release(0)
		r.counted(1, "secondrun.releases", "reason=unstarted")
	})
}

func TestObserveModeAndFailOpen(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.Mode = secondrun.Observe }, func(r *rig) {
		r.process("a", succeeds)
		original := r.last(claimSpan)
		r.process("a", succeeds)
		r.counted(1, "secondrun.suppressed", "mode=observe", "verdict=done")
		r.counted(0, "secondrun.suppressed", "mode=enforce")
		r.counted(2, "secondrun.runs", "outcome=succeeded")
		r.linked(r.last(claimSpan), "replay", original.SpanContext.TraceID().String(), original.SpanContext.SpanID().String())
		r.has(r.last(runSpan), map[string]string{"secondrun.outcome": "succeeded"})
		r.st.down("claim", errCanary)
		r.process("b", succeeds)
		r.counted(1, "secondrun.fail.open")
	})
}

func TestEffects(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		attempt := 0
		h := func(ctx context.Context, _ *message) (string, error) {
			attempt++
			_, err := secondrun.Once(ctx, "charge", func(context.Context) (string, error) { return canaryResult, nil })
			if err == nil && attempt == 1 {
				err = secondrun.RetryAfter(errCanary, time.Second)
			}
			return canaryResult, err
		}
		r.process("a", h)
		time.Sleep(2 * time.Second)
		r.process("a", h)
		spans := r.named(claimSpan)
		if len(spans) != 4 {
			r.Fatalf("%d claim spans", len(spans))
		}
		first, replay := spans[1], spans[3]
		r.has(first, map[string]string{"secondrun.verdict": "granted", "secondrun.record": "effect", "secondrun.effect": ""})
		r.has(replay, map[string]string{"secondrun.verdict": "done", "secondrun.record": "effect"})
		r.linked(replay, "replay", first.SpanContext.TraceID().String(), first.SpanContext.SpanID().String())
		runs := r.named(runSpan) // of the effect, and of both runs of the handler
		if len(runs) != 3 || runs[0].Parent.SpanID() != first.SpanContext.SpanID() || first.Parent.SpanID() != runs[1].SpanContext.SpanID() {
			r.Errorf("the effect's spans do not hang together: %v", runs)
		}
		r.counted(2, "secondrun.runs")
		r.counted(1, "secondrun.claims", "verdict=done", "record=effect")
	})
}

func TestGaugesOfTheStore(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		stop, err := r.g.ObserveStore(&secondrun.ObserveOptions{Every: time.Minute})
		if err != nil {
			r.Fatal(err)
		}
		defer stop()
		r.process("a", succeeds)
		r.process("b", returns(errCanary))
		r.dies("c")
		time.Sleep(10 * time.Second)
		r.counted(1, "secondrun.store.records", "state=succeeded", "scope=billing")
		r.counted(1, "secondrun.store.records", "state=terminal")
		r.counted(1, "secondrun.store.records", "state=claimed")
		r.counted(0, "secondrun.store.expired")
		if v := r.metric("secondrun.store.claim.overdue"); v < 10.9 || v > 11.1 {
			r.Errorf("overdue %v s, want 11", v)
		}
		r.process("d", succeeds)
		r.counted(1, "secondrun.store.records", "state=succeeded") // counted once a minute
		time.Sleep(time.Minute)
		r.counted(2, "secondrun.store.records", "state=succeeded")
		stop()
		r.counted(0, "secondrun.store.records")
	})
}

func TestGaugesOfTheStoreNeedOne(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		g, err := secondrun.New("x", bare{r.st}, &r.opt)
		if err != nil {
			r.Fatal(err)
		}
		if _, err := g.ObserveStore(nil); err == nil {
			r.Error("gauges of a store that does not count")
		}
	})
}

// bare hides what a store can do on top.
type bare struct{ store.Store }
