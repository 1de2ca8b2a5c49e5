package storetest

import "github.com/secondrun/secondrun/store"

func effectChecks() []check {
	return []check{
		{"refused unless the parent is claimed by Parent", effectNeedsParent},
		{"refused before anything else is looked at", effectRefusedFirst},
		{"granted, repeated, busy", effectGranted},
		{"granted while the parent's lease is over", effectUnderLateParent},
		{"names are separate records", effectsAreSeparate},
		{"done for later parents", effectDone},
		{"survives every regrant of the parent", effectSurvives},
		{"a newer parent takes over at once", effectNewParent},
		{"a newer parent parks at once", effectNewParentParks},
		{"the lease ends under one parent", effectLeaseOver},
		{"no budget and no KeepFailures", effectNoBudget},
		{"waits like any record", effectWaits},
		{"lives as long as its parent, not shorter", effectOutlivesRetention},
		{"ends with its parent", effectEndsWithParent},
		{"ends with its parent, whoever creates the next one", effectEndsBeforeLateSuccess},
		{"nothing is written under an absent parent", effectParentAbsent},
		{"success without a record creates one", effectLateSuccess},
	}
}

// parent grants a new key.
func (e *env) parent() store.ClaimRequest {
	e.Helper()
	r := e.req("parent-" + random())
	e.granted(r)
	return r
}

// regrant releases the claim p and grants the key again.
func (e *env) regrant(p store.ClaimRequest) store.ClaimRequest {
	e.Helper()
	e.settled(settlement(p, store.Release, ""), store.OK)
	next := e.req(p.ID.Key)
	e.granted(next)
	return next
}

func effectNeedsParent(e *env) {
	stranger := e.req("never seen")
	e.verdict(e.effectReq(stranger, "f"), store.Refused)

	p, other := e.parent(), e.parent()
	r := e.effectReq(p, "f")
	r.Parent = store.NewToken()
	e.verdict(r, store.Refused)
	r.Parent = other.Token // claims something, but not this
	e.verdict(r, store.Refused)

	for _, k := range []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park} {
		p := e.parent()
		e.settled(settlement(p, k, ""), store.OK)
		e.verdict(e.effectReq(p, "f"), store.Refused)
	}
	next := e.regrant(p)
	e.verdict(e.effectReq(p, "f"), store.Refused)
	e.granted(e.effectReq(next, "f"))
}

func effectRefusedFirst(e *env) {
	p := e.parent()
	claimed, done := e.effectReq(p, "claimed"), e.effectReq(p, "done")
	e.granted(claimed)
	e.granted(done)
	e.settled(settlement(done, store.Succeed, "secret"), store.OK)
	e.regrant(p)
	for _, r := range []store.ClaimRequest{claimed, done} { // even with the last token
		if c := e.verdict(r, store.Refused); len(c.Payload) != 0 {
			e.Errorf("refused, but the payload was handed out")
		}
	}
}

func effectGranted(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	want := store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long}
	e.answered(r, want)
	e.answered(r, want)
	want.Verdict, want.Holder, want.Trace = store.Busy, r.Holder, r.Trace
	e.answered(e.effectReq(p, "f"), want)
	e.renewed(r.ID, r.Token, 2*long, store.OK)
	want.Remaining *= 2
	e.answered(e.effectReq(p, "f"), want)
}

func effectUnderLateParent(e *env) {
	p := e.parent()
	e.over(p)
	e.granted(e.effectReq(p, "f"))
}

func effectsAreSeparate(e *env) {
	p := e.parent()
	a, b := e.effectReq(p, "a"), e.effectReq(p, "b")
	e.granted(a)
	e.granted(b)
	e.settled(settlement(a, store.Succeed, "result of a"), store.OK)
	e.settled(settlement(b, store.Fail, "failure of b"), store.OK)
	if c := e.verdict(e.req(p.ID.Key), store.Busy); c.Fence != 1 || c.Failures != 0 {
		e.Errorf("the effects changed their parent: %s", show(c))
	}
	e.settled(settlement(p, store.Succeed, "result of the parent"), store.OK)
	c := e.verdict(e.req(p.ID.Key), store.Done)
	if string(c.Payload) != "result of the parent" {
		e.Errorf("payload %q", c.Payload)
	}
}

