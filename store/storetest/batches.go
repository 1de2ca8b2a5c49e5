package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/secondrun/secondrun/store"
)

func batchChecks() []check {
	return []check{
		{"empty", emptyBatch},
		{"every verdict in one call, in order", mixedBatch},
		{"every code in one call, in order", mixedCodes},
		{"256 items, and again", fullBatch},
		{"effects of many parents", effectBatch},
		{"an item leaves its neighbours alone", neighbours},
	}
}

// sorted puts requests into the order that the contract asks for.
func sorted(reqs []store.ClaimRequest) []store.ClaimRequest {
	slices.SortFunc(reqs, func(a, b store.ClaimRequest) int { return a.ID.Compare(b.ID) })
	return reqs
}

// claims is a batch without errors.
func (e *env) claims(reqs []store.ClaimRequest) []store.Claim {
	e.Helper()
	out, err := e.st.Claim(e.ctx, reqs)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	if len(out) != len(reqs) {
		e.Fatalf("Claim of %d items: %d answers", len(reqs), len(out))
	}
	for i, c := range out {
		if c.Err != nil {
			e.Fatalf("Claim: item %d: %v", i, c.Err)
		}
	}
	return out
}

// codes is a batch of renewals or settlements with these answers.
func (e *env) codes(op string, got []store.Status, err error, want ...store.Code) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", op, err)
	}
	if len(got) != len(want) {
		e.Fatalf("%s of %d items: %d answers", op, len(want), len(got))
	}
	for i, s := range got {
		e.status(fmt.Sprintf("%s: item %d", op, i), s, want[i])
	}
}

func emptyBatch(e *env) {
	c, err := e.st.Claim(e.ctx, nil)
	if len(c) != 0 || err != nil {
		e.Errorf("Claim = %v, %v", c, err)
	}
	r, err := e.st.Renew(e.ctx, []store.Lease{}, time.Second)
	if len(r) != 0 || err != nil {
		e.Errorf("Renew = %v, %v", r, err)
	}
	s, err := e.st.Settle(e.ctx, nil)
	if len(s) != 0 || err != nil {
		e.Errorf("Settle = %v, %v", s, err)
	}
}

func mixedBatch(e *env) {
	prepared := situations()
	type line struct {
		r    store.ClaimRequest
		want store.Claim
	}
	var lines []line
	for state, o := range map[string]outcome{
		"claimed": busy, "lease over": takeover, "succeeded": done, "terminal": newBudget, "parked": failed,
		"exhausted": exhausted, "transient": exhausts, "released": refused, "released, waiting": busy, "succeeded after a failure": conflict,
	} {
		s := prepared[state](e)
		a := ask{}
		switch o {
		case exhausted:
			a.token = "judge"
		case refused:
			a.token = "owner"
		case exhausts:
			a.failures = 1
		case conflict:
			a.print = "other"
		}
		lines = append(lines, line{a.request(e, s), expected(s, o)})
	}
	lines = append(lines, line{e.req("fresh"), afresh})
	slices.SortFunc(lines, func(a, b line) int { return a.r.ID.Compare(b.r.ID) })
	var reqs []store.ClaimRequest
	for _, l := range lines {
		reqs = append(reqs, l.r)
	}
	for i, c := range e.claims(reqs) {
		c.Remaining, lines[i].want.Remaining = 0, 0 // some are older than others
		if err := e.differs(c, lines[i].want); err != nil {
			e.Errorf("item %d: %v\n got %s\nwant %s", i, err, show(c), show(lines[i].want))
		}
	}
}

func mixedCodes(e *env) {
	a, b, d, f := e.req("a"), e.req("b"), e.req("d"), e.req("f")
	e.claims([]store.ClaimRequest{a, b, d, f})
	stranger := store.NewToken()
	e.settled(settlement(d, store.Retry, ""), store.OK)
	leases := []store.Lease{{ID: a.ID, Token: a.Token}, {ID: b.ID, Token: stranger}, {ID: e.id("c"), Token: stranger}, {ID: d.ID, Token: d.Token}, {ID: f.ID, Token: f.Token}}
	renewed, err := e.st.Renew(e.ctx, leases, long)
	e.codes("Renew", renewed, err, store.OK, store.Lost, store.Lost, store.Already, store.OK)

	c := e.req("c")
	b.Token = stranger
	set := []store.Settlement{
		settlement(a, store.Succeed, "a"), settlement(b, store.Succeed, "b"), settlement(c, store.Fail, "c"),
		settlement(d, store.Succeed, "d"), settlement(f, store.Release, ""),
	}
	settled, err := e.st.Settle(e.ctx, set)
	e.codes("Settle", settled, err, store.OK, store.Lost, store.Absent, store.Already, store.OK)
	if settled[3].State != store.StateFailed || settled[3].Failure != store.FailedTransient {
		e.Errorf("item 3: already %s (%s)", settled[3].State, settled[3].Failure)
	}
	e.verdict(e.req("a"), store.Done)
	e.verdict(e.req("b"), store.Busy)
	e.answered(e.req("c"), afresh)
	e.granted(e.req("d"))
	e.granted(e.req("f"))
}

