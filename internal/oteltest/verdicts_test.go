package oteltest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

const (
	claimSpan = "secondrun.claim"
	runSpan   = "secondrun.run"

	deadTrace = "0af7651916cd43dd8448eb211c80319c"
	deadSpan  = "b7ad6b7169203331"
	deadRun   = "00-" + deadTrace + "-" + deadSpan + "-01"
)

type handle = func(context.Context, *message) (string, error)

func succeeds(context.Context, *message) (string, error) { return canaryResult, nil }

func returns(err error) handle {
	return func(context.Context, *message) (string, error) { return "", err }
}

func (r *rig) processor(h handle) *secondrun.Processor {
	return secondrun.WrapResult(r.g, keyOf, h).WithFingerprint(1, versionOf).Processor()
}

func (r *rig) process(key string, h handle) secondrun.Decision {
	return r.processor(h).Process(r.Context(), secondrun.Delivery{Message: &message{key: key}, ID: "d1"})
}

// dies claims a key like a process that is killed, and lets the lease end.
func (r *rig) dies(key string) {
	r.Helper()
	cs, err := r.st.Claim(r.Context(), []store.ClaimRequest{{
		ID: store.ID{Scope: "billing", Key: canaryKey + key}, Token: store.NewToken(), Trace: deadRun,
		Lease: time.Second, Retention: time.Hour,
	}})
	if err != nil || cs[0].Verdict != store.Granted {
		r.Fatal(cs, err)
	}
	time.Sleep(2 * time.Second)
}

func (r *rig) status(got, want codes.Code, span string) {
	r.Helper()
	if got != want {
		r.Errorf("status of %s is %v, want %v", span, got, want)
	}
}

// claimed checks the claim span of a verdict, its status, and the counter.
func (r *rig) claimed(verdict string, attempt, fence int, status codes.Code) {
	r.Helper()
	s := r.last(claimSpan)
	r.has(s, map[string]string{
		"secondrun.verdict": verdict, "secondrun.attempt": fmt.Sprint(attempt), "secondrun.fence": fmt.Sprint(fence),
		"secondrun.scope": "billing", "secondrun.record": "key", "secondrun.takeover": "false",
	})
	for _, kv := range s.Attributes {
		if kv.Key == "secondrun.key.hash" && len(kv.Value.AsString()) != 8 {
			r.Errorf("key hash is %q", kv.Value.AsString())
		}
	}
	r.status(s.Status.Code, status, verdict)
	r.counted(1, "secondrun.claims", "verdict="+verdict, "scope=billing", "record=key")
}

func TestVerdictGranted(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			time.Sleep(6 * time.Second)
			if sc := trace.SpanContextFromContext(ctx); !sc.IsSampled() {
				r.Error("the handler's context carries no span")
			}
			return canaryResult, nil
		})
		r.claimed("granted", 1, 1, codes.Unset)
		claim, run := r.last(claimSpan), r.last(runSpan)
		r.has(claim, map[string]string{"secondrun.lease.remaining": "30"})
		r.has(run, map[string]string{"secondrun.outcome": "succeeded", "secondrun.hold.ratio": "0.2", "secondrun.attempt": "1", "secondrun.fence": "1"})
		r.status(run.Status.Code, codes.Unset, "the run")
		if run.Parent.SpanID() != claim.SpanContext.SpanID() {
			r.Error("the run is not below its claim")
		}
		rec, _, err := r.st.Get(r.Context(), store.ID{Scope: "billing", Key: canaryKey + "a"})
		want := fmt.Sprintf("00-%s-%s-01", claim.SpanContext.TraceID(), claim.SpanContext.SpanID())
		if err != nil || rec.Trace != want {
			r.Errorf("the record's trace is %q, want %q (%v)", rec.Trace, want, err)
		}
		r.counted(1, "secondrun.runs", "outcome=succeeded")
		r.counted(1, "secondrun.run.duration", "outcome=succeeded")
		r.counted(1, "secondrun.hold.ratio", "hold=lease")
		r.counted(0, "secondrun.suppressed")
		r.counted(1, "secondrun.store.duration", "op=claim", "result=ok")
		r.counted(1, "secondrun.store.batch.size", "op=settle")
	})
}

func TestVerdictDone(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", succeeds)
		original := r.last(claimSpan)
		r.process("a", succeeds)
		r.claimed("done", 1, 1, codes.Unset)
		replay := r.last(claimSpan)
		r.linked(replay, "replay", original.SpanContext.TraceID().String(), original.SpanContext.SpanID().String())
		if replay.SpanContext.TraceID() == original.SpanContext.TraceID() {
			r.Error("both are in one trace: the link shows nothing")
		}
		if n := len(r.named(runSpan)); n != 1 {
			r.Errorf("%d runs", n)
		}
		r.counted(1, "secondrun.suppressed", "verdict=done", "mode=enforce")
		if !strings.Contains(r.logged(), "level=DEBUG") || !strings.Contains(r.logged(), "secondrun suppressed") {
			r.Errorf("no debug line about the duplicate: %s", r.logged())
		}
	})
}

