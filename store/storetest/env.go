package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

const (
	long  = time.Minute           // a lease or a wait that does not end during a check
	short = 60 * time.Millisecond // one whose end a check waits for
	keep  = time.Hour             // a retention that does not end during a check
)

// env is what a check works with: one store, one scope of its own.
type env struct {
	testing.TB
	h     Harness
	st    store.Store // the owner's client
	peer  store.Store // everybody else's client
	scope string
	ctx   context.Context //nolint:containedctx // lives as long as the check
}

func newEnv(t testing.TB, h Harness) *env {
	e := &env{TB: t, h: h, st: h.Store, peer: h.Peer, scope: "storetest-" + random(), ctx: t.Context()}
	if e.peer == nil {
		e.peer = h.Store
	}
	return e
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (e *env) id(key string) store.ID { return store.ID{Scope: e.scope, Key: key} }

func (e *env) effect(key, effect string) store.ID {
	return store.ID{Scope: e.scope, Key: key, Effect: effect}
}

// pass lets d pass on the store's clock; where the clock is not controlled, a
// little more, because a store may round a duration up to a millisecond.
func (e *env) pass(d time.Duration) {
	switch {
	case e.h.Wait == nil:
		time.Sleep(d + 5*time.Millisecond)
	case e.h.Exact:
		e.h.Wait(d)
	default:
		e.h.Wait(d + 5*time.Millisecond)
	}
}

// exact skips the check where the clock is not controlled.
func (e *env) exact() {
	e.Helper()
	if !e.h.Exact {
		e.Skip("needs a controlled clock (Harness.Exact)")
	}
}

// req is a claim of key with a token of its own, a long lease and no limits.
func (e *env) req(key string) store.ClaimRequest {
	return store.ClaimRequest{
		ID: e.id(key), Token: store.NewToken(), Lease: long, Retention: keep,
		Holder: "holder", Trace: "trace", Delivery: "delivery",
	}
}

// effectReq is a claim of an effect under the claim p.
func (e *env) effectReq(p store.ClaimRequest, effect string) store.ClaimRequest {
	r := e.req(p.ID.Key)
	r.ID.Effect, r.Parent, r.Retention = effect, p.Token, 0
	return r
}

// claim claims one item through st.
func (e *env) claimOn(st store.Store, r store.ClaimRequest) store.Claim {
	e.Helper()
	out, err := st.Claim(e.ctx, []store.ClaimRequest{r})
	e.item("Claim", len(out), err)
	c := out[0]
	if c.Err != nil {
		e.Fatalf("Claim: the item failed: %v", c.Err)
	}
	if c.At.IsZero() {
		e.Errorf("Claim: At is zero")
	}
	return c
}

func (e *env) claim(r store.ClaimRequest) store.Claim {
	e.Helper()
	return e.claimOn(e.st, r)
}

// granted claims r and fails the check unless it is granted.
func (e *env) granted(r store.ClaimRequest) store.Claim {
	e.Helper()
	return e.verdict(r, store.Granted)
}

// verdict claims r and fails the check unless the verdict is want.
func (e *env) verdict(r store.ClaimRequest, want store.Verdict) store.Claim {
	e.Helper()
	c := e.claim(r)
	if c.Verdict != want {
		e.Fatalf("claim of %q: %s, want %s", r.ID.Key+"/"+r.ID.Effect, show(c), want)
	}
	return c
}

// answered claims r and compares all that the contract determines. A positive
// Remaining of want is compared with tolerance, see remaining.
func (e *env) answered(r store.ClaimRequest, want store.Claim) store.Claim {
	e.Helper()
	c := e.claim(r)
	if err := e.differs(c, want); err != nil {
		e.Fatalf("claim of %q: %v\n got %s\nwant %s", r.ID.Key+"/"+r.ID.Effect, err, show(c), show(want))
	}
	return c
}

func (e *env) differs(got, want store.Claim) error {
	g, w := got, want
	g.At, w.At = time.Time{}, time.Time{}
	g.Remaining, w.Remaining = 0, 0
	if g.Verdict == store.Conflict || g.Verdict == store.Refused {
		g.Fence, g.Starts, g.Failures, g.Crashes = w.Fence, w.Starts, w.Failures, w.Crashes
	}
	if !bytes.Equal(g.Payload, w.Payload) {
		return errors.New("payload differs")
	}
	g.Payload, w.Payload = nil, nil
	if a, b := fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", w); a != b {
		return errors.New("answer differs")
	}
	return e.remaining(got.Remaining, want.Remaining)
}

