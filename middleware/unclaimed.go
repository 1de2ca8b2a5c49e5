package secondrun

import (
	"context"
	"errors"
	"time"

	"github.com/secondrun/secondrun/store"
)

// runsAnyway reports whether the delivery runs although it holds no claim.
func (a *Attempt) runsAnyway() bool {
	d := &a.decision
	switch {
	case a.barred, d.Ran:
		return false
	case errors.Is(d.Err, ErrKey):
		return d.Action == DeadLetter && (a.g.opt.RunWithoutKey || a.g.opt.Mode == Observe)
	case a.g.opt.Mode == Observe:
		return true
	}
	// A record that cannot be understood is no outage.
	return a.g.opt.FailOpen && errors.Is(d.Err, ErrStore) &&
		!errors.Is(d.Err, store.ErrCorrupt) && !errors.Is(d.Err, store.ErrIncompatible)
}

// runUnclaimed runs the handler without a claim and decides from its error
// alone.
func (a *Attempt) runUnclaimed(ctx context.Context) {
	if !a.g.enter(ctx, a) {
		a.bar(Decision{Action: Retry, Err: ErrShutdown, ID: a.id})
		return
	}
	defer a.g.leave(a)
	switch {
	case errors.Is(a.decision.Err, ErrStore):
		a.g.emit(ctx, Event{Kind: EventFailOpen, ID: a.id, Err: a.decision.Err})
	case a.g.opt.Mode == Observe:
		a.g.emit(ctx, Event{
			Kind: EventWouldSuppress, ID: a.id, Verdict: a.decision.Verdict, Failure: a.claim.Failure, Err: a.decision.Err,
		})
	}
	ctx = a.traced(ctx)
	hctx, cancel := a.begin(ctx)
	defer cancel(nil)
	a.run = run{g: a.g, id: a.id, outer: runFrom(ctx), attempt: a, shared: &a.shared}
	// A claim of an outer handler is not this one's to settle.
	rctx := store.WithHeld(context.WithValue(hctx, runKey{}, &a.run), nil)

	start := time.Now()
	err := errPanic
	defer func() {
		a.tellReturned()
		took := time.Since(start)
		d, class := a.decideUnclaimed(err, context.Cause(hctx))
		a.g.emit(rctx, Event{Kind: EventRun, ID: a.id, Duration: took, Class: class, Err: err})
		a.decide1(d)
		a.ran(ctx, took, err)
	}()
	a.result, err = a.p.handle(rctx, a.d.Message)
}

// decideUnclaimed decides from what the handler returned. The class is that of
// a failure, zero otherwise.
func (a *Attempt) decideUnclaimed(err, cause error) (d Decision, failed Class) {
	d = Decision{Ran: true, ID: a.id, Verdict: a.decision.Verdict, Err: err, HoldLost: a.lostHold()}
	if err == nil {
		d.Action = Ack
		return d, 0
	}
	switch class, after := a.g.classify(err); {
	case cancelled(err, cause) && !errors.Is(cause, ErrMaxRuntime):
		d.Action = Retry
	case class == classNeutral:
		d.Action, d.After = Retry, waitOf(err)
	case class == ClassTransient:
		d.Action, d.Failed, d.After = Retry, true, or(after, a.g.opt.Backoff.after(1))
		failed = ClassTransient
	default:
		d.Action, d.Failed = DeadLetter, true
		failed = ClassTerminal
	}
	return d, failed
}
