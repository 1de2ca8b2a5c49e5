package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/secondrun/secondrun/store"
)

func replyChecks() []check {
	return []check{
		{"U28 a claim whose reply is lost is granted again", lostClaim},
		{"U28 a takeover whose reply is lost is granted again", lostTakeover},
		{"U28 a closing claim whose reply is lost", lostClosing},
		{"U28 a claim that its owner gave up is released by token", lostAndReleased},
		{"A01 a renewal whose reply is lost", lostRenewal},
		{"A01 a settlement whose reply is lost", lostSettlement},
		{"A01 a settlement whose reply is lost, and somebody was faster", lostSettlementLate},
		{"A01 a success on an absent record whose reply is lost", lostCreation},
		{"a context that is over changes nothing", cancelled},
		{"a context that ends during the call harms nothing", cancelledDuring},
	}
}

// lossy applies every operation and loses the reply.
type lossy struct{ store.Store }

var errLost = errors.New("the reply is lost")

func (l lossy) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	if _, err := l.Store.Claim(ctx, reqs); err != nil {
		return nil, err
	}
	return nil, errLost
}

func (l lossy) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	if _, err := l.Store.Renew(ctx, leases, d); err != nil {
		return nil, err
	}
	return nil, errLost
}

func (l lossy) Settle(ctx context.Context, s []store.Settlement) ([]store.Status, error) {
	if _, err := l.Store.Settle(ctx, s); err != nil {
		return nil, err
	}
	return nil, errLost
}

// lost fails the check unless err is the loss itself.
func (e *env) lost(err error) {
	e.Helper()
	if !errors.Is(err, errLost) {
		e.Fatal(err)
	}
}

func (e *env) loseClaim(r store.ClaimRequest) {
	e.Helper()
	_, err := lossy{e.st}.Claim(e.ctx, []store.ClaimRequest{r})
	e.lost(err)
}

func (e *env) loseSettle(s store.Settlement) {
	e.Helper()
	_, err := lossy{e.st}.Settle(e.ctx, []store.Settlement{s})
	e.lost(err)
}

func lostClaim(e *env) {
	r := e.req("k")
	e.loseClaim(r)
	e.answered(r, afresh)
	e.verdict(e.req("k"), store.Busy)
	for _, prepared := range []prepare{
		func(e *env) situation { return first(e).settled(e, store.Retry, false) },
		func(e *env) situation { return first(e).settled(e, store.Release, false) },
		func(e *env) situation { return first(e).settled(e, store.Fail, false) },
	} {
		s := prepared(e)
		r := e.req(s.owner.ID.Key)
		e.loseClaim(r)
		if c := e.granted(r); c.Takeover || c.Fence != 2 || c.Starts != 2 {
			e.Errorf("%s, want the second start", show(c))
		}
	}
	p := e.parent()
	f := e.effectReq(p, "f")
	e.loseClaim(f)
	e.answered(f, afresh)
}

func lostTakeover(e *env) {
	s := first(e).over(e)
	r := e.req(s.owner.ID.Key)
	e.loseClaim(r)
	if c := e.granted(r); !c.Takeover || c.Fence != 2 || c.Crashes != 1 {
		e.Errorf("%s, want the same takeover", show(c))
	}
	e.settled(settlement(r, store.Succeed, ""), store.OK)
}

func lostClosing(e *env) {
	s := first(e).settled(e, store.Retry, false)
	judge := e.req(s.owner.ID.Key)
	exhaust(&judge)
	e.loseClaim(judge)
	if c := e.verdict(judge, store.Exhausted); c.Failure != store.FailedExhausted || c.Failures != 1 || c.Fence != 1 {
		e.Errorf("%s", show(c))
	}
	s = first(e).over(e)
	judge = e.req(s.owner.ID.Key)
	park(&judge)
	e.loseClaim(judge)
	if c := e.verdict(judge, store.Failed); c.Failure != store.FailedParked || c.Crashes != 0 || c.Fence != 1 {
		e.Errorf("%s", show(c))
	}
}