func effectDone(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	e.settled(settlement(r, store.Succeed, "charged"), store.OK)
	want := store.Claim{
		Verdict: store.Done, Fence: 1, Starts: 1,
		Holder: r.Holder, Trace: r.Trace, Payload: []byte("charged"),
	}
	e.answered(r, want)
	e.answered(e.effectReq(p, "f"), want)
	e.answered(e.effectReq(e.regrant(p), "f"), want)
}

func effectSurvives(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	e.settled(settlement(r, store.Succeed, "charged"), store.OK)
	next := func(change func(*store.ClaimRequest)) {
		n := e.req(p.ID.Key)
		change(&n)
		e.granted(n)
		p = n
		if c := e.verdict(e.effectReq(p, "f"), store.Done); string(c.Payload) != "charged" {
			e.Errorf("payload %q", c.Payload)
		}
	}
	none := func(*store.ClaimRequest) {}
	e.settled(settlement(p, store.Retry, ""), store.OK)
	next(none)
	e.over(p)
	next(none) // takeover
	e.settled(settlement(p, store.Fail, ""), store.OK)
	next(func(r *store.ClaimRequest) { r.Delivery = "another" })
	e.settled(settlement(p, store.Retry, ""), store.OK)
	judge := e.req(p.ID.Key)
	judge.MaxFailures, judge.Delivery = 1, "the judge's"
	e.verdict(judge, store.Exhausted)
	next(none)
}

func effectNewParent(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	r.Holder, r.Trace = "old holder", "old trace"
	e.granted(r)
	p = e.regrant(p)
	n := e.effectReq(p, "f")
	want := store.Claim{
		Verdict: store.Granted, Takeover: true, Fence: 2, Starts: 2, Crashes: 1, Remaining: long,
		Holder: "old holder", Trace: "old trace",
	}
	e.answered(n, want)
	if c := e.granted(n); !c.Takeover || c.Fence != 2 {
		e.Errorf("repeated: %s", show(c))
	}
	e.renewed(r.ID, r.Token, long, store.Lost)
	e.settled(settlement(r, store.Succeed, "zombie"), store.Lost)
	e.verdict(e.effectReq(p, "f"), store.Busy)
	e.settled(settlement(n, store.Succeed, "new"), store.OK)
	if c := e.verdict(e.effectReq(p, "f"), store.Done); string(c.Payload) != "new" {
		e.Errorf("payload %q", c.Payload)
	}
}

func effectNewParentParks(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	p = e.regrant(p)
	n := e.effectReq(p, "f")
	n.ParkOnTakeover = true
	want := store.Claim{
		Verdict: store.Failed, Failure: store.FailedParked, Fence: 1, Starts: 1, Holder: r.Holder, Trace: r.Trace,
	}
	e.answered(n, want)
	e.answered(n, want)
	e.answered(e.effectReq(p, "f"), want) // whatever the policy of the next one
	e.already(settlement(r, store.Fail, ""), store.StateFailed, store.FailedParked)
	e.settled(settlement(r, store.Succeed, "it had worked"), store.OK)
	if c := e.verdict(e.effectReq(p, "f"), store.Done); string(c.Payload) != "it had worked" {
		e.Errorf("payload %q", c.Payload)
	}
}

func effectLeaseOver(e *env) {
	p := e.parent()
	a, b := e.effectReq(p, "a"), e.effectReq(p, "b")
	e.granted(a)
	e.granted(b)
	e.renewed(a.ID, a.Token, short, store.OK)
	e.over(b)
	if c := e.granted(e.effectReq(p, "a")); !c.Takeover || c.Crashes != 1 {
		e.Errorf("a: %s, want a takeover", show(c))
	}
	n := e.effectReq(p, "b")
	n.ParkOnTakeover = true
	e.verdict(n, store.Failed)
}

