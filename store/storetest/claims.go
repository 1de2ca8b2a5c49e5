package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
)

// ask says how a claim differs from one by a stranger: another token, another
// delivery, no fingerprint, no limits.
type ask struct {
	token    string // "" another one, "owner", "judge"
	delivery string // "" another one, "owner", "judge", "none"
	print    string // "" none, "same", "other", "version" (other content and version)
	failures int    // MaxFailures
	crashes  int    // MaxCrashes
	park     bool
	keep     bool
}

func (a ask) String() string {
	type fields ask // without this method
	s := strings.ReplaceAll(fmt.Sprintf("%+v", fields(a)), ":", "=")
	var parts []string
	for _, p := range strings.Fields(strings.Trim(s, "{}")) {
		if _, v, _ := strings.Cut(p, "="); v != "" && v != "0" && v != "false" {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "a stranger"
	}
	return strings.Join(parts, " ")
}

// request is the claim that a describes.
func (a ask) request(e *env, s situation) store.ClaimRequest {
	r := e.req(s.owner.ID.Key)
	r.Holder, r.Trace, r.Delivery = "new holder", "new trace", "new delivery"
	switch a.token {
	case "owner":
		r.Token = s.owner.Token
	case "judge":
		r.Token = s.judge.Token
	}
	switch a.delivery {
	case "owner":
		r.Delivery = s.owner.Delivery
	case "judge":
		r.Delivery = s.judge.Delivery
	case "none":
		r.Delivery = ""
	}
	switch a.print {
	case "same":
		r.Fingerprint = fingerprint(1, 'a')
	case "other":
		r.Fingerprint = fingerprint(1, 'b')
	case "version":
		r.Fingerprint = fingerprint(2, 'b')
	}
	r.MaxFailures, r.MaxCrashes, r.ParkOnTakeover, r.KeepFailures = a.failures, a.crashes, a.park, a.keep
	return r
}

// outcome is what a claim must be answered, and what it must do.
type outcome int

const (
	busy      outcome = iota
	again             // granted, as before
	done              //
	failed            // as settled or closed before
	exhausts          // closes the record
	exhausted         // the judge again
	parks             // closes the record
	conflict          //
	refused           //
	grant             // counters go on
	takeover          // crashes + 1
	newBudget         // failures and crashes 0
)

// rows is the claim table. Every line says which row it is about; most are
// about the order of two.
var rows = []struct {
	state string
	ask   ask
	want  outcome
}{
	{"claimed", ask{}, busy},
	{"claimed", ask{print: "same"}, busy},
	{"claimed", ask{print: "version"}, busy},
	{"claimed", ask{print: "other"}, conflict},                 // 2 before 5
	{"claimed", ask{token: "owner"}, again},                    // 3 before 5
	{"claimed", ask{token: "owner", print: "other"}, conflict}, // 2 before 3
	{"claimed", ask{park: true}, busy},                         // 5 before 10
	{"claimed", ask{delivery: "owner", keep: true}, busy},      // the delivery has no say
	{"claimed after a failure", ask{failures: 1}, busy},        // 5 before 9
	{"claimed after a failure", ask{token: "owner", failures: 1}, again},
	{"claimed by takeover", ask{token: "owner"}, again},
	{"claimed by takeover", ask{crashes: 1}, busy},

	{"lease over", ask{}, takeover},
	{"lease over", ask{print: "other"}, conflict}, // 2 before 10
	{"lease over", ask{token: "owner"}, again},    // 3 before 10
	{"lease over", ask{token: "owner", park: true}, again},
	{"lease over", ask{crashes: 1, failures: 1}, takeover},
	{"lease over", ask{keep: true, delivery: "owner"}, takeover},
	{"lease over", ask{park: true}, parks},
	{"lease over after a failure", ask{failures: 1}, exhausts},
	{"lease over after a failure", ask{failures: 2}, takeover},
	{"lease over after a failure", ask{failures: 1, park: true}, exhausts}, // 9 before 10
	{"lease over after a failure", ask{failures: 1, token: "owner"}, again},
	{"lease over after a takeover", ask{crashes: 1}, exhausts},
	{"lease over after a takeover", ask{crashes: 2}, takeover},
	{"lease over after a takeover", ask{failures: 1}, takeover},

	{"released", ask{}, grant},
	{"released", ask{print: "other"}, conflict},
	{"released", ask{print: "version"}, grant},
	{"released", ask{token: "owner"}, refused},
	{"released", ask{park: true}, grant},
	{"released", ask{delivery: "owner", keep: true}, grant},
	{"released, waiting", ask{}, busy},
	{"released, waiting", ask{print: "other"}, conflict},  // 2 before 11
	{"released, waiting", ask{token: "owner"}, refused},   // 3 before 11
	{"released after a failure", ask{failures: 1}, grant}, // 9 is not for released records

	{"transient", ask{}, grant},
	{"transient", ask{print: "other"}, conflict},
	{"transient", ask{token: "owner"}, refused},
	{"transient", ask{token: "owner", failures: 1}, refused}, // 3 before 9
	{"transient", ask{failures: 1}, exhausts},
	{"transient", ask{failures: 2, crashes: 1}, grant},
	{"transient", ask{failures: 1, print: "other"}, conflict}, // 2 before 9
	{"transient", ask{keep: true, delivery: "owner"}, grant},
	{"transient, waiting", ask{}, busy},
	{"transient, waiting", ask{failures: 1}, exhausts}, // 9 before 11

	{"succeeded", ask{}, done},
	{"succeeded", ask{print: "same"}, done},
	{"succeeded", ask{print: "version"}, done},
	{"succeeded", ask{print: "other"}, conflict}, // 2 before 4
	{"succeeded", ask{token: "owner"}, done},
	{"succeeded", ask{token: "owner", print: "other"}, conflict},
	{"succeeded", ask{keep: true, park: true, delivery: "owner"}, done},
	{"succeeded after a failure", ask{failures: 1, crashes: 1}, done},

	{"terminal", ask{}, newBudget},
	{"terminal", ask{print: "other"}, newBudget}, // 2 is not for what failed for good
	{"terminal", ask{failures: 1}, newBudget},
	{"terminal", ask{delivery: "owner"}, failed},
	{"terminal", ask{delivery: "owner", print: "other"}, failed},
	{"terminal", ask{keep: true}, failed},
	{"terminal", ask{keep: true, delivery: "none"}, failed},
	{"terminal", ask{delivery: "none"}, newBudget},
	{"terminal", ask{token: "owner"}, failed},
	{"terminal without delivery", ask{delivery: "none"}, newBudget}, // unknown is not equal

	{"exhausted", ask{}, newBudget},
	{"exhausted", ask{failures: 1}, newBudget},
	{"exhausted", ask{delivery: "judge"}, failed},
	{"exhausted", ask{delivery: "owner"}, newBudget}, // the judge's delivery has replaced it
	{"exhausted", ask{keep: true}, failed},
	{"exhausted", ask{token: "owner"}, failed},
	{"exhausted", ask{token: "judge"}, exhausted},
	{"exhausted", ask{token: "judge", print: "other"}, exhausted},

	{"parked", ask{}, failed},
	{"parked", ask{print: "other"}, failed},
	{"parked", ask{token: "owner"}, failed},
	{"parked", ask{failures: 1, delivery: "none"}, failed},
	{"parked by a claim", ask{}, failed},
	{"parked by a claim", ask{token: "owner"}, failed},
	{"parked by a claim", ask{token: "judge", park: true}, failed},
}

func claimChecks() []check {
	checks := []check{{"absent, granted", absentIsGranted}}
	prepared := situations()
	for _, row := range rows {
		checks = append(checks, check{
			name: fmt.Sprintf("%s, %s", row.state, row.ask),
			run:  func(e *env) { checkRow(e, prepared[row.state](e), row.ask, row.want) },
		})
	}
	return append(checks,
		check{"the new fingerprint replaces the old one", fingerprintReplaced},
		check{"no fingerprint keeps the old one", fingerprintKept},
		check{"a grant replaces holder, trace and delivery", textsReplaced},
		check{"fence and starts grow over every way to a grant", fenceGrows},
		check{"a wait ends", waitEnds},
		check{"a lease is not over early", notEarly},
		check{"a wait is not over early", waitNotEarly},
		check{"a lease ends exactly at its end", leaseBoundary},
		check{"a wait ends exactly at its end", waitBoundary},
		check{"a short lease is not rounded down to none", tinyLease},
	)
}

func absentIsGranted(e *env) {
	for _, a := range []ask{{}, {failures: 1, crashes: 1}, {park: true, keep: true}, {print: "other", delivery: "none"}} {
		s := situation{owner: e.req("key-" + random())}
		r := a.request(e, s)
		want := store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long}
		e.answered(r, want)
		e.answered(r, want)
	}
}

