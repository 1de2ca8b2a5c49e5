package secondrun

import (
	"context"
	"errors"
	"time"

	"github.com/secondrun/secondrun/store"
)

// run is what a handler's context carries: its claim, and what the effects
// inside it have found out.
type run struct {
	g       *Guard
	id      store.ID
	token   store.Token // zero when the handler runs without a claim
	outer   *run        // the run around this one, if any
	effect  string      // the effect whose function runs, empty in the handler itself
	shared  *runShared
	attempt *Attempt
}

type runKey struct{}

func runFrom(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// reentrant reports whether ctx belongs to a handler of id.
func reentrant(ctx context.Context, id store.ID) bool {
	for r := runFrom(ctx); r != nil; r = r.outer {
		if r.id == id {
			return true
		}
	}
	return false
}

// outcome is what a handler's return means.
type outcome struct {
	kind    store.Kind
	payload []byte
	after   time.Duration
	err     error
	omitted string
}

// Run runs the handler, unless the delivery's fate is decided, records the
// outcome, and says what to tell the broker. ctx is the handler's; when it
// ends, the claim is renewed for Options.Grace more. A panic of the handler is
// recorded as a transient failure and goes on; [Attempt.Decision] then has the
// decision.
func (a *Attempt) Run(ctx context.Context) Decision {
	defer a.end()
	if a.leader != nil {
		a.follow(ctx)
	}
	if a.decided && !a.runsAnyway() {
		return a.decision
	}
	if a.beat == nil {
		a.runUnclaimed(ctx)
		return a.decision
	}
	defer a.g.leave(a)
	if done := a.prepare(ctx); done {
		return a.decision
	}
	a.execute(ctx)
	return a.decision
}

// Decision returns what Run returned, or would have returned if the handler
// had not panicked.
func (a *Attempt) Decision() Decision { return a.decision }

// follow waits for the attempt of the same key in the same batch, and claims
// after it.
func (a *Attempt) follow(ctx context.Context) {
	select {
	case <-a.leader.done:
		a.g.claimAll(ctx, []*Attempt{a})
	case <-ctx.Done():
		a.decide1(Decision{Action: Retry, Err: context.Cause(ctx), ID: a.id})
	}
}

// prepare makes sure that the claim is worth a run: its lease is young enough,
// and an earlier run that ended without an outcome has been probed. It returns
// true when the handler must not run.
func (a *Attempt) prepare(ctx context.Context) (done bool) {
	cause := a.aborted()
	if cause == nil {
		cause = context.Cause(ctx)
	}
	if cause == nil && a.g.beats.left(a.beat) < a.g.opt.Lease/2-a.g.leases.margin {
		cause = a.g.beats.now(a.beat) // the claim took long: confirm it first
	}
	if cause != nil {
		a.finish(ctx, &outcome{kind: store.Release, err: cause})
		a.decision.Ran = false
		return true
	}
	if a.claim.Takeover && a.g.opt.Takeover.Probe != nil {
		return a.probe(ctx)
	}
	return false
}

// probe asks the outside world about the run that was displaced.
func (a *Attempt) probe(ctx context.Context) (done bool) {
	pctx, cancel := a.begin(ctx)
	defer cancel(nil)
	answer, err := a.g.opt.Takeover.Probe(pctx, a.id.Key)
	switch {
	case err != nil:
		o := a.judge(pctx, &runShared{}, err, nil)
		a.finish(ctx, o)
	case answer.Answer == ProbeNotDone:
		return false
	case answer.Answer == ProbeDone:
		o := &outcome{kind: store.Succeed}
		o.payload, o.omitted = a.g.encode(answer.Result)
		a.finish(ctx, o)
		a.decision.Result = o.payload
	default:
		f := &FailedError{Failure: store.FailedParked}
		a.finish(ctx, &outcome{kind: store.Park, err: f, payload: failureEnvelope(0, "outcome unknown")})
	}
	a.decision.Ran = false
	return true
}

// execute runs the handler and settles in a defer, so that a panic or a
// runtime.Goexit cannot leave a claim behind.
func (a *Attempt) execute(ctx context.Context) {
	g := a.g
	hctx, cancel := a.begin(ctx)
	defer cancel(nil)
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { g.beats.limit(a.beat, time.Now().Add(g.opt.Grace), nil) })
		defer stop()
	}
	a.shared = &runShared{}
	r := &run{g: g, id: a.id, token: a.req.Token, outer: runFrom(ctx), attempt: a, shared: a.shared}
	rctx := context.WithValue(hctx, runKey{}, r)
	rctx = store.WithHeld(rctx, a.held(r))

	start := time.Now()
	returned := false
	var result any
	var err error
	defer func() {
		if !returned {
			err = errPanic
		}
		g.emit(rctx, Event{Kind: EventRun, ID: a.id, Duration: time.Since(start), Err: err})
		a.result = result
		a.finish(ctx, a.judge(hctx, a.shared, err, result))
	}()
	result, err = a.p.handle(rctx, a.d.Message)
	returned = true
}

