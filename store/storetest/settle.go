package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"time"

	"github.com/secondrun/secondrun/store"
)

var kinds = []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park}

// after is the state that a settlement leads to.
func after(k store.Kind) (store.State, store.Failure) {
	switch k {
	case store.Succeed:
		return store.StateSucceeded, 0
	case store.Fail:
		return store.StateFailed, store.FailedTerminal
	case store.Retry:
		return store.StateFailed, store.FailedTransient
	case store.Park:
		return store.StateFailed, store.FailedParked
	default:
		return store.StateReleased, 0
	}
}

func settleChecks() []check {
	checks := []check{}
	for _, k := range kinds {
		checks = append(checks,
			check{k.String() + ", and again", func(e *env) { settleTwice(e, first(e), k) }},
			check{"Z03 " + k.String() + " after the lease", func(e *env) { settleTwice(e, first(e).over(e), k) }},
			check{"Z01 Z02 Z04 Z05 " + k.String() + " by a displaced owner", func(e *env) { displaced(e, k) }},
			check{"A07 " + k.String() + " without a record", func(e *env) { settleAbsent(e, k) }},
		)
	}
	prepared := situations()
	names := make([]string, 0, len(prepared))
	for name := range prepared {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		checks = append(checks,
			check{name + ", settled and renewed by strangers", func(e *env) { strangers(e, prepared[name](e)) }},
			check{name + ", renewed", func(e *env) { renewing(e, prepared[name](e), name) }},
		)
	}
	for _, name := range []string{"exhausted", "parked by a claim"} {
		checks = append(checks, check{name + ", late success", func(e *env) { lateSuccess(e, prepared[name](e)) }})
	}
	return append(checks,
		check{"a wait is for Retry and Release only", onlySomeWait},
		check{"a renewal sets the end, it does not add", renewSets},
		check{"answers follow a settlement at once", answersFollow},
	)
}

// settleTwice settles as k and then repeats that and tries everything else.
func settleTwice(e *env, s situation, k store.Kind) {
	set := settlement(s.owner, k, "first")
	e.settled(set, store.OK)
	state, failure := after(k)
	failures := s.c.Failures
	if k == store.Fail || k == store.Retry {
		failures++
	}
	want := store.Record{
		ID: s.owner.ID, State: state, Failure: failure, Fence: s.c.Fence, Starts: s.c.Starts,
		Failures: failures, Crashes: s.c.Crashes, Fingerprint: s.owner.Fingerprint,
		Delivery: s.owner.Delivery, Holder: s.owner.Holder, Trace: s.owner.Trace, Payload: set.Payload,
	}
	seen := e.look(s.owner.ID)
	if k == store.Release && seen != nil {
		want.Payload = seen.Payload // no one is ever given it
	}
	e.shown(seen, want)
	for _, other := range append([]store.Kind{k}, kinds...) {
		if k == store.Park && other == store.Succeed {
			continue // see lateSuccess; whether it was parked by the owner itself is not known any more
		}
		again := settlement(s.owner, other, "second")
		again.NotBefore, again.Retention = long, 1
		e.already(again, state, failure)
	}
	if now := e.look(s.owner.ID); !reflect.DeepEqual(seen, now) {
		e.Errorf("Already has changed something:\nbefore %+v\n after %+v", seen, now)
	}
	settledAs(e, s, k)
}

// settledAs asks what strangers are told after the settlement.
func settledAs(e *env, s situation, k store.Kind) {
	e.Helper()
	w := s.c
	w.Payload = []byte("first")
	switch k {
	case store.Succeed:
		w.Verdict = store.Done
	case store.Fail:
		w.Verdict, w.Failure = store.Failed, store.FailedTerminal
		w.Failures++
	case store.Park:
		w.Verdict, w.Failure = store.Failed, store.FailedParked
	default:
		w = store.Claim{
			Verdict: store.Granted, Fence: w.Fence + 1, Starts: w.Starts + 1,
			Failures: w.Failures, Crashes: w.Crashes, Remaining: long,
		}
		if k == store.Retry {
			w.Failures++
		}
	}
	r := e.req(s.owner.ID.Key)
	r.Delivery = s.owner.Delivery
	e.answered(r, w)
}

