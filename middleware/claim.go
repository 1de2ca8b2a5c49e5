package secondrun

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/secondrun/secondrun/store"
)

// identify makes the ID of a key in a whole scope.
func (g *Guard) identify(scope, key string) store.ID {
	id := store.ID{Scope: scope, Key: key}
	if g.opt.HashKeys {
		id = id.Hashed()
	}
	return id
}

func (g *Guard) request(id store.ID, d Delivery, fp store.Fingerprint) store.ClaimRequest {
	delivery, lease := d.ID, g.opt.Lease
	if len(delivery) > store.MaxText {
		_, delivery, _ = store.ID{Key: delivery}.Encode()
	}
	if !d.Until.IsZero() {
		lease = max(min(lease, time.Until(d.Until)), time.Millisecond)
	}
	return store.ClaimRequest{
		ID: id, Token: store.NewToken(),
		Lease: lease, Retention: max(g.opt.FailureRetention, g.opt.Retention),
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
	if g.closed(ctx) {
		for _, a := range as {
			a.bar(Decision{Action: Retry, Err: ErrShutdown, ID: a.id})
			a.end()
		}
		return
	}
	for _, a := range as {
		a.span = g.tel.startClaim(ctx, &a.d)
		a.req.Trace = formatTrace(a.span)
	}
	var one [1]asked // the usual case, without a heap allocation
	asked := inOrder(one[:0], as)
	reqs := make([]store.ClaimRequest, len(asked))
	for i, x := range asked {
		reqs[i] = *x.req
	}
	got := g.claimRetrying(withSpan(ctx, as[0].span), reqs, g.opt.Takeover.Probe != nil)
	for i, x := range asked {
		if t := x.twin; t != nil {
			t.claim, t.sent, t.err = got.item(i)
			continue
		}
		x.a.claim, x.a.sent, x.a.claimErr = got.item(i)
	}
	for _, a := range as {
		err := a.claimErr
		if len(a.twins) > 0 {
			err = a.unite(err)
		}
		g.tel.endClaim(a.span, a.id, &a.claim, err)
		a.claimed(withSpan(ctx, a.span), err)
		if a.decided {
			a.end() // nobody need wait for it
		}
	}
}

// asked is one claim of an attempt: its own, or that of a twin.
type asked struct {
	a    *Attempt
	twin *twin // nil for the attempt's own
	req  *store.ClaimRequest
}

// inOrder appends all claims of the attempts to all, as the store wants them.
func inOrder(all []asked, as []*Attempt) []asked {
	for _, a := range as {
		all = append(all, asked{a: a, req: &a.req})
		for _, t := range a.twins {
			t.req.Trace = a.req.Trace
			all = append(all, asked{a: a, twin: t, req: &t.req})
		}
	}
	slices.SortFunc(all, func(x, y asked) int { return x.req.ID.Compare(y.req.ID) })
	return all
}

// claimed takes the store's answer.
func (a *Attempt) claimed(ctx context.Context, err error) {
	if err != nil {
		a.claimFailed(ctx, err)
		return
	}
	a.g.verdict(ctx, a.id, &a.claim)
	if a.claim.Verdict != store.Granted {
		a.decide1(a.decide(&a.claim))
		if v := a.claim.Verdict; a.g.opt.Mode == Enforce && v != store.Busy && v != store.Refused {
			a.g.emit(ctx, Event{Kind: EventSuppressed, ID: a.id, Verdict: v, Failure: a.claim.Failure})
		}
		return
	}
	a.lease = store.Lease{ID: a.id, Token: a.req.Token}
	beat := a.renew(&a.lease, a.claim.Remaining, a.sent)
	for _, t := range a.twins {
		t.lease = store.Lease{ID: t.id, Token: t.req.Token}
		t.beat = a.renew(&t.lease, t.claim.Remaining, t.sent)
	}
	a.mu.Lock()
	a.beat = beat
	a.mu.Unlock()
	if !a.g.enter(ctx, a) {
		a.g.beats.stop(beat)
		a.dropTwins()
		a.giveBack(0)
		a.beat = nil
		a.bar(Decision{Action: Retry, Err: ErrShutdown, ID: a.id})
	}
}

// renew starts to renew a lease that was granted for so long to a claim that was
// sent then.
func (a *Attempt) renew(l *store.Lease, granted time.Duration, sent time.Time) *beat {
	until := sent.Add(granted - min(a.g.leases.margin, max(granted/10, 0)))
	b := a.g.beats.add(a.g.leases, l, until, a.leaseLost)
	a.g.beats.limit(b, sent.Add(a.g.opt.MaxRuntime), ErrMaxRuntime)
	if !a.d.Until.IsZero() {
		a.g.beats.limit(b, a.d.Until.Add(-a.g.opt.Lease), nil) // a later renewal would reach beyond it
	}
	return b
}

// claimFailed decides about a claim that has no answer.
func (a *Attempt) claimFailed(ctx context.Context, err error) {
	a.g.tel.unanswered(ctx, false)
	var left *leftError
	switch {
	case errors.As(err, &left):
		a.bar(Decision{Action: Retry, Err: left.cause, ID: a.id})
	case ctx.Err() != nil: // not even Options.FailOpen starts a run now
		a.bar(Decision{Action: Retry, Err: &storeError{err}, ID: a.id})
	default:
		a.decide1(Decision{Action: Retry, After: around(a.g.opt.Lease / 3), Err: &storeError{err}, ID: a.id})
	}
}

func (g *Guard) verdict(ctx context.Context, id store.ID, c *store.Claim) {
	e := Event{Kind: EventVerdict, ID: id, Verdict: c.Verdict, Failure: c.Failure, Takeover: c.Takeover, Starts: c.Starts}
	if c.Verdict == store.Busy {
		e.Duration = c.Remaining
	}
	g.emit(ctx, e)
}

// claimRetrying claims until every item has an answer, an item's error is
// permanent, or the time for it is over. It repeats with the same tokens, so
// that a claim whose reply was lost is recognised as one's own. What may have
// been granted without our knowing is given back, unless takeovers are probed.
func (g *Guard) claimRetrying(ctx context.Context, reqs []store.ClaimRequest, probed bool) claiming {
	c := claiming{g: g, reqs: reqs, start: time.Now()}
	if ctx.Err() != nil {
		c.answers = make([]store.Claim, len(reqs))
		c.errs = slices.Repeat([]error{&leftError{cause: context.Cause(ctx)}}, len(reqs))
		return c
	}
	c.answers, c.errs = g.claims.do(ctx, reqs, false)
	for i := range reqs {
		if _, _, err := c.item(i); err != nil {
			c.failed = append(c.failed, i)
		}
	}
	if len(c.failed) == 0 {
		return c
	}
	firsts := make([]error, len(reqs))
	for _, i := range c.failed {
		_, _, firsts[i] = c.item(i)
	}
	c.errs, c.sent = slices.Clone(firsts), slices.Repeat([]time.Time{c.start}, len(reqs))
	c.repeat(ctx, c.start.Add(g.opt.ClaimTimeout))
	for i, err := range c.errs {
		if err != nil && !probed {
			g.giveBackUnknown(reqs[i], err, firsts[i])
		}
		if err == errUnseen { //nolint:errorlint // never wrapped
			c.errs[i] = nil // it is busy, whoever has it
		}
	}
	return c
}

// errUnseen stands for a busy answer of a store that could not look at the
// record, since a transaction has it locked. To a claim that is repeated that is
// no answer: the transaction may be its own first call, whose commit takes long.
var errUnseen = errors.New("record is locked by a transaction")

func unseen(c *store.Claim) bool { return c.Verdict == store.Busy && c.Fence == 0 }

// claiming is one use of claimRetrying.
type claiming struct {
	g       *Guard
	reqs    []store.ClaimRequest
	answers []store.Claim
	errs    []error     // nil means none
	start   time.Time   // before the first call
	sent    []time.Time // before the last call of each; nil means start
	failed  []int       // what to repeat
}

// item returns the answer to request i, and when it was asked.
func (c *claiming) item(i int) (store.Claim, time.Time, error) {
	err, sent := errAt(c.errs, i), c.start
	if err == nil {
		err = c.answers[i].Err
	}
	if c.sent != nil {
		sent = c.sent[i]
	}
	return c.answers[i], sent, err
}

// repeat repeats the claims one by one, in rounds, so that an item that the
// store cannot digest does not cost its neighbours their answers.
func (c *claiming) repeat(ctx context.Context, deadline time.Time) {
	for n := 1; ; n++ {
		c.failed = slices.DeleteFunc(c.failed, func(i int) bool { return c.errs[i] == nil || !repeatable(ctx, c.errs[i]) })
		if len(c.failed) == 0 || c.g.gaveUp() || !pause(ctx, n, deadline) {
			return
		}
		c.round(ctx, deadline)
	}
}

// round repeats every claim once, those that were not tried in the last round
// first. A store that fails several times in a row is down.
func (c *claiming) round(ctx context.Context, deadline time.Time) {
	inRow := 0
	for k, i := range c.failed {
		if inRow == opensAfter || ctx.Err() != nil || time.Now().After(deadline) {
			c.failed = append(slices.Clone(c.failed[k:]), c.failed[:k]...)
			return
		}
		c.sent[i] = time.Now()
		as, es := c.g.claims.do(ctx, c.reqs[i:i+1], true)
		if c.answers[i], c.errs[i] = as[0], errAt(es, 0); c.errs[i] == nil {
			c.errs[i] = as[0].Err
		}
		if inRow++; c.errs[i] == nil {
			inRow = 0
			if unseen(&as[0]) {
				c.errs[i] = errUnseen
			}
		}
	}
}

// gaveUp reports whether a claim need not be repeated, since the store is known
// to be away and the handler runs without it.
func (g *Guard) gaveUp() bool { return g.runsUnguarded() && g.health.open() }

// runsUnguarded reports whether handlers run although the store is away.
func (g *Guard) runsUnguarded() bool { return g.opt.FailOpen || g.opt.Mode == Observe }

// repeatable reports whether asking again can help.
func repeatable(ctx context.Context, err error) bool {
	return !errors.Is(err, store.ErrPermanent) && ctx.Err() == nil
}

// pause waits before the nth repetition; false when there must be none.
func pause(ctx context.Context, n int, deadline time.Time) bool {
	wait := Backoff{Base: 20 * time.Millisecond, Max: time.Second}.after(n)
	if time.Now().Add(wait).After(deadline) {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// giveBackUnknown releases a claim that may have been granted without our
// knowing: it would block its key for a lease. first is the error of the first
// call, err that of the last.
func (e *engine) giveBackUnknown(q store.ClaimRequest, err, first error) {
	var left *leftError
	if !errors.As(err, &left) {
		e.later(func() { e.release(q) })
		return
	}
	repeated := err != first //nolint:errorlint // the very same error
	e.later(func() {
		<-left.answer // bounded by the timeout of the call
		if repeated || left.sent() {
			e.release(q)
		}
	})
}

func (e *engine) release(q store.ClaimRequest) {
	e.tel.released(releasedUnknown)
	e.settleOnce(store.Settlement{ID: q.ID, Token: q.Token, Kind: store.Release, Retention: q.Retention})
}

// settleOnce is a settlement that need not succeed: the lease ends anyway.
func (e *engine) settleOnce(s store.Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), e.settles.timeout)
	defer cancel()
	_, _ = e.settles.do(ctx, []store.Settlement{s}, false)
}

// giveBack releases a claim whose handler has not run.
func (a *Attempt) giveBack(after time.Duration) {
	if a.unprobed() {
		return
	}
	a.g.tel.released(releasedUnstarted)
	s := store.Settlement{
		ID: a.id, Token: a.req.Token, Kind: store.Release,
		NotBefore: after, Retention: a.g.opt.keepFor(after),
	}
	a.g.settleOnce(s)
	for _, t := range a.twins {
		s.ID, s.Token = t.id, t.req.Token
		a.g.settleOnce(s)
	}
}

// unprobed reports whether an earlier run ended with an unknown outcome about
// which nobody has asked yet. Such a claim is never released, only left to
// expire: a released record would not say any more that there is something to
// ask.
func (a *Attempt) unprobed() bool {
	if a.g.opt.Takeover.Probe == nil || a.asked {
		return false
	}
	return a.claim.Takeover || slices.ContainsFunc(a.twins, func(t *twin) bool { return t.claim.Takeover })
}
