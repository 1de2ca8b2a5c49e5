package secondrun

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/secondrun/secondrun/store"
)

// runShared is what the effects of one run have found out.
type runShared struct {
	completing atomic.Bool // a transaction has begun to settle the claim

	mu        sync.Mutex
	mark      error        // an effect was busy or lost: the run is released whatever it returns
	pending   []effectDone // effects that happened and are not recorded yet
	committed []byte       // the payload that the transaction settles with
}

type effectDone struct {
	s    store.Settlement
	beat *beat
}

func (s *runShared) neutral() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

func (s *runShared) setNeutral(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark == nil {
		s.mark = err
	}
}

// Once runs fn once per key of the handler that ctx belongs to, and per effect
// name: a retry of the handler after fn succeeded gets fn's recorded result
// without a second call. An error of fn is handed on untouched and leaves the
// effect to the next attempt. Names are part of the records: they must not
// change between versions of the program.
//
// Once returns [ErrNoClaim] outside a handler, [ErrReentrant] inside the same
// effect, [ErrBusy] or [ErrLeaseLost] when another owner is at work (the
// handler should return; its claim is given back whatever it returns),
// [ErrParked] as the effect's [Takeover] policy says, the cause of ctx when that
// has ended, and [ErrResultUnavailable] when the effect succeeded before and its
// result was not kept. With an error the result is zero.
func Once[R any](ctx context.Context, effect string, fn func(context.Context) (R, error)) (R, error) {
	var out R
	err := once(ctx, effect, &out, func(ctx context.Context) (any, error) {
		r, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		out = r
		return &wrapped{r}, nil
	})
	if err != nil {
		var zero R // a decoder may have left half a result
		return zero, err
	}
	return out, nil
}

// OnceFunc is [Once] for an effect without a result.
func OnceFunc(ctx context.Context, effect string, fn func(context.Context) error) error {
	return once(ctx, effect, nil, func(ctx context.Context) (any, error) { return nil, fn(ctx) })
}

// EffectKey returns the idempotency key to give to an outside service for the
// named effect: the same for every attempt, takeover, process and version of
// the program, and different for every other effect. It is 64 hexadecimal digits, a SHA-256 over
// scope, key and name. It returns [ErrNoClaim] outside a handler.
func EffectKey(ctx context.Context, effect string) (string, error) {
	r := runFrom(ctx)
	if r == nil || r.id.Key == "" {
		return "", ErrNoClaim
	}
	h := sha256.New()
	scope, key, _ := r.id.Encode()
	for _, part := range []string{scope, key, effect} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// once is Once without its types: into is where a replayed result goes, nil
// for none.
func once(ctx context.Context, effect string, into any, fn func(context.Context) (any, error)) error {
	r := runFrom(ctx)
	switch {
	case r == nil:
		return ErrNoClaim
	case effect == "" || len(effect) > store.MaxKey:
		return fmt.Errorf("secondrun: an effect name has 1 to %d bytes, this one %d", store.MaxKey, len(effect))
	case r.insideEffect(effect):
		return ErrReentrant
	case ctx.Err() != nil: // above all with a lost lease, nothing new begins
		return context.Cause(ctx)
	}
	inner := *r
	inner.effect, inner.outer = effect, r
	ctx = context.WithValue(ctx, runKey{}, &inner)
	if r.token.IsZero() { // Observe, or fail-open: nothing guards this run
		_, err := fn(ctx)
		return err
	}
	return (&effectClaim{run: r, name: effect}).do(ctx, into, fn)
}

func (r *run) insideEffect(effect string) bool {
	for o := r; o != nil; o = o.outer {
		if o.effect == effect && o.id == r.id {
			return true
		}
	}
	return false
}

// effectClaim is one call of Once.
type effectClaim struct {
	run  *run
	name string
	req  store.ClaimRequest
	beat *beat
	span trace.Span // of the claim; nil unless traced
}

func (e *effectClaim) do(ctx context.Context, into any, fn func(context.Context) (any, error)) error {
	g, policy := e.run.g, e.run.g.opt.Effects[e.name]
	e.req = store.ClaimRequest{
		ID: e.run.id, Token: store.NewToken(), Parent: e.run.token,
		Lease: g.opt.Lease, Retention: g.opt.Retention,
		ParkOnTakeover: policy.Park, Holder: g.opt.Holder,
	}
	e.req.ID.Effect = e.name
	e.span = g.tel.startEffect(ctx)
	e.req.Trace = formatTrace(e.span)
	got := g.claimRetrying(context.WithoutCancel(withSpan(ctx, e.span)), []store.ClaimRequest{e.req}, policy.Probe != nil)
	c, sent, err := got.item(0)
	g.tel.endClaim(e.span, e.req.ID, &c, err)
	if err != nil {
		g.tel.unanswered(ctx, true)
		return e.give(&storeError{err})
	}
	g.verdict(ctx, e.req.ID, &c)
	switch c.Verdict {
	case store.Granted:
	case store.Done:
		g.emit(ctx, Event{Kind: EventEffectReplayed, ID: e.req.ID})
		return decodeResult(g.opt.Codec, c.Payload, into)
	case store.Failed:
		return &FailedError{Failure: c.Failure, Text: failureText(c.Payload)}
	case store.Busy:
		return e.give(&BusyError{After: around(c.Remaining), Holder: c.Holder})
	default: // the handler's own claim is gone
		e.run.attempt.abort(ErrLeaseLost)
		return e.give(ErrLeaseLost)
	}
	e.beat = g.beats.add(g.leases, &store.Lease{ID: e.req.ID, Token: e.req.Token},
		sent.Add(c.Remaining-g.leases.margin), e.run.attempt.leaseLost)
	g.beats.limit(e.beat, e.run.attempt.sent.Add(g.opt.MaxRuntime), nil)
	probed := c.Takeover && policy.Probe != nil
	if cause := e.late(ctx); cause != nil {
		if probed { // the next owner asks
			g.beats.stop(e.beat)
		} else {
			e.settle(store.Release, nil)
		}
		return cause
	}
	if probed {
		return e.probe(ctx, policy, into, fn)
	}
	return e.perform(ctx, fn)
}

// late says why nothing must begin although the claim was granted: the handler
// was cancelled meanwhile, or the process stood still for so long that its
// leases may be over, and nobody has noticed yet.
func (e *effectClaim) late(ctx context.Context) error {
	a, beats := e.run.attempt, &e.run.g.beats
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case beats.left(e.beat) <= 0, !a.shared.completing.Load() && beats.left(a.beat) <= 0:
		a.abort(ErrLeaseLost)
		return e.give(ErrLeaseLost)
	}
	return nil
}

