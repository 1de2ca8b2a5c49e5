package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/secondrun/secondrun/store"
)

func adminChecks() []check {
	checks := []check{
		{"an empty reason is refused", adminNeedsReason},
		{"what is absent has nothing to change", adminAbsent},
		{"Reopen forgets the last token", reopenForgetsToken},
		{"Reopen and the effects", reopenEffects},
		{"Reopen of an effect", reopenOneEffect},
		{"Forget and the effects", forgetEffects},
		{"Forget of an effect", forgetOneEffect},
		{"ForceRelease takes the claim away", forceReleaseTakes},
		{"ForceRelease leaves effects to the next owner", forceReleaseEffects},
	}
	prepared := situations()
	for _, name := range slices.Sorted(maps.Keys(prepared)) {
		checks = append(checks,
			check{"Reopen " + name, func(e *env) { reopens(e, prepared[name](e)) }},
			check{"Forget " + name, func(e *env) { forgets(e, prepared[name](e)) }},
			check{"ForceRelease " + name, func(e *env) { forceReleases(e, prepared[name](e), name) }},
		)
	}
	return checks
}

func (e *env) admin() store.Admin {
	e.Helper()
	a, ok := e.st.(store.Admin)
	if !ok {
		e.Skip("the store does not implement store.Admin")
	}
	return a
}

// do calls one of the three by the name that audits have for it.
func (e *env) do(action string, id store.ID, reason string) (bool, error) {
	switch a := e.admin(); action {
	case "reopen":
		return a.Reopen(e.ctx, id, reason)
	case "forget":
		return a.Forget(e.ctx, id, reason)
	default:
		return a.ForceRelease(e.ctx, id, reason)
	}
}

// done does it and compares the answer and the audit.
func (e *env) done(action string, id store.ID, want bool) {
	e.Helper()
	e.admin()
	before := e.look(id)
	reason := "because " + random()
	ok, err := e.do(action, id, reason)
	if err != nil || ok != want {
		e.Fatalf("%s = %t, %v, want %t", action, ok, err, want)
	}
	if want {
		e.audited(action, id, reason, before)
	} else if now := e.look(id); fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", now) && before != nil && now != nil &&
		fmt.Sprintf("%+v", *before) != fmt.Sprintf("%+v", *now) {
		e.Errorf("%s changed what it has no meaning for:\nbefore %+v\n after %+v", action, *before, *now)
	}
}

