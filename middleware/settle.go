package secondrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
)

// finish records the outcome and decides. The claim is renewed until the
// record has been answered. ctx lends its values only: an outcome is recorded
// although the consumer is shutting down.
func (a *Attempt) finish(ctx context.Context, o *outcome) {
	ctx = context.WithoutCancel(ctx)
	a.returned()
	defer a.g.beats.stop(a.beat)
	defer a.dropTwins()
	a.decide1(a.record(ctx, o))
	a.decision.HoldLost = a.lostHold()
	if a.decision.Action == Ack && o.err != nil && o.err != ErrNotCommitted { //nolint:errorlint // set by judge
		a.shared.mu.Lock() // a transaction had settled it: its result is the one that counts
		a.result, a.decision.Result = nil, a.shared.committed
		a.shared.mu.Unlock()
	}
}

func (a *Attempt) record(ctx context.Context, o *outcome) Decision {
	deadline := time.Now().Add(a.g.opt.SettleTimeout)
	switch {
	case o.kind == store.Succeed: // needs no effects any more: one try will do
		_ = a.settleEffects(ctx, time.Now())
	default:
		if err := a.settleEffects(ctx, deadline); err != nil {
			return a.unrecorded(ctx, o, err)
		}
	}
	s := store.Settlement{
		ID: a.id, Token: a.req.Token, Kind: o.kind, Payload: o.payload,
		NotBefore: o.after, Retention: a.g.opt.keepFor(o.after),
	}
	if o.kind == store.Succeed {
		s.Retention = a.g.opt.Retention
	}
	if completing := a.shared.completing.Load(); !completing {
		if d, decided := a.recordTwins(ctx, o, s, deadline); decided {
			return d
		}
	}
	st, err := a.g.settle(ctx, s, deadline)
	if err != nil {
		return a.unrecorded(ctx, o, err)
	}
	a.g.emit(ctx, Event{Kind: EventSettled, ID: a.id, Kept: o.kind, Code: st.Code, Late: st.Code == store.OK && a.late()})
	if st.Code == store.Absent && o.kind == store.Succeed {
		a.g.emit(ctx, Event{Kind: EventRecreated, ID: a.id})
	}
	if o.omitted != "" {
		a.g.emit(ctx, Event{Kind: EventResultOmitted, ID: a.id, Reason: o.omitted})
	}
	d := a.decideSettled(o, st)
	if a.shared.completing.Load() && len(a.twins) > 0 {
		d = a.followTransaction(ctx, o, s, d, deadline)
	}
	return d
}

func (a *Attempt) unrecorded(ctx context.Context, o *outcome, err error) Decision {
	d := Decision{Action: Leave, ID: a.id, Ran: true, Verdict: store.Granted}
	d.Err = fmt.Errorf("%w: %w", ErrUnrecorded, err)
	if o.kind == store.Release { // nothing is known to have happened
		d.Action, d.After, d.Err = Retry, around(a.g.opt.Lease), o.err
		return d
	}
	a.g.emit(ctx, Event{Kind: EventUnrecorded, ID: a.id, Kept: o.kind, Err: err})
	return d
}

// settle repeats a settlement with its token until it is answered, its error
// is permanent, or the deadline has passed.
func (g *Guard) settle(ctx context.Context, s store.Settlement, deadline time.Time) (store.Status, error) {
	solo := false
	for n := 1; ; n++ {
		answers, errs := g.settles.do(ctx, []store.Settlement{s}, solo)
		err := errAt(errs, 0)
		if err == nil {
			err = answers[0].Err
		}
		if err == nil {
			return answers[0], nil
		}
		if !repeatable(ctx, err) || !pause(ctx, n, deadline) {
			return store.Status{}, err
		}
		solo = true
	}
}

// redact describes an error without the secrets that its text may carry.
func (g *Guard) redact(err error) string {
	if g.opt.RedactError != nil {
		return g.redactSafely(err)
	}
	for _, own := range []error{errPanicked, ErrMaxRuntime, ErrNotCommitted} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	for {
		m, ok := err.(*marked) //nolint:errorlint // looks under the marks only
		if !ok {
			return fmt.Sprintf("%T", err)
		}
		err = m.err
	}
}

func (g *Guard) redactSafely(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "RedactError panicked"
		}
	}()
	return g.opt.RedactError(err)
}

// waitOf is how long a busy effect asks to wait.
func waitOf(err error) time.Duration {
	var busy *BusyError
	if errors.As(err, &busy) {
		return busy.After
	}
	return 0
}