func effectNoBudget(e *env) {
	p := e.parent()
	for i := range 4 {
		r := e.effectReq(p, "f")
		r.MaxFailures, r.MaxCrashes, r.KeepFailures = 1, 1, true
		r.Delivery = "" // unknown: a terminal failure is granted to everybody
		want := store.Claim{Verdict: store.Granted, Fence: int64(i + 1), Starts: i + 1, Failures: i, Remaining: long}
		if i == 3 {
			want.Failures = 0 // after a terminal one
		}
		e.answered(r, want)
		k := store.Retry
		if i == 2 {
			k = store.Fail
		}
		e.settled(settlement(r, k, ""), store.OK)
	}
	for range 3 { // takeovers
		p = e.regrant(p)
		r := e.effectReq(p, "g")
		r.MaxFailures, r.MaxCrashes = 1, 1
		e.granted(r)
	}
}

func effectWaits(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	s := settlement(r, store.Retry, "")
	s.NotBefore = long
	e.settled(s, store.OK)
	e.verdict(e.effectReq(p, "f"), store.Busy)
	e.verdict(r, store.Refused) // spent
}

func effectOutlivesRetention(e *env) {
	p := e.parent()
	r := e.effectReq(p, "f")
	r.Retention = 1
	e.granted(r)
	s := settlement(r, store.Succeed, "charged")
	s.Retention = 1
	e.settled(s, store.OK)
	e.pass(short)
	e.already(s, store.StateSucceeded, 0)
	e.verdict(e.effectReq(p, "f"), store.Done)
	if rec := e.look(r.ID); rec == nil {
		if _, ok := e.st.(store.Inspector); ok {
			e.Errorf("Get: the effect is absent")
		}
	}
}

// ended is an effect with success whose parent is past its retention.
func (e *env) ended() (p, r store.ClaimRequest) {
	e.Helper()
	p = e.parent()
	r = e.effectReq(p, "f")
	e.granted(r)
	e.settled(settlement(r, store.Succeed, "charged"), store.OK)
	s := settlement(p, store.Retry, "")
	s.Retention = short
	e.settled(s, store.OK)
	e.pass(short)
	return p, r
}

func effectEndsWithParent(e *env) {
	p, r := e.ended()
	e.renewed(r.ID, r.Token, long, store.Lost)
	e.settled(settlement(r, store.Fail, ""), store.Absent)
	if rec := e.look(r.ID); rec != nil {
		e.Errorf("Get: still there: %+v", rec)
	}
	n := e.req(p.ID.Key)
	e.answered(n, store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long})
	e.settled(settlement(r, store.Release, ""), store.Absent)
	e.answered(e.effectReq(n, "f"), store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long})
}

func effectEndsBeforeLateSuccess(e *env) {
	p, r := e.ended()
	e.settled(settlement(p, store.Succeed, "late"), store.Absent) // begins a new life
	e.renewed(r.ID, r.Token, long, store.Lost)
	e.settled(settlement(r, store.Fail, ""), store.Absent)
	if rec := e.look(r.ID); rec != nil {
		e.Errorf("Get: still there: %+v", rec)
	}
}

func effectParentAbsent(e *env) {
	ended, _ := e.ended()
	for _, p := range []store.ClaimRequest{e.req("never seen"), ended} {
		for _, k := range []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park} {
			r := e.effectReq(p, "f")
			e.settled(settlement(r, k, "nothing"), store.Absent)
			e.settled(settlement(r, k, "nothing"), store.Absent)
			e.renewed(r.ID, r.Token, long, store.Lost)
		}
		e.verdict(e.effectReq(p, "f"), store.Refused)
		e.answered(p, store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long})
		e.answered(e.effectReq(p, "f"), store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long})
	}
}

func effectLateSuccess(e *env) {
	p := e.parent()
	for _, k := range []store.Kind{store.Fail, store.Retry, store.Release, store.Park} {
		e.settled(settlement(e.effectReq(p, "f"), k, ""), store.Absent)
	}
	r := e.effectReq(p, "f")
	e.settled(settlement(r, store.Succeed, "late"), store.Absent)
	e.already(settlement(r, store.Succeed, "late"), store.StateSucceeded, 0)
	if c := e.verdict(e.effectReq(p, "f"), store.Done); string(c.Payload) != "late" {
		e.Errorf("payload %q", c.Payload)
	}
}