func lostAndReleased(e *env) {
	r := e.req("k")
	e.loseClaim(r)
	e.settled(settlement(r, store.Release, ""), store.OK)
	if c := e.granted(e.req("k")); c.Takeover || c.Fence != 2 {
		e.Errorf("%s", show(c))
	}
	// The claim arrives after its own release was sent: nothing is left.
	r = e.req("never arrived")
	e.settled(settlement(r, store.Release, ""), store.Absent)
	e.answered(e.req("never arrived"), afresh)
}

func lostRenewal(e *env) {
	s := first(e)
	_, err := lossy{e.st}.Renew(e.ctx, []store.Lease{{ID: s.owner.ID, Token: s.owner.Token}}, 2*long)
	e.lost(err)
	e.renewed(s.owner.ID, s.owner.Token, 2*long, store.OK)
	c := e.verdict(e.req(s.owner.ID.Key), store.Busy)
	if err := e.remaining(c.Remaining, 2*long); err != nil {
		e.Error(err)
	}
}

func lostSettlement(e *env) {
	for _, k := range kinds {
		s := first(e)
		set := settlement(s.owner, k, "first")
		e.loseSettle(set)
		state, failure := after(k)
		e.already(set, state, failure)
		e.loseSettle(set)
		settledAs(e, s, k) // counted once
	}
}

func lostSettlementLate(e *env) {
	s := first(e)
	set := settlement(s.owner, store.Retry, "")
	e.loseSettle(set)
	next := e.req(s.owner.ID.Key)
	e.granted(next)
	e.settled(set, store.Lost)
	if c := e.verdict(e.req(s.owner.ID.Key), store.Busy); c.Failures != 1 {
		e.Errorf("%s, want one failure", show(c))
	}
	e.settled(settlement(next, store.Succeed, ""), store.OK)
}

func lostCreation(e *env) {
	r := e.req("k")
	e.loseSettle(settlement(r, store.Succeed, "late"))
	e.already(settlement(r, store.Succeed, "late"), store.StateSucceeded, 0)
	if c := e.verdict(e.req("k"), store.Done); string(c.Payload) != "late" {
		e.Errorf("payload %q", c.Payload)
	}
}

func cancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	s := first(e)
	r := e.req("fresh")
	if _, err := e.st.Claim(ctx, []store.ClaimRequest{r}); err == nil {
		e.Errorf("Claim: no error")
	}
	if _, err := e.st.Renew(ctx, []store.Lease{{ID: s.owner.ID, Token: s.owner.Token}}, 2*long); err == nil {
		e.Errorf("Renew: no error")
	}
	if _, err := e.st.Settle(ctx, []store.Settlement{settlement(s.owner, store.Succeed, "")}); err == nil {
		e.Errorf("Settle: no error")
	}
	e.answered(e.req("fresh"), afresh)
	c := e.verdict(e.req(s.owner.ID.Key), store.Busy)
	if err := e.remaining(c.Remaining, long); err != nil {
		e.Error(err)
	}
	e.settled(settlement(s.owner, store.Succeed, ""), store.OK)
}

// cancelledDuring ends contexts at every moment of a call. Whatever the answer,
// repeating with the same token must find the way.
func cancelledDuring(e *env) {
	for i := range rounds(20, 500) {
		r := e.req("key-" + random())
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i)*50*time.Microsecond)
		_, _ = e.st.Claim(ctx, []store.ClaimRequest{r})
		e.answered(r, afresh)
		_, _ = e.st.Settle(ctx, []store.Settlement{settlement(r, store.Succeed, "result")})
		out, err := e.st.Settle(e.ctx, []store.Settlement{settlement(r, store.Succeed, "result")})
		e.item("Settle", len(out), err)
		if out[0].Code != store.OK && out[0].Code != store.Already {
			e.Fatalf("Settle: %s", out[0].Code)
		}
		cancel()
		if c := e.verdict(e.req(r.ID.Key), store.Done); string(c.Payload) != "result" {
			e.Fatalf("payload %q", c.Payload)
		}
	}
}
