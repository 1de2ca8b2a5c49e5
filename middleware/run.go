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
	class   Class // of a failure; zero for anything else
	omitted string
}

// Run runs the handler, unless the delivery's fate is decided, records the
// outcome, and says what to tell the broker. ctx is the handler's; when it
// ends, the claim is renewed for Options.Grace more. A panic of the handler is
// recorded as a transient failure and goes on; [Attempt.Decision] then has the
// decision.
func (a *Attempt) Run(ctx context.Context) Decision {
	defer a.end()
	defer func() { a.g.tel.decided(ctx, &a.decision) }()
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
	if a.ready(ctx) && a.cleared(ctx) {
		a.execute(ctx)
	}
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
		a.bar(Decision{Action: Retry, Err: context.Cause(ctx), ID: a.id})
	}
}

// ready makes sure that the claim is worth a run: nobody has cancelled it, and
// its lease is young enough. Otherwise it gives the claim back and returns
// false.
func (a *Attempt) ready(ctx context.Context) bool {
	cause := a.aborted()
	if cause == nil {
		cause = context.Cause(ctx)
	}
	if cause == nil && a.g.beats.left(a.beat) < a.req.Lease/2-a.g.leases.margin {
		cause = a.g.beats.now(a.beat) // the claim took long: confirm it first
	}
	switch {
	case cause == nil:
		return true
	case a.unprobed():
		a.desert(cause)
	default:
		a.finish(ctx, &outcome{kind: store.Release, err: cause})
	}
	a.decision.Ran = false
	return false
}

// desert ends the renewals and leaves the claim to expire, so that whoever takes
// over knows that there is something to ask about. See [Attempt.unprobed].
func (a *Attempt) desert(cause error) {
	a.returned()
	a.g.beats.stop(a.beat)
	a.dropTwins()
	a.decide1(Decision{
		Action: Retry, After: around(a.g.opt.Lease), Verdict: store.Granted,
		Err: cause, ID: a.id, HoldLost: a.lostHold(),
	})
}

// cleared asks the outside world about the run that was displaced, if there was
// one, and returns whether the handler must run. It decides in a defer, as
// execute does.
func (a *Attempt) cleared(ctx context.Context) (run bool) {
	if !a.unprobed() {
		return true
	}
	pctx, cancel := a.begin(ctx)
	defer cancel(nil)
	defer a.whenDone(ctx)()
	var o *outcome
	err := errPanic
	defer func() {
		switch {
		case run:
			return
		case o == nil:
			a.desert(err)
		default:
			a.asked = true
			a.finish(ctx, o)
			if a.decision.Action == Ack {
				a.decision.Result = o.payload
			}
		}
		a.decision.Ran, a.decision.Failed = false, false
	}()
	var answer Probed
	if answer, err = a.g.opt.Takeover.Probe(pctx, a.id.Key); err != nil {
		return false
	}
	switch answer.Answer {
	case ProbeNotDone:
		a.asked = true
		return true
	case ProbeDone:
		o = &outcome{kind: store.Succeed}
		o.payload, o.omitted = a.g.encode(answer.Result)
	default:
		o = &outcome{
			kind: store.Park, err: &FailedError{Failure: store.FailedParked},
			payload: failureEnvelope(0, "outcome unknown"),
		}
	}
	return false
}

// execute runs the handler and settles in a defer, so that a panic or a
// runtime.Goexit cannot leave a claim behind.
func (a *Attempt) execute(ctx context.Context) {
	g := a.g
	ctx = a.traced(ctx)
	hctx, cancel := a.begin(ctx)
	defer cancel(nil)
	defer a.whenDone(ctx)()
	a.run = run{g: g, id: a.id, token: a.req.Token, outer: runFrom(ctx), attempt: a, shared: &a.shared}
	if t := a.elder(); t != nil {
		a.run.id, a.run.token = t.id, t.req.Token
	}
	a.held = a.holding()
	rctx := store.WithHeld(context.WithValue(hctx, runKey{}, &a.run), &a.held)

	start := time.Now()
	err := errPanic
	defer func() {
		a.returned()
		a.tellReturned()
		took := time.Since(start)
		o := a.judge(hctx, err, a.result)
		g.emit(rctx, Event{Kind: EventRun, ID: a.id, Duration: took, Class: o.class, Err: err})
		a.finish(ctx, &o)
		a.ran(ctx, took, err)
	}()
	a.result, err = a.p.handle(rctx, a.d.Message)
}

// errPanic stands for a panic or a runtime.Goexit, which goes on by itself.
var (
	errPanicked = errors.New("handler panicked")
	errPanic    = Transient(errPanicked)
)

// holding is the claim as a store package sees it.
func (a *Attempt) holding() store.Held {
	return store.Held{
		Lease: a.lease, Fence: a.claim.Fence, Retention: a.g.opt.Retention,
		Encode: func(result any) []byte {
			payload, omitted := a.g.encode(result)
			if omitted != "" {
				a.g.emit(context.Background(), Event{Kind: EventResultOmitted, ID: a.id, Reason: omitted})
			}
			a.shared.mu.Lock()
			a.shared.committed = payload
			a.shared.mu.Unlock()
			return payload
		},
		Completing: func() {
			a.shared.completing.Store(true)
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
func (a *Attempt) judge(hctx context.Context, err error, result any) outcome {
	o := outcome{err: err}
	cause := context.Cause(hctx)
	if mark := a.shared.neutral(); mark != nil {
		o.kind, o.err, o.after = store.Release, mark, waitOf(mark)
		return o
	}
	switch {
	case err == nil && a.shared.completing.Load():
		o.err = ErrNotCommitted
		a.transient(&o, 0)
		return o
	case err == nil:
		o.kind = store.Succeed
		o.payload, o.omitted = a.g.encode(result)
		return o
	case cancelled(err, cause) && errors.Is(cause, ErrMaxRuntime):
		o.err = ErrMaxRuntime
		a.transient(&o, 0)
		return o
	case cancelled(err, cause):
		o.kind = store.Release
		return o
	}
	switch class, after := a.g.classify(err); class {
	case classNeutral:
		o.kind, o.after = store.Release, waitOf(err)
	case ClassTransient:
		a.transient(&o, after)
	default:
		o.kind, o.class, o.payload = store.Fail, ClassTerminal, a.g.failure(ClassTerminal, err)
	}
	return o
}

// transient settles a failure that may pass, as terminal when it uses up the
// budget: record and dead letter must agree.
func (a *Attempt) transient(o *outcome, after time.Duration) {
	o.class, o.payload = ClassTransient, a.g.failure(ClassTransient, o.err)
	failures := a.claim.Failures
	for _, t := range a.twins {
		failures = max(failures, t.claim.Failures)
	}
	failures++
	if most := limit(a.g.opt.MaxFailures); most > 0 && failures >= most {
		o.kind = store.Fail
		return
	}
	o.kind = store.Retry
	if o.after = after; after <= 0 {
		o.after = a.g.opt.Backoff.after(failures)
	}
}

func (g *Guard) classify(err error) (Class, time.Duration) {
	class, after := g.classifyKnown(err)
	return or(class, g.opt.Unclassified), after
}

// classifyKnown is zero where nothing is known.
func (g *Guard) classifyKnown(err error) (Class, time.Duration) {
	class, after := classify(err)
	if g.opt.Classify != nil {
		if c := g.opt.Classify(err); c != 0 {
			class = c
		}
	}
	return class, after
}

// failure describes an error for the record.
func (g *Guard) failure(c Class, err error) []byte {
	return failureEnvelope(c, g.redact(err))
}