// audited looks for the one audit of a successful call.
func (e *env) audited(action string, id store.ID, reason string, before *store.Record) {
	e.Helper()
	if e.h.Audits == nil {
		e.Errorf("Harness.Audits is nil although the store implements store.Admin")
		return
	}
	var found []store.Audit
	for _, a := range e.h.Audits() {
		if a.Reason == reason && a.ID.Effect == id.Effect {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		e.Fatalf("%d audits of %s, want 1", len(found), action)
	}
	a := found[0]
	if a.Action != action || store.DecodeID(a.ID.Encode()) != store.DecodeID(id.Encode()) || a.At.IsZero() {
		e.Errorf("audit %+v, want %s of %+v", a, action, id)
	}
	if before != nil && (a.Before.State != before.State || a.Before.Failure != before.Failure ||
		a.Before.Fence != before.Fence || a.Before.Holder != before.Holder || string(a.Before.Payload) != string(before.Payload)) {
		e.Errorf("the audit shows %+v, it was %+v", a.Before, *before)
	}
}

func adminNeedsReason(e *env) {
	s := first(e)
	for _, action := range []string{"reopen", "forget", "force-release"} {
		if _, err := e.do(action, s.owner.ID, ""); err == nil {
			e.Errorf("%s without a reason: no error", action)
		}
	}
	e.renewed(s.owner.ID, s.owner.Token, long, store.OK)
	s = s.settled(e, store.Park, false)
	if _, err := e.do("reopen", s.owner.ID, ""); err == nil {
		e.Errorf("reopen without a reason: no error")
	}
	e.verdict(e.req(s.owner.ID.Key), store.Failed)
}

func adminAbsent(e *env) {
	e.admin()
	gone := expire(e, store.Fail)
	_, goneEffect := e.ended()
	for _, action := range []string{"reopen", "forget", "force-release"} {
		e.done(action, e.id("never seen"), false)
		e.done(action, e.effect("never seen", "f"), false)
		e.done(action, gone.owner.ID, false)
		e.done(action, goneEffect.ID, false)
	}
	e.answered(e.req(gone.owner.ID.Key), afresh)
}

func reopens(e *env, s situation) {
	meant := s.c.Failure != 0
	e.done("reopen", s.owner.ID, meant)
	if !meant {
		e.unmoved(s)
		return
	}
	e.done("reopen", s.owner.ID, false) // it is released now
	r := e.req(s.owner.ID.Key)
	r.MaxFailures, r.MaxCrashes, r.KeepFailures, r.Delivery = 1, 1, true, s.owner.Delivery
	e.answered(r, store.Claim{Verdict: store.Granted, Fence: s.c.Fence + 1, Starts: s.c.Starts + 1, Remaining: long})
}

func forgets(e *env, s situation) {
	e.done("forget", s.owner.ID, true)
	e.done("forget", s.owner.ID, false)
	if rec := e.look(s.owner.ID); rec != nil {
		e.Errorf("Get: %+v", *rec)
	}
	e.renewed(s.owner.ID, s.owner.Token, long, store.Lost)
	e.settled(settlement(s.owner, store.Fail, ""), store.Absent)
	e.answered(ask{print: "other"}.request(e, s), afresh)
}

func forceReleases(e *env, s situation, name string) {
	meant := strings.HasPrefix(name, "claimed") || strings.HasPrefix(name, "lease over")
	e.done("force-release", s.owner.ID, meant)
	if !meant {
		e.unmoved(s)
		return
	}
	e.done("force-release", s.owner.ID, false)
	e.renewed(s.owner.ID, s.owner.Token, long, store.Lost)
	for _, k := range kinds {
		e.settled(settlement(s.owner, k, ""), store.Lost)
	}
	// The counters stay; this is not a takeover.
	e.answered(e.req(s.owner.ID.Key), store.Claim{
		Verdict: store.Granted, Fence: s.c.Fence + 1, Starts: s.c.Starts + 1,
		Failures: s.c.Failures, Crashes: s.c.Crashes, Remaining: long,
	})
}

func reopenForgetsToken(e *env) {
	s := first(e).settled(e, store.Retry, false).closed(e, exhaust, store.Exhausted, store.FailedExhausted)
	e.done("reopen", s.owner.ID, true)
	e.settled(settlement(s.owner, store.Succeed, "late"), store.Lost)
	e.renewed(s.owner.ID, s.owner.Token, long, store.Lost)
	e.granted(s.judge) // nor is the judge known any more
	e.settled(settlement(s.judge, store.Fail, ""), store.OK)
	e.done("reopen", s.owner.ID, true)
	e.granted(s.judge) // the token is not spent
}

func reopenEffects(e *env) {
	e.admin()
	p := e.parent()
	paid, failed, parked, open := e.effectReq(p, "paid"), e.effectReq(p, "failed"), e.effectReq(p, "parked"), e.effectReq(p, "open")
	for _, r := range []store.ClaimRequest{paid, failed, parked, open} {
		e.granted(r)
	}
	e.settled(settlement(paid, store.Succeed, "paid"), store.OK)
	e.settled(settlement(failed, store.Fail, ""), store.OK)
	e.settled(settlement(parked, store.Park, ""), store.OK)
	e.settled(settlement(p, store.Fail, ""), store.OK)
	e.done("reopen", p.ID, true)
	next := e.req(p.ID.Key)
	e.granted(next)
	if c := e.verdict(e.effectReq(next, "paid"), store.Done); string(c.Payload) != "paid" {
		e.Errorf("payload %q", c.Payload)
	}
	for _, name := range []string{"failed", "parked"} {
		c := e.granted(e.effectReq(next, name)) // with the same delivery
		if c.Takeover || c.Fence != 2 || c.Failures != 0 {
			e.Errorf("%s: %s", name, show(c))
		}
	}
	if c := e.granted(e.effectReq(next, "open")); !c.Takeover {
		e.Errorf("open: %s, want a takeover", show(c))
	}
}

func reopenOneEffect(e *env) {
	e.admin()
	p := e.parent()
	a, b := e.effectReq(p, "a"), e.effectReq(p, "b")
	for _, r := range []store.ClaimRequest{a, b} {
		e.granted(r)
		e.settled(settlement(r, store.Park, ""), store.OK)
	}
	e.done("reopen", a.ID, true)
	e.granted(e.effectReq(p, "a"))
	e.verdict(e.effectReq(p, "b"), store.Failed)
	e.renewed(p.ID, p.Token, long, store.OK)
}

func forgetEffects(e *env) {
	e.admin()
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	e.settled(settlement(r, store.Succeed, "charged"), store.OK)
	e.done("forget", p.ID, true)
	e.settled(settlement(r, store.Fail, ""), store.Absent)
	e.verdict(e.effectReq(p, "f"), store.Refused)
	e.answered(p, afresh)
	e.answered(e.effectReq(p, "f"), afresh)
}

func forgetOneEffect(e *env) {
	e.admin()
	p := e.parent()
	a, b := e.effectReq(p, "a"), e.effectReq(p, "b")
	for _, r := range []store.ClaimRequest{a, b} {
		e.granted(r)
		e.settled(settlement(r, store.Succeed, ""), store.OK)
	}
	e.done("forget", a.ID, true)
	e.answered(e.effectReq(p, "a"), afresh)
	e.verdict(e.effectReq(p, "b"), store.Done)
	e.renewed(p.ID, p.Token, long, store.OK)
}

func forceReleaseTakes(e *env) {
	e.admin()
	s := first(e)
	e.done("force-release", s.owner.ID, true)
	n := e.req(s.owner.ID.Key)
	if c := e.granted(n); c.Takeover || c.Fence != 2 {
		e.Errorf("%s, want fence 2 and no takeover", show(c))
	}
	e.settled(settlement(s.owner, store.Succeed, "zombie"), store.Lost)
	e.settled(settlement(n, store.Succeed, "new"), store.OK)
	if c := e.verdict(e.req(n.ID.Key), store.Done); string(c.Payload) != "new" {
		e.Errorf("payload %q", c.Payload)
	}
}

func forceReleaseEffects(e *env) {
	e.admin()
	p := e.parent()
	paid, open := e.effectReq(p, "paid"), e.effectReq(p, "open")
	e.granted(paid)
	e.granted(open)
	e.settled(settlement(paid, store.Succeed, "paid"), store.OK)
	e.done("force-release", p.ID, true)
	e.verdict(e.effectReq(p, "other"), store.Refused)
	next := e.req(p.ID.Key)
	e.granted(next)
	e.verdict(e.effectReq(next, "paid"), store.Done)
	if c := e.granted(e.effectReq(next, "open")); !c.Takeover {
		e.Errorf("%s, want a takeover", show(c))
	}
	e.done("force-release", e.effect(p.ID.Key, "open"), true)
	if c := e.granted(e.effectReq(next, "open")); c.Takeover || c.Fence != 3 {
		e.Errorf("%s, want fence 3 and no takeover", show(c))
	}
}