// remaining compares what is left of a lease. A running clock may have eaten
// some of it, but not as much as half of a long one.
func (e *env) remaining(got, want time.Duration) error {
	switch {
	case e.h.Exact && got != want, want <= 0 && got > 0,
		want > 0 && (got > want+time.Millisecond || got < want-long/2):
		return fmt.Errorf("remaining %v, want %v", got, want)
	}
	return nil
}

func show(c store.Claim) string {
	return fmt.Sprintf("%s takeover=%t failure=%s fence=%d starts=%d failures=%d crashes=%d remaining=%v holder=%.40q trace=%.40q payload=%.40q",
		c.Verdict, c.Takeover, c.Failure, c.Fence, c.Starts, c.Failures, c.Crashes, c.Remaining, c.Holder, c.Trace, c.Payload)
}

// renewed renews one lease and fails the check unless the code is want.
func (e *env) renewed(id store.ID, tok store.Token, d time.Duration, want store.Code) store.Status {
	e.Helper()
	out, err := e.st.Renew(e.ctx, []store.Lease{{ID: id, Token: tok}}, d)
	e.item("Renew", len(out), err)
	e.status("Renew", out[0], want)
	return out[0]
}

// settled settles one item and fails the check unless the code is want.
func (e *env) settled(s store.Settlement, want store.Code) store.Status {
	e.Helper()
	out, err := e.st.Settle(e.ctx, []store.Settlement{s})
	e.item("Settle", len(out), err)
	e.status(s.Kind.String(), out[0], want)
	return out[0]
}

// already settles s, which was settled before, and compares the state.
func (e *env) already(s store.Settlement, state store.State, f store.Failure) {
	e.Helper()
	st := e.settled(s, store.Already)
	if st.State != state || st.Failure != f {
		e.Fatalf("%s: already %s (%s), want %s (%s)", s.Kind, st.State, st.Failure, state, f)
	}
}

func (e *env) status(op string, s store.Status, want store.Code) {
	e.Helper()
	if s.Err != nil {
		e.Fatalf("%s: the item failed: %v", op, s.Err)
	}
	if s.Code != want {
		e.Fatalf("%s: %s (%s), want %s", op, s.Code, s.State, want)
	}
	if s.At.IsZero() {
		e.Errorf("%s: At is zero", op)
	}
}

func (e *env) item(op string, n int, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", op, err)
	}
	if n != 1 {
		e.Fatalf("%s of one item: %d answers", op, n)
	}
}

// settlement is the end of the claim r.
func settlement(r store.ClaimRequest, k store.Kind, payload string) store.Settlement {
	return store.Settlement{ID: r.ID, Token: r.Token, Kind: k, Payload: []byte(payload), Retention: keep}
}

// over lets the lease of the claim r end.
func (e *env) over(r store.ClaimRequest) {
	e.Helper()
	e.renewed(r.ID, r.Token, short, store.OK)
	e.pass(short)
}

// inspector skips the check unless the store can show its records.
func (e *env) inspector() store.Inspector {
	e.Helper()
	i, ok := e.st.(store.Inspector)
	if !ok {
		e.Skip("the store does not implement store.Inspector")
	}
	return i
}

// ask1 claims one item without ending the check, so that it can be used from
// any goroutine.
func (e *env) ask1(st store.Store, r store.ClaimRequest) store.Claim {
	out, err := st.Claim(e.ctx, []store.ClaimRequest{r})
	if err == nil && len(out) == 1 && out[0].Err == nil {
		return out[0]
	}
	e.Errorf("Claim: %v, %v", out, err)
	return store.Claim{}
}

// settle1 is ask1 for a settlement.
func (e *env) settle1(st store.Store, s store.Settlement) store.Code {
	out, err := st.Settle(e.ctx, []store.Settlement{s})
	if err == nil && len(out) == 1 && out[0].Err == nil {
		return out[0].Code
	}
	e.Errorf("Settle: %v, %v", out, err)
	return 0
}

// renew1 is ask1 for a renewal.
func (e *env) renew1(st store.Store, r store.ClaimRequest, d time.Duration) store.Code {
	out, err := st.Renew(e.ctx, []store.Lease{{ID: r.ID, Token: r.Token}}, d)
	if err == nil && len(out) == 1 && out[0].Err == nil {
		return out[0].Code
	}
	e.Errorf("Renew: %v, %v", out, err)
	return 0
}
