package storetest

import (
	"fmt"
	"reflect"
	"strings"

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
	return checks
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
