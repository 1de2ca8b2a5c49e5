package secondrun

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// Delivery is one message as an adapter received it.
type Delivery struct {
	Message keyfn.Message
	// ID is the broker's identity of this message. It is never part of a key.
	// It tells the redelivery of a failed message, which is dead-lettered, from
	// a replay, which runs. Empty where the broker keeps the identity over
	// replays.
	ID string
}

// Attempt is one delivery on its way through the guard. An adapter gets it
// from [Processor.Claim] and ends it by exactly one call of Run or Release.
type Attempt struct {
	g     *Guard
	p     *Processor
	d     Delivery
	id    store.ID
	req   store.ClaimRequest
	claim store.Claim
	sent  time.Time // before the claim was sent

	leader *Attempt      // the attempt of the same key earlier in the batch
	done   chan struct{} // closed when the attempt has ended; nil while nobody may wait for it

	beat     *beat
	shared   *runShared // what effects found out; nil before the handler runs
	result   any        // what the handler of this very run returned
	decided  bool
	decision Decision

	mu        sync.Mutex
	ended     bool
	holdLost  bool
	cause     error // why the run must end, nil while it may go on
	cancelRun context.CancelCauseFunc
}

// Claim derives the key of every delivery and claims all of them in one call
// of the store. It returns one attempt for each delivery, in order. An attempt
// whose delivery must not run is decided already.
//
// The same key twice in one call runs once: the later attempt waits, in Run,
// for the earlier one to end and is then answered from its outcome. Run the
// attempts concurrently or in order.
func (p *Processor) Claim(ctx context.Context, ds []Delivery) []*Attempt {
	attempts := make([]*Attempt, len(ds))
	first := make(map[store.ID]*Attempt, len(ds))
	var open []*Attempt
	for i, d := range ds {
		a := p.attempt(ctx, d)
		attempts[i] = a
		if a.decided {
			continue
		}
		if lead := first[a.id]; lead != nil {
			if lead.done == nil {
				lead.done = make(chan struct{})
			}
			a.leader = lead
			continue
		}
		first[a.id] = a
		open = append(open, a)
	}
	p.g.claimAll(ctx, open)
	return attempts
}

// attempt derives the key.
func (p *Processor) attempt(ctx context.Context, d Delivery) *Attempt {
	a := &Attempt{g: p.g, p: p, d: d}
	key, fp, err := p.derive(d.Message)
	if err != nil {
		p.g.emit(ctx, Event{Kind: EventKeyError, Err: err})
		a.decide1(a.decideKey(err))
		return a
	}
	a.id = store.ID{Scope: p.g.scope, Key: key}
	if p.g.opt.HashKeys {
		a.id = a.id.Hashed()
	}
	if reentrant(ctx, a.id) {
		a.decide1(Decision{Action: DeadLetter, Err: ErrReentrant, ID: a.id})
		return a
	}
	a.req = p.g.request(a.id, d.ID, fp)
	return a
}

func (a *Attempt) decide1(d Decision) { a.decided, a.decision = true, d }

func (g *Guard) request(id store.ID, delivery string, fp store.Fingerprint) store.ClaimRequest {
	if len(delivery) > store.MaxText {
		_, delivery, _ = store.ID{Key: delivery}.Encode()
	}
	return store.ClaimRequest{
		ID: id, Token: store.NewToken(),
		Lease: g.opt.Lease, Retention: max(g.opt.FailureRetention, g.opt.Retention),
		MaxFailures: limit(g.opt.MaxFailures), MaxCrashes: limit(g.opt.MaxCrashes),
		ParkOnTakeover: g.opt.Takeover.Park, KeepFailures: g.opt.KeepFailures,
		Fingerprint: fp, Delivery: delivery, Holder: g.opt.Holder,
	}
}

// claimAll claims the attempts together and starts to renew what was granted.
func (g *Guard) claimAll(ctx context.Context, as []*Attempt) {
	if len(as) == 0 {
		return
	}
	slices.SortFunc(as, func(a, b *Attempt) int { return a.id.Compare(b.id) })
	reqs := make([]store.ClaimRequest, len(as))
	for i, a := range as {
		reqs[i] = a.req
	}
	answers, sent, errs := g.claimRetrying(ctx, reqs)
	for i, a := range as {
		a.claim, a.sent = answers[i], sent[i]
		a.claimed(ctx, errs[i])
		if a.decided {
			a.end() // nobody need wait for it
		}
	}
}

// claimed takes the store's answer.
func (a *Attempt) claimed(ctx context.Context, err error) {
	switch {
	case err != nil:
		a.decide1(a.decideStore(err))
	case a.claim.Verdict == store.Granted:
		a.g.verdict(ctx, a.id, &a.claim)
		if !a.g.enter(a) {
			a.giveBack(0)
			a.decide1(Decision{Action: Retry, Err: ErrShutdown, ID: a.id})
			return
		}
		until := a.sent.Add(a.claim.Remaining - a.g.leases.margin)
		a.beat = a.g.beats.add(a.g.leases, store.Lease{ID: a.id, Token: a.req.Token}, until, a.leaseLost)
		a.g.beats.limit(a.beat, a.sent.Add(a.g.opt.MaxRuntime), ErrMaxRuntime)
	default:
		a.g.verdict(ctx, a.id, &a.claim)
		a.decide1(a.decide(&a.claim))
		if v := a.claim.Verdict; a.g.opt.Mode == Enforce && v != store.Busy && v != store.Refused {
			a.g.emit(ctx, Event{Kind: EventSuppressed, ID: a.id, Verdict: v})
		}
	}
}