func TestVerdictBusy(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", func(context.Context, *message) (string, error) {
			r.process("a", succeeds)
			return canaryResult, nil
		})
		r.claimed("busy", 1, 1, codes.Unset)
		at := r.named(claimSpan)
		r.linked(at[1], "busy", at[0].SpanContext.TraceID().String(), at[0].SpanContext.SpanID().String())
		r.has(at[1], map[string]string{"secondrun.lease.remaining": "30"})
		r.counted(0, "secondrun.suppressed")
	})
}

func TestVerdictFailed(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", returns(secondrun.Terminal(errCanary)))
		run, original := r.last(runSpan), r.last(claimSpan)
		r.has(run, map[string]string{"secondrun.outcome": "failed", "error.type": "*errors.errorString"})
		r.status(run.Status.Code, codes.Error, "the run")
		r.process("a", succeeds) // the same delivery
		r.claimed("failed", 1, 1, codes.Error)
		r.linked(r.last(claimSpan), "replay", original.SpanContext.TraceID().String(), original.SpanContext.SpanID().String())
		r.counted(1, "secondrun.suppressed", "verdict=failed")
		r.counted(1, "secondrun.dead.letters", "reason=failed")
		r.counted(1, "secondrun.dead.letters", "reason=failed-before")
		r.counted(1, "secondrun.runs", "outcome=failed")
	})
}

func TestVerdictExhausted(t *testing.T) {
	bubble(t, func(o *secondrun.Options) { o.MaxCrashes = 1 }, func(r *rig) {
		r.dies("a")
		r.dies("a")
		r.process("a", succeeds)
		r.claimed("exhausted", 2, 2, codes.Error)
		r.linked(r.last(claimSpan), "replay", deadTrace, deadSpan)
		r.counted(1, "secondrun.suppressed", "verdict=exhausted")
		r.counted(1, "secondrun.dead.letters", "reason=exhausted")
	})
}

func TestVerdictConflict(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", succeeds)
		r.processor(succeeds).Process(r.Context(), secondrun.Delivery{Message: &message{key: "a", version: "2"}})
		s := r.last(claimSpan)
		r.has(s, map[string]string{"secondrun.verdict": "conflict"})
		r.status(s.Status.Code, codes.Error, "the claim")
		r.counted(1, "secondrun.claims", "verdict=conflict")
		r.counted(1, "secondrun.suppressed", "verdict=conflict")
		r.counted(1, "secondrun.dead.letters", "reason=conflict")
	})
}

func TestVerdictRefused(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.process("a", func(ctx context.Context, _ *message) (string, error) {
			id := store.ID{Scope: "billing", Key: canaryKey + "a"}
			if ok, err := r.st.ForceRelease(ctx, id, "test"); !ok || err != nil {
				r.Fatal(ok, err)
			}
			return "", secondrun.OnceFunc(ctx, "charge", func(context.Context) error { return nil })
		})
		s := r.last(claimSpan)
		r.has(s, map[string]string{"secondrun.verdict": "refused", "secondrun.record": "effect"})
		r.counted(1, "secondrun.claims", "verdict=refused", "record=effect")
		r.has(r.last(runSpan), map[string]string{"secondrun.outcome": "lost"})
		r.counted(1, "secondrun.runs", "outcome=lost")
	})
}

func TestVerdictTakeover(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.dies("a")
		r.process("a", succeeds)
		s := r.last(claimSpan)
		r.has(s, map[string]string{"secondrun.verdict": "granted", "secondrun.takeover": "true", "secondrun.attempt": "2", "secondrun.fence": "2"})
		r.linked(s, "takeover", deadTrace, deadSpan)
		r.counted(1, "secondrun.takeovers", "record=key")
	})
}

func TestVerdictUnavailable(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.st.down("claim", errCanary)
		r.process("a", succeeds)
		s := r.last(claimSpan)
		r.has(s, map[string]string{"secondrun.verdict": "unavailable", "error.type": "*errors.errorString"})
		r.status(s.Status.Code, codes.Error, "the claim")
		r.counted(1, "secondrun.claims", "verdict=unavailable")
		r.counted(1, "secondrun.breaker.open", "scope=billing")
		if r.metric("secondrun.store.duration", "op=claim", "result=error") == 0 {
			r.Error("failed calls are not counted")
		}
	})
}