// checkRow asks once, compares the answer and what was written, and asks again.
func checkRow(e *env, s situation, a ask, o outcome) {
	r := a.request(e, s)
	want := expected(s, o)
	before := e.look(r.ID)
	got := e.claim(r)
	if o == again { // neither the displaced run nor what is left is known any more
		got.Holder, got.Trace, got.Remaining = "", "", want.Remaining
	}
	if err := e.differs(got, want); err != nil {
		e.Fatalf("%v\n got %s\nwant %s", err, show(got), show(want))
	}
	after := e.look(r.ID)
	switch o {
	case exhausts, parks, grant, takeover, newBudget:
		e.written(s, r, o, after)
	default:
		if !reflect.DeepEqual(before, after) {
			e.Errorf("%s wrote something:\nbefore %+v\n after %+v", want.Verdict, before, after)
		}
	}
	if c := e.claim(r); c.Verdict != want.Verdict || c.Takeover != want.Takeover || c.Fence != got.Fence {
		e.Errorf("asked again with the same token: %s\nfirst: %s", show(c), show(got))
	}
}

// expected is the answer that o stands for.
func expected(s situation, o outcome) store.Claim {
	w := s.c
	switch o {
	case busy:
		w.Verdict, w.Remaining, w.Payload = store.Busy, long, nil
	case again:
		w = store.Claim{
			Verdict: store.Granted, Takeover: w.Crashes > 0,
			Fence: w.Fence, Starts: w.Starts, Failures: w.Failures, Crashes: w.Crashes,
		}
	case done:
		w.Verdict = store.Done
	case failed:
		w.Verdict = store.Failed
	case exhausts, exhausted:
		w.Verdict, w.Failure = store.Exhausted, store.FailedExhausted
	case parks:
		w.Verdict, w.Failure = store.Failed, store.FailedParked
	case conflict:
		w = store.Claim{Verdict: store.Conflict}
	case refused:
		w = store.Claim{Verdict: store.Refused}
	case grant, takeover, newBudget:
		w = store.Claim{
			Verdict: store.Granted, Remaining: long,
			Fence: w.Fence + 1, Starts: w.Starts + 1, Failures: w.Failures, Crashes: w.Crashes,
		}
		if o == takeover {
			w.Takeover, w.Holder, w.Trace = true, s.c.Holder, s.c.Trace
			w.Crashes++
		}
		if o == newBudget {
			w.Failures, w.Crashes = 0, 0
		}
	}
	return w
}

// written compares the record that the claim r left behind.
func (e *env) written(s situation, r store.ClaimRequest, o outcome, got *store.Record) {
	e.Helper()
	w := expected(s, o)
	rec := store.Record{
		ID: r.ID, State: store.StateFailed, Failure: w.Failure,
		Fence: w.Fence, Starts: w.Starts, Failures: w.Failures, Crashes: w.Crashes,
		Fingerprint: fingerprint(1, 'a'), Delivery: r.Delivery,
		Holder: w.Holder, Trace: w.Trace, Payload: w.Payload,
	}
	if w.Verdict == store.Granted {
		rec.State, rec.Failure, rec.Holder, rec.Trace, rec.Payload = store.StateClaimed, 0, r.Holder, r.Trace, nil
	}
	if !r.Fingerprint.IsZero() && w.Verdict == store.Granted {
		rec.Fingerprint = r.Fingerprint
	}
	e.shown(got, rec)
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