func (g *Guard) verdict(ctx context.Context, id store.ID, c *store.Claim) {
	e := Event{Kind: EventVerdict, ID: id, Verdict: c.Verdict, Takeover: c.Takeover, Starts: c.Starts}
	if c.Verdict == store.Busy {
		e.Duration = c.Remaining
	}
	g.emit(ctx, e)
}

// claimRetrying claims until every item has an answer, an item's error is
// permanent, or the time for it is over. It repeats with the same tokens, so
// that a claim whose reply was lost is recognised as one's own.
func (g *Guard) claimRetrying(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, []time.Time, []error) {
	deadline := time.Now().Add(g.opt.ClaimTimeout)
	sent := make([]time.Time, len(reqs))
	now := time.Now()
	for i := range sent {
		sent[i] = now
	}
	g.mu.Lock()
	closing := g.closing
	g.mu.Unlock()
	if closing {
		errs := make([]error, len(reqs))
		for i := range errs {
			errs[i] = ErrShutdown
		}
		return make([]store.Claim, len(reqs)), sent, errs
	}
	answers, errs := g.claims.do(ctx, reqs, false)
	for i := range reqs {
		if errs[i] == nil {
			errs[i] = answers[i].Err
		}
		for n := 1; errs[i] != nil && again(ctx, errs[i], n, deadline); n++ {
			sent[i] = time.Now()
			as, es := g.claims.do(ctx, reqs[i:i+1], true)
			if answers[i], errs[i] = as[0], es[0]; errs[i] == nil {
				errs[i] = answers[i].Err
			}
		}
		var left *leftError
		if errs[i] != nil && !errors.As(errs[i], &left) {
			g.giveBackLater(reqs[i]) // it may have been granted, and would block its key for a lease
		}
	}
	return answers, sent, errs
}

// again waits before the nth repetition; false when there must be none.
func again(ctx context.Context, err error, n int, deadline time.Time) bool {
	if errors.Is(err, store.ErrPermanent) || ctx.Err() != nil {
		return false
	}
	pause := Backoff{Base: 20 * time.Millisecond, Max: time.Second}.after(n)
	if time.Now().Add(pause).After(deadline) {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// abandonClaim gives back a claim that was granted after its caller had left.
func (e *engine) abandonClaim(q store.ClaimRequest, c store.Claim) {
	if c.Err == nil && c.Verdict == store.Granted {
		e.giveBackLater(q)
	}
}

func (e *engine) giveBackLater(q store.ClaimRequest) {
	e.later(func() {
		s := store.Settlement{ID: q.ID, Token: q.Token, Kind: store.Release, Retention: q.Retention}
		ctx, cancel := context.WithTimeout(context.Background(), e.settles.timeout)
		defer cancel()
		_, _ = e.settles.do(ctx, []store.Settlement{s}, true) // best effort: the lease ends anyway
	})
}

// giveBack releases a claim whose handler has not run.
func (a *Attempt) giveBack(after time.Duration) {
	s := store.Settlement{
		ID: a.id, Token: a.req.Token, Kind: store.Release,
		NotBefore: after, Retention: a.g.opt.FailureRetention,
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.g.opt.CallTimeout)
	defer cancel()
	_, _ = a.g.settles.do(ctx, []store.Settlement{s}, false) // best effort: the lease ends anyway
}

// Decided reports whether the delivery's fate is known without a run, and which
// it is. Run then returns the same decision.
func (a *Attempt) Decided() (Decision, bool) {
	if a.decided && !a.runsAnyway() {
		return a.decision, true
	}
	return Decision{}, false
}

// Release gives back a delivery that has not been run, so that any worker can
// run it after the given wait.
func (a *Attempt) Release(after time.Duration) {
	if a.beat != nil {
		a.g.beats.stop(a.beat)
		a.giveBack(after)
		a.g.leave(a)
	}
	a.end()
}

func (a *Attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done != nil && !a.ended {
		close(a.done)
	}
	a.ended = true
}

// Lose tells the attempt that the broker's hold on its delivery is lost for
// good: the decision will have HoldLost set. The handler's context is cancelled
// with the cause, usually [ErrHoldLost]; a nil cause lets it go on under the
// lease alone.
func (a *Attempt) Lose(cause error) {
	a.mu.Lock()
	a.holdLost = true
	a.mu.Unlock()
	a.g.emit(context.Background(), Event{Kind: EventHoldLost, ID: a.id, Err: cause})
	a.Cancel(cause)
}

// Cancel cancels the handler's context with the cause, now or as soon as it
// starts. A nil cause does nothing.
func (a *Attempt) Cancel(cause error) {
	if cause != nil {
		a.abort(cause)
	}
}

func (a *Attempt) leaseLost(cause error) {
	a.g.emit(context.Background(), Event{Kind: EventLeaseLost, ID: a.id, Err: cause})
	a.abort(cause)
}

// abort cancels the handler, now or as soon as it starts.
func (a *Attempt) abort(cause error) {
	a.mu.Lock()
	if a.cause == nil {
		a.cause = cause
	}
	cancel := a.cancelRun
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// begin makes the handler's context, which ends with ctx or by abort.
func (a *Attempt) begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.mu.Lock()
	a.cancelRun = cancel
	cause := a.cause
	a.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
	return ctx, cancel
}

func (a *Attempt) aborted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

func (a *Attempt) lostHold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holdLost
}