// errPanic stands for a panic or a runtime.Goexit, which goes on by itself.
var (
	errPanicked = errors.New("handler panicked")
	errPanic    = Transient(errPanicked)
)

// held is the claim as a store package sees it.
func (a *Attempt) held(r *run) *store.Held {
	return &store.Held{
		Lease: store.Lease{ID: a.id, Token: a.req.Token}, Fence: a.claim.Fence, Retention: a.g.opt.Retention,
		Encode: func(result any) []byte {
			payload, omitted := a.g.encode(result)
			if omitted != "" {
				a.g.emit(context.Background(), Event{Kind: EventResultOmitted, ID: a.id, Reason: omitted})
			}
			return payload
		},
		Completing: func() {
			r.shared.completing.Store(true)
			a.g.beats.stop(a.beat)
		},
	}
}

// encode makes the payload of a success.
func (g *Guard) encode(result any) (payload []byte, omitted string) {
	switch {
	case result == nil:
		return bareEnvelope, ""
	case g.opt.DropResults:
		return omittedEnvelope(omittedDropped), ""
	}
	if w, ok := result.(*wrapped); ok {
		result = w.v
	}
	return resultEnvelope(g.opt.Codec, g.opt.MaxResult, result)
}

// wrapped marks a result that may be a nil of its own type.
type wrapped struct{ v any }

// judge decides what a handler's return means. hctx is the handler's context.
func (a *Attempt) judge(hctx context.Context, shared *runShared, err error, result any) *outcome {
	o := &outcome{err: err}
	cause := context.Cause(hctx)
	completing := shared.completing.Load()
	switch {
	case shared.neutral() != nil:
		busy := shared.neutral()
		o.kind, o.err, o.after = store.Release, busy, waitOf(busy)
	case err == nil && completing:
		o.err = ErrNotCommitted
		a.transient(o, 0)
	case err == nil:
		o.kind = store.Succeed
		o.payload, o.omitted = a.g.encode(result)
	case cancelled(err, cause) && errors.Is(cause, ErrMaxRuntime):
		o.err = ErrMaxRuntime
		a.transient(o, 0)
	case cancelled(err, cause):
		o.kind = store.Release
	default:
		class, after := a.g.classify(err)
		if class == ClassTransient {
			a.transient(o, after)
			break
		}
		o.kind, o.payload = store.Fail, a.g.failure(ClassTerminal, err)
	}
	return o
}

// transient settles a failure that may pass, as terminal when it uses up the
// budget: record and dead letter must agree.
func (a *Attempt) transient(o *outcome, after time.Duration) {
	o.payload = a.g.failure(ClassTransient, o.err)
	failures := a.claim.Failures + 1
	if a.g.opt.MaxFailures > 0 && failures >= a.g.opt.MaxFailures {
		o.kind = store.Fail
		return
	}
	o.kind = store.Retry
	if o.after = after; after <= 0 {
		o.after = a.g.opt.Backoff.after(failures)
	}
}

func (g *Guard) classify(err error) (Class, time.Duration) {
	class, after := classify(err)
	if g.opt.Classify != nil {
		if c := g.opt.Classify(err); c != 0 {
			class = c
		}
	}
	return or(class, g.opt.Unclassified), after
}

// failure describes an error for the record.
func (g *Guard) failure(c Class, err error) []byte {
	return failureEnvelope(c, g.redact(err))
}