// displaced lets an old owner try to settle as k beside and after the new one.
func displaced(e *env, k store.Kind) {
	old := first(e).over(e)
	s := old.next(e, true)
	set := settlement(old.owner, k, "zombie")
	before := e.look(set.ID)
	e.settled(set, store.Lost)
	e.renewed(set.ID, set.Token, long, store.Lost)
	if now := e.look(set.ID); !reflect.DeepEqual(before, now) {
		e.Errorf("Lost has changed something:\nbefore %+v\n after %+v", before, now)
	}
	e.verdict(e.req(set.ID.Key), store.Busy)
	e.renewed(set.ID, s.owner.Token, long, store.OK)
	e.settled(settlement(s.owner, store.Succeed, "the new owner's"), store.OK)
	e.settled(set, store.Lost)
	e.renewed(set.ID, set.Token, long, store.Lost)
	c := e.verdict(e.req(set.ID.Key), store.Done)
	if string(c.Payload) != "the new owner's" || c.Fence != 2 {
		e.Errorf("the zombie's settlement shows: %s", show(c))
	}
}

func settleAbsent(e *env, k store.Kind) {
	r := e.req("k")
	e.settled(settlement(r, k, "late"), store.Absent)
	if k != store.Succeed {
		e.settled(settlement(r, k, "late"), store.Absent)
		e.answered(r, afresh)
		return
	}
	e.already(settlement(r, k, "later"), store.StateSucceeded, 0)
	e.renewed(r.ID, store.NewToken(), long, store.Lost)
	for _, tok := range []store.Token{r.Token, store.NewToken()} {
		r.Token = tok
		if c := e.verdict(r, store.Done); string(c.Payload) != "late" {
			e.Errorf("payload %q", c.Payload)
		}
	}
}

// strangers try everything with tokens that own nothing.
func strangers(e *env, s situation) {
	before := e.look(s.owner.ID)
	tokens := []store.Token{store.NewToken()}
	if !s.judge.Token.IsZero() {
		tokens = append(tokens, s.judge.Token)
	}
	for _, tok := range tokens {
		for _, k := range kinds {
			set := settlement(s.owner, k, "stranger's")
			set.Token = tok
			e.settled(set, store.Lost)
		}
		e.renewed(s.owner.ID, tok, 2*long, store.Lost)
	}
	if now := e.look(s.owner.ID); !reflect.DeepEqual(before, now) {
		e.Errorf("Lost has changed something:\nbefore %+v\n after %+v", before, now)
	}
	e.unmoved(s)
}

// unmoved checks without an Inspector that a stranger has changed nothing.
func (e *env) unmoved(s situation) {
	e.Helper()
	r := e.req(s.owner.ID.Key)
	r.Delivery, r.KeepFailures = s.owner.Delivery, true
	c := e.claim(r)
	if string(c.Payload) == "stranger's" || c.Failures != s.c.Failures || c.Fence > s.c.Fence+1 ||
		c.Verdict == store.Busy && c.Remaining > long {
		e.Errorf("a stranger has changed the record: %s", show(c))
	}
}