// batch is the number of items that the store takes at once, at most 256.
func (e *env) batch() int {
	if l, ok := e.st.(store.Limiter); ok && l.Limits().Batch > 0 {
		return min(256, l.Limits().Batch)
	}
	return 256
}

func fullBatch(e *env) {
	n := e.batch()
	var reqs []store.ClaimRequest
	for i := range n {
		r := e.req(fmt.Sprintf("key %d", i))
		r.Holder = r.ID.Key
		reqs = append(reqs, r)
	}
	sorted(reqs)
	var leases []store.Lease
	var sets []store.Settlement
	want := make([]store.Code, n)
	for i, r := range reqs {
		want[i] = store.OK
		leases = append(leases, store.Lease{ID: r.ID, Token: r.Token})
		sets = append(sets, settlement(r, store.Succeed, "result of "+r.ID.Key))
	}
	for range 2 {
		for i, c := range e.claims(reqs) {
			if c.Verdict != store.Granted || c.Fence != 1 {
				e.Fatalf("item %d: %s", i, show(c))
			}
		}
		renewed, err := e.st.Renew(e.ctx, leases, long)
		e.codes("Renew", renewed, err, want...)
	}
	settled, err := e.st.Settle(e.ctx, sets)
	e.codes("Settle", settled, err, want...)
	for i := range reqs {
		want[i], reqs[i].Token = store.Already, store.NewToken()
	}
	settled, err = e.st.Settle(e.ctx, sets)
	e.codes("Settle", settled, err, want...)
	for i, c := range e.claims(reqs) {
		if c.Verdict != store.Done || string(c.Payload) != "result of "+reqs[i].ID.Key || c.Holder != reqs[i].Holder {
			e.Fatalf("item %d: %s", i, show(c))
		}
	}
}

func effectBatch(e *env) {
	var reqs []store.ClaimRequest
	want := map[store.ID]store.Verdict{}
	for i := range min(16, e.batch()/2) {
		p := e.parent()
		for _, name := range []string{"charge", "receipt"} {
			r := e.effectReq(p, name)
			want[r.ID] = store.Granted
			if i%4 == 3 {
				r.Parent, want[r.ID] = store.NewToken(), store.Refused
			}
			reqs = append(reqs, r)
		}
	}
	sorted(reqs)
	var sets []store.Settlement
	var codes []store.Code
	for i, c := range e.claims(reqs) {
		if c.Verdict != want[reqs[i].ID] {
			e.Fatalf("item %d: %s, want %s", i, show(c), want[reqs[i].ID])
		}
		k, code := store.Release, store.Absent
		if c.Verdict == store.Granted {
			k, code = store.Succeed, store.OK
		}
		sets, codes = append(sets, settlement(reqs[i], k, "")), append(codes, code)
	}
	settled, err := e.st.Settle(e.ctx, sets)
	e.codes("Settle", settled, err, codes...)
}

// neighbours sends what is hard to store between what is easy.
func neighbours(e *env) {
	a, b, c := e.req("a"), e.req("b\x00\xff"), e.req("c")
	out := e.claims([]store.ClaimRequest{a, b, c})
	for i, c := range out {
		if c.Verdict != store.Granted {
			e.Errorf("item %d: %s", i, show(c))
		}
	}
	big := make([]byte, store.MaxPayload)
	sets := []store.Settlement{settlement(a, store.Succeed, "a"), settlement(b, store.Succeed, string(big)), settlement(c, store.Succeed, "c")}
	settled, err := e.st.Settle(e.ctx, sets)
	e.codes("Settle", settled, err, store.OK, store.OK, store.OK)
	if c := e.verdict(e.req("c"), store.Done); string(c.Payload) != "c" {
		e.Errorf("payload %q", c.Payload)
	}
}
