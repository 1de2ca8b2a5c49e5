package storetest

import (
	"time"

	"github.com/secondrun/secondrun/store"
)

// grantChecks are about more than one grant, and about their ends.
func grantChecks() []check {
	return []check{
		{"the new fingerprint replaces the old one", fingerprintReplaced},
		{"no fingerprint keeps the old one", fingerprintKept},
		{"a grant replaces holder, trace and delivery", textsReplaced},
		{"fence and starts grow over every way to a grant", fenceGrows},
		{"a wait ends", waitEnds},
		{"a lease is not over early", notEarly},
		{"a wait is not over early", waitNotEarly},
		{"Z08 a lease ends exactly at its end", leaseBoundary},
		{"Z08 a wait ends exactly at its end", waitBoundary},
		{"the shortest durations are durations", shortest},
		{"durations of 50 years", longest},
		{"a short lease is not rounded down to none", tinyLease},
		{"Z07 of three owners only the newest records", threeOwners},
		{"U10 a failure is not taken for done", failureIsNotDone},
		{"U10 a crash is not taken for done", crashIsNotDone},
		{"H12 what kills its process starts MaxCrashes + 1 times", poison},
	}
}

func fingerprintReplaced(e *env) {
	s := first(e).settled(e, store.Release, false)
	r := ask{print: "version"}.request(e, s) // version 2, content b
	e.granted(r)
	e.settled(settlement(r, store.Succeed, ""), store.OK)
	other := e.req(r.ID.Key)
	other.Fingerprint = fingerprint(2, 'a')
	e.verdict(other, store.Conflict)
	other.Fingerprint = fingerprint(2, 'b')
	e.verdict(other, store.Done)
	other.Fingerprint = fingerprint(1, 'b') // compared with nothing any more
	e.verdict(other, store.Done)
}

func fingerprintKept(e *env) {
	s := first(e).settled(e, store.Retry, false).next(e, false).settled(e, store.Succeed, false)
	e.verdict(ask{print: "other"}.request(e, s), store.Conflict)
	e.verdict(ask{print: "same"}.request(e, s), store.Done)
	// What failed for good is granted in spite of another fingerprint, which
	// then is the record's.
	s = first(e).settled(e, store.Fail, false)
	r := ask{print: "other"}.request(e, s)
	e.granted(r)
	e.verdict(ask{print: "same"}.request(e, s), store.Conflict)
}

func textsReplaced(e *env) {
	s := first(e).settled(e, store.Fail, false).next(e, false)
	e.answered(e.req(s.owner.ID.Key), store.Claim{
		Verdict: store.Busy, Fence: 2, Starts: 2, Remaining: long, Holder: "second holder", Trace: "second trace",
	})
	s.c.Failures = 0
	s = s.settled(e, store.Fail, false)
	e.verdict(ask{delivery: "owner"}.request(e, s), store.Failed)
	old := e.req(s.owner.ID.Key)
	old.Delivery = "first delivery"
	e.granted(old)
}

// fenceGrows lives a record's longest life.
func fenceGrows(e *env) {
	s := first(e)
	s = s.settled(e, store.Release, false).next(e, false) // 2
	s = s.over(e).next(e, true)                           // 3
	s = s.settled(e, store.Retry, false).next(e, false)   // 4
	s = s.settled(e, store.Fail, false)
	s.c.Failures, s.c.Crashes = 0, 0
	s = s.next(e, false) // 5
	s = s.settled(e, store.Retry, false).closed(e, exhaust, store.Exhausted, store.FailedExhausted)
	s.c.Failures, s.c.Crashes = 0, 0
	s = s.next(e, false).settled(e, store.Succeed, false) // 6
	want := s.c
	want.Verdict = store.Done
	if want.Fence != 6 || want.Starts != 6 {
		e.Fatalf("the check itself expects fence %d, starts %d", want.Fence, want.Starts)
	}
	e.answered(e.req(s.owner.ID.Key), want)
}

func waitEnds(e *env) {
	for _, k := range []store.Kind{store.Retry, store.Release} {
		s := first(e)
		set := settlement(s.owner, k, "")
		set.NotBefore = short
		e.settled(set, store.OK)
		e.pass(short)
		e.granted(e.req(s.owner.ID.Key))
	}
}

// notEarly claims until the lease of another is over, and compares what the
// store's own clock says about the two grants and all that was between them.
func notEarly(e *env) {
	r := e.req("k")
	r.Lease = 3 * short
	c := e.granted(r)
	e.pollUntil("k", c.At.Add(r.Lease))
}

func waitNotEarly(e *env) {
	for _, k := range []store.Kind{store.Retry, store.Release} {
		s := first(e)
		set := settlement(s.owner, k, "")
		set.NotBefore = short
		e.pollUntil(s.owner.ID.Key, e.settled(set, store.OK).At.Add(short))
	}
}

// pollUntil claims key until that is granted, which must not be before end.
func (e *env) pollUntil(key string, end time.Time) {
	e.Helper()
	const precision = 2 * time.Millisecond
	for {
		c := e.claim(e.req(key))
		left := end.Sub(c.At)
		switch {
		case c.Verdict == store.Granted && left > precision:
			e.Fatalf("granted %v too early", left)
		case c.Verdict == store.Granted:
			return
		case c.Verdict != store.Busy || left < -precision:
			e.Fatalf("%v before the end: %s", left, show(c))
		case c.Remaining > left+precision || c.Remaining < left-precision:
			e.Fatalf("%v remain, want %v", c.Remaining, left)
		}
		e.pass(time.Millisecond)
	}
}

