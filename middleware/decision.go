package secondrun

import (
	"context"
	"errors"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// Action is what an adapter must tell its broker about a delivery.
type Action uint8

// Actions.
const (
	Ack        Action = iota + 1 // done with: an outcome is recorded
	Retry                        // deliver again, not before After has passed; not a failure to count
	DeadLetter                   // hand over to the dead-letter path, then acknowledge
	Leave                        // neither: the outcome is not known; let the broker's hold run out
)

// String returns the action in lower case.
func (a Action) String() string {
	switch a {
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case DeadLetter:
		return "dead-letter"
	case Leave:
		return "leave"
	}
	return "none"
}

// Decision is what became of one delivery. One table serves every adapter:
//
//	done                                            Ack
//	busy, lost, released, store unavailable         Retry
//	transient failure                               Retry
//	failed, exhausted, conflict, key error          DeadLetter
//	nothing to handle (keyfn.ErrSkip)               Ack
//	an outcome that could not be recorded           Leave
type Decision struct {
	Action Action
	After  time.Duration // Retry: the wait, jitter included

	// Ran reports whether the handler ran for this delivery.
	Ran bool
	// Failed reports whether the handler ran and its failure was counted.
	// Adapters of brokers that count failures themselves must not count a
	// Retry without it.
	Failed bool
	// Verdict is the store's; zero when the store was not asked or did not
	// answer.
	Verdict store.Verdict
	// Err says why the action is not Ack, or, with Ack, that the recorded
	// result is not available. A handler's own error is handed on untouched.
	Err error

	ID     store.ID // of the record; zero when there is no key
	Result []byte   // the payload of a replayed success; shared, so not to be changed

	// HoldLost says that the broker's hold was lost while the handler ran: do
	// not use this delivery's handle.
	HoldLost bool
}

// decide turns a verdict that lets nothing run into a decision.
func (a *Attempt) decide(c *store.Claim) Decision {
	d := Decision{Verdict: c.Verdict, ID: a.id}
	switch c.Verdict {
	case store.Done:
		d.Action, d.Result = Ack, c.Payload
	case store.Busy:
		after := around(max(c.Remaining, 0))
		d.Action, d.After, d.Err = Retry, after, &BusyError{After: after, Holder: c.Holder}
	case store.Failed, store.Exhausted:
		d.Action, d.Err = DeadLetter, &FailedError{Failure: c.Failure, Text: failureText(c.Payload)}
	case store.Conflict:
		d.Action, d.Err = DeadLetter, ErrConflict
	default: // Refused, or a verdict from the future: nothing is known to be done
		after := around(a.g.opt.Backoff.Base)
		d.Action, d.After, d.Err = Retry, after, &BusyError{After: after}
	}
	return d
}

// decideKey is the decision about a message without a key. What the key function
// knows to pass (the body lies elsewhere, and could not be fetched) is retried, and
// a message in which there is nothing to handle is done with.
func (a *Attempt) decideKey(ctx context.Context, err error) Decision {
	if errors.Is(err, keyfn.ErrSkip) {
		a.g.emit(ctx, Event{Kind: EventSkipped, Err: err})
		return Decision{Action: Ack}
	}
	a.g.emit(ctx, Event{Kind: EventKeyError, Err: err})
	d := Decision{Action: DeadLetter, Err: &KeyError{err}}
	class, after := a.g.classifyKnown(err)
	switch {
	case class == ClassTransient, class == classNeutral:
		d.Action, d.After = Retry, or(after, a.g.opt.Backoff.after(1))
	case errors.Is(err, keyfn.ErrNewer): // a rollout is under way: others may know the message
		d.Action, d.After = Retry, around(time.Minute)
	}
	return d
}

// decideSettled turns the answer to a settlement into a decision.
func (a *Attempt) decideSettled(o *outcome, s store.Status) Decision {
	d := Decision{ID: a.id, Ran: true, Verdict: store.Granted, Err: o.err}
	switch s.Code {
	case store.OK, store.Absent:
		return a.decideKind(d, o, o.kind)
	case store.Already:
		return a.decideKind(d, o, settledAs(s))
	default: // displaced: the record answers the next delivery
		d.Action, d.After, d.Err = Retry, around(time.Second), ErrLeaseLost
		return d
	}
}

func (a *Attempt) decideKind(d Decision, o *outcome, k store.Kind) Decision {
	switch k {
	case store.Succeed:
		d.Action, d.Err = Ack, nil
	case store.Release:
		d.Action, d.After = Retry, o.after
	case store.Retry:
		d.Action, d.After, d.Failed = Retry, o.after, true
	default:
		d.Action, d.Failed = DeadLetter, true
	}
	return d
}

// settledAs is the kind with which a record was settled before.
func settledAs(s store.Status) store.Kind {
	switch {
	case s.State == store.StateSucceeded:
		return store.Succeed
	case s.State == store.StateReleased:
		return store.Release
	case s.Failure == store.FailedTransient:
		return store.Retry
	}
	return store.Fail
}