// renewing renews with the owner's token.
func renewing(e *env, s situation, name string) {
	claimed := slices.Contains([]string{
		"claimed", "lease over", "claimed after a failure", "claimed by takeover",
		"lease over after a failure", "lease over after a takeover",
	}, name)
	if !claimed {
		before := e.look(s.owner.ID)
		st := e.renewed(s.owner.ID, s.owner.Token, long, store.Already)
		want := store.StateFailed
		switch {
		case s.c.Failure == 0 && s.c.Payload != nil:
			want = store.StateSucceeded
		case s.c.Failure == 0:
			want = store.StateReleased
		}
		if st.State != want || st.Failure != s.c.Failure {
			e.Errorf("already %s (%s), want %s (%s)", st.State, st.Failure, want, s.c.Failure)
		}
		if now := e.look(s.owner.ID); !reflect.DeepEqual(before, now) {
			e.Errorf("Already has changed something:\nbefore %+v\n after %+v", before, now)
		}
		return
	}
	e.renewed(s.owner.ID, s.owner.Token, 2*long, store.OK)
	w := s.c
	w.Verdict, w.Remaining = store.Busy, 2*long
	e.answered(e.req(s.owner.ID.Key), w)
	e.settled(settlement(s.owner, store.Succeed, ""), store.OK)
}

// lateSuccess settles what others have closed.
func lateSuccess(e *env, s situation) {
	for _, k := range kinds[1:] {
		e.already(settlement(s.owner, k, "no"), store.StateFailed, s.c.Failure)
	}
	e.renewed(s.owner.ID, s.owner.Token, long, store.Already)
	set := settlement(s.owner, store.Succeed, "it had worked")
	e.settled(set, store.OK)
	e.already(set, store.StateSucceeded, 0)
	w := s.c
	w.Verdict, w.Failure, w.Payload = store.Done, 0, set.Payload
	e.answered(e.req(s.owner.ID.Key), w)
	e.answered(s.judge, w) // the judge as well
	// Not after somebody else was granted.
	s = first(e).settled(e, store.Retry, false).closed(e, exhaust, store.Exhausted, store.FailedExhausted)
	e.granted(e.req(s.owner.ID.Key))
	e.settled(settlement(s.owner, store.Succeed, "zombie"), store.Lost)
	e.verdict(e.req(s.owner.ID.Key), store.Busy)
}

func onlySomeWait(e *env) {
	s := first(e)
	set := settlement(s.owner, store.Fail, "")
	set.NotBefore = long
	e.settled(set, store.OK)
	e.granted(e.req(s.owner.ID.Key))
	for _, k := range []store.Kind{store.Retry, store.Release} {
		s := first(e)
		set := settlement(s.owner, k, "")
		set.NotBefore = long
		e.settled(set, store.OK)
		c := e.verdict(e.req(s.owner.ID.Key), store.Busy)
		if err := e.remaining(c.Remaining, long); err != nil {
			e.Error(err)
		}
	}
}

func renewSets(e *env) {
	s := first(e)
	for _, d := range []time.Duration{3 * long, 2 * long, 4 * long, long} {
		e.renewed(s.owner.ID, s.owner.Token, d, store.OK)
	}
	c := e.verdict(e.req(s.owner.ID.Key), store.Busy)
	if err := e.remaining(c.Remaining, long); err != nil {
		e.Error(err)
	}
	e.over(s.owner)
	if c := e.granted(s.owner); c.Remaining > 0 {
		e.Errorf("the owner is told that %v of its lease remain; it is over", c.Remaining)
	}
	e.renewed(s.owner.ID, s.owner.Token, long, store.OK)
	if c := e.granted(s.owner); c.Remaining <= 0 || c.Takeover || c.Fence != 1 {
		e.Errorf("after a renewal: %s", show(c))
	}
}

func answersFollow(e *env) {
	for i := range 5 {
		s := first(e)
		for range 3 {
			e.verdict(e.req(s.owner.ID.Key), store.Busy)
		}
		payload := fmt.Sprint("result ", i)
		e.settled(settlement(s.owner, store.Succeed, payload), store.OK)
		for _, st := range []store.Store{e.peer, e.st, e.peer} {
			c := e.claimOn(st, e.req(s.owner.ID.Key))
			if c.Verdict != store.Done || string(c.Payload) != payload {
				e.Errorf("after the settlement: %s", show(c))
			}
		}
	}
}