// give marks the run: its claim is given back, whatever the handler returns.
func (e *effectClaim) give(err error) error {
	e.run.shared.setNeutral(err)
	return err
}

// probe asks the outside world about the effect of an earlier run. As long as
// there is no answer the effect is not settled, so that the next owner of the
// handler's claim takes it over and asks again.
func (e *effectClaim) probe(ctx context.Context, policy Takeover, into any, fn func(context.Context) (any, error)) error {
	asked := false
	defer func() {
		if !asked {
			e.run.g.beats.stop(e.beat)
		}
	}()
	answer, err := policy.Probe(ctx, e.run.id.Key)
	if err != nil {
		return e.give(err)
	}
	asked = true
	switch answer.Answer {
	case ProbeNotDone:
		return e.perform(ctx, fn)
	case ProbeDone:
		payload, omitted := e.run.g.encode(answer.Result)
		if err := e.succeed(ctx, payload, omitted); err != nil {
			return err
		}
		return decodeResult(e.run.g.opt.Codec, payload, into)
	}
	e.settle(store.Park, failureEnvelope(0, "outcome unknown"))
	return &FailedError{Failure: store.FailedParked}
}

// perform runs fn and settles in a defer, so that a panic leaves the effect to
// the next attempt.
func (e *effectClaim) perform(ctx context.Context, fn func(context.Context) (any, error)) (err error) {
	returned := false
	ctx, span := e.run.g.tel.startRun(ctx, e.span, e.req.ID, nil)
	defer func() { endEffect(span, err, returned) }()
	defer func() {
		if !returned {
			e.settle(store.Release, nil)
		}
	}()
	result, err := fn(ctx)
	returned = true
	if err != nil {
		e.settle(store.Release, nil)
		return err
	}
	payload, omitted := e.run.g.encode(result)
	return e.succeed(ctx, payload, omitted)
}

// succeed records the effect. If the store does not answer, the effect has
// happened all the same: Once returns its result, and the effect is settled
// again before the handler's claim.
func (e *effectClaim) succeed(ctx context.Context, payload []byte, omitted string) error {
	g := e.run.g
	s := store.Settlement{ID: e.req.ID, Token: e.req.Token, Kind: store.Succeed, Payload: payload, Retention: g.opt.Retention}
	st, err := g.settle(context.WithoutCancel(ctx), s, time.Now().Add(g.opt.ClaimTimeout))
	if err != nil {
		e.run.shared.mu.Lock()
		e.run.shared.pending = append(e.run.shared.pending, effectDone{s: s, beat: e.beat})
		e.run.shared.mu.Unlock()
		g.emit(ctx, Event{Kind: EventUnrecorded, ID: e.req.ID, Kept: store.Succeed, Err: err})
		return nil
	}
	g.beats.stop(e.beat)
	if omitted != "" {
		g.emit(ctx, Event{Kind: EventResultOmitted, ID: e.req.ID, Reason: omitted})
	}
	if st.Code == store.Lost {
		e.run.attempt.abort(ErrLeaseLost)
		return e.give(ErrLeaseLost)
	}
	g.emit(ctx, Event{Kind: EventEffectSucceeded, ID: e.req.ID})
	return nil
}

// settle ends the effect without a success: best effort, since the next owner
// of the handler's claim takes an unsettled effect over anyway.
func (e *effectClaim) settle(kind store.Kind, payload []byte) {
	g := e.run.g
	s := store.Settlement{ID: e.req.ID, Token: e.req.Token, Kind: kind, Payload: payload, Retention: g.opt.Retention}
	_, _ = g.settle(context.Background(), s, time.Now().Add(g.opt.ClaimTimeout))
	g.beats.stop(e.beat)
}

// settleEffects records the effects that have happened and are not recorded
// yet. No failure of the handler may be settled before: its retry would repeat
// them. Their renewals end here.
func (a *Attempt) settleEffects(ctx context.Context, deadline time.Time) error {
	a.shared.mu.Lock()
	pending := a.shared.pending
	a.shared.pending = nil
	a.shared.mu.Unlock()
	var errs []error
	for _, p := range pending {
		st, err := a.g.settle(ctx, p.s, deadline)
		a.g.beats.stop(p.beat)
		if err == nil && st.Code != store.Lost {
			a.g.emit(ctx, Event{Kind: EventEffectSucceeded, ID: p.s.ID})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