func leaseBoundary(e *env) {
	e.exact()
	s := first(e)
	e.renewed(s.owner.ID, s.owner.Token, short, store.OK)
	e.pass(short - time.Millisecond)
	c := e.verdict(e.req(s.owner.ID.Key), store.Busy)
	if c.Remaining != time.Millisecond {
		e.Errorf("1ms before the end: %v remain", c.Remaining)
	}
	e.pass(time.Millisecond)
	if c := e.granted(e.req(s.owner.ID.Key)); !c.Takeover {
		e.Errorf("at the end: %s, want a takeover", show(c))
	}
}

func waitBoundary(e *env) {
	e.exact()
	s := first(e)
	set := settlement(s.owner, store.Retry, "")
	set.NotBefore = short
	e.settled(set, store.OK)
	e.pass(short - time.Millisecond)
	e.verdict(e.req(s.owner.ID.Key), store.Busy)
	e.pass(time.Millisecond)
	e.granted(e.req(s.owner.ID.Key))
}

func tinyLease(e *env) {
	e.exact()
	r := e.req("k")
	r.Lease = 1
	e.granted(r)
	e.verdict(e.req("k"), store.Busy)
	e.pass(2 * time.Millisecond)
	e.granted(e.req("k"))
}

func threeOwners(e *env) {
	a := first(e).over(e)
	b := a.next(e, true).over(e)
	c := b.next(e, true)
	for _, old := range []situation{a, b} {
		e.renewed(old.owner.ID, old.owner.Token, long, store.Lost)
		for _, k := range kinds {
			e.settled(settlement(old.owner, k, "zombie"), store.Lost)
		}
	}
	e.settled(settlement(c.owner, store.Succeed, "newest"), store.OK)
	for _, old := range []situation{a, b} {
		e.settled(settlement(old.owner, store.Succeed, "zombie"), store.Lost)
		r := old.owner // a spent token is a stranger's
		r.Fingerprint = store.Fingerprint{}
		if got := e.verdict(r, store.Done); string(got.Payload) != "newest" || got.Fence != 3 {
			e.Errorf("%s", show(got))
		}
	}
}

func failureIsNotDone(e *env) {
	s := first(e).settled(e, store.Retry, false)
	s = s.next(e, false).settled(e, store.Succeed, false)
	if c := e.verdict(e.req(s.owner.ID.Key), store.Done); c.Starts != 2 || c.Failures != 1 {
		e.Errorf("%s, want two starts and one failure", show(c))
	}
}

func crashIsNotDone(e *env) {
	s := first(e).over(e).next(e, true).settled(e, store.Succeed, false)
	if c := e.verdict(e.req(s.owner.ID.Key), store.Done); c.Starts != 2 || c.Crashes != 1 {
		e.Errorf("%s, want two starts and one crash", show(c))
	}
}

func poison(e *env) {
	const limit = 3
	for start := 1; start <= limit+1; start++ {
		r := e.req("k")
		r.Lease, r.MaxCrashes = short, limit
		if c := e.granted(r); c.Starts != start || c.Crashes != start-1 {
			e.Fatalf("start %d: %s", start, show(c))
		}
		e.pass(short)
	}
	r := e.req("k")
	r.MaxCrashes = limit
	if c := e.verdict(r, store.Exhausted); c.Starts != limit+1 || c.Crashes != limit {
		e.Errorf("%s", show(c))
	}
}

// shortest is less than what most clocks can tell apart. It must neither be
// refused nor mean for ever.
func shortest(e *env) {
	for _, k := range kinds {
		r := e.req("key-" + random())
		r.Lease, r.Retention = 1, 1
		e.granted(r)
		e.pass(2 * time.Millisecond)
		e.renewed(r.ID, r.Token, 1, store.Lost)
		r.Lease, r.Retention = long, keep
		e.answered(r, afresh)
		e.renewed(r.ID, r.Token, 1, store.OK)
		set := settlement(r, k, "")
		set.NotBefore, set.Retention = 1, 1
		e.settled(set, store.OK)
		e.pass(2 * time.Millisecond)
		e.answered(e.req(r.ID.Key), afresh)
	}
}

func longest(e *env) {
	const years = 50 * 365 * 24 * time.Hour
	r := e.req("k")
	r.Lease, r.Retention = years, years
	e.granted(r)
	if c := e.verdict(e.req("k"), store.Busy); c.Remaining < years-long || c.Remaining > years+time.Second {
		e.Errorf("%v remain, want %v", c.Remaining, years)
	}
	e.renewed(r.ID, r.Token, years, store.OK)
	set := settlement(r, store.Retry, "")
	set.NotBefore, set.Retention = years, years
	e.settled(set, store.OK)
	if c := e.verdict(e.req("k"), store.Busy); c.Remaining < years-long || c.Remaining > years+time.Second {
		e.Errorf("%v remain, want %v", c.Remaining, years)
	}
}
