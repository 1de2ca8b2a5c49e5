package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	now   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	later = now.Add(time.Second)

	owner, judge, stranger     = store.Token{1}, store.Token{2}, store.Token{3}
	parentToken, anotherParent = store.Token{4}, store.Token{5}

	printA = store.Fingerprint{Version: 1, Sum: [32]byte{'a'}}
	printB = store.Fingerprint{Version: 1, Sum: [32]byte{'b'}}
	printV = store.Fingerprint{Version: 2, Sum: [32]byte{'b'}}
)

// record is one of the last owner's, in its third start, with a failure and a
// takeover behind it.
func record(s store.State, f store.Failure) rules.Record {
	r := rules.Record{
		State: s, Failure: f, Token: owner, Parent: parentToken, Fence: 3, Starts: 3, Failures: 1, Crashes: 1,
		ExpiresAt: later, Fingerprint: printA, Delivery: "d", Holder: "h", Trace: "t",
	}
	if s == store.StateClaimed {
		r.LeaseEnd = later
	} else {
		r.Payload = []byte("p")
	}
	return r
}

func with(r rules.Record, change func(*rules.Record)) rules.Record {
	change(&r)
	return r
}

func request(change func(*store.ClaimRequest)) store.ClaimRequest {
	r := store.ClaimRequest{
		ID: store.ID{Scope: "s", Key: "k"}, Token: stranger, Lease: time.Minute, Retention: time.Hour,
		Delivery: "new d", Holder: "new h", Trace: "new t",
	}
	if change != nil {
		change(&r)
	}
	return r
}

var (
	claimed   = record(store.StateClaimed, 0)
	over      = with(claimed, func(r *rules.Record) { r.LeaseEnd = now })
	released  = record(store.StateReleased, 0)
	succeeded = record(store.StateSucceeded, 0)
	transient = record(store.StateFailed, store.FailedTransient)
	terminal  = record(store.StateFailed, store.FailedTerminal)
	exhausted = with(record(store.StateFailed, store.FailedExhausted), func(r *rules.Record) { r.Judge = judge })
	parked    = record(store.StateFailed, store.FailedParked)
	waiting   = func(r *rules.Record) { r.NotBefore = later }
	expired   = func(r *rules.Record) { r.ExpiresAt = now }
)

func token(t store.Token) func(*store.ClaimRequest) {
	return func(r *store.ClaimRequest) { r.Token = t }
}

func fingerprinted(f store.Fingerprint) func(*store.ClaimRequest) {
	return func(r *store.ClaimRequest) { r.Fingerprint = f }
}

func budget(failures, crashes int) func(*store.ClaimRequest) {
	return func(r *store.ClaimRequest) { r.MaxFailures, r.MaxCrashes = failures, crashes }
}

func parking(r *store.ClaimRequest)     { r.ParkOnTakeover = true }
func keeping(r *store.ClaimRequest)     { r.KeepFailures = true }
func sameMessage(r *store.ClaimRequest) { r.Delivery = "d" }

func TestClaimTable(t *testing.T) {
	for _, c := range []struct {
		row    string
		record rules.Record
		change func(*store.ClaimRequest)
		want   store.Verdict
		state  store.State // afterwards
		fence  int64       // afterwards
	}{
		{"1 never written", rules.Record{}, nil, store.Granted, store.StateClaimed, 1},
		{"1 succeeded, expired", with(succeeded, expired), fingerprinted(printB), store.Granted, store.StateClaimed, 1},
		{"1 failed, expired, same token", with(terminal, expired), token(owner), store.Granted, store.StateClaimed, 1},
		{"1 claimed, expired, lease over", with(over, expired), nil, store.Granted, store.StateClaimed, 1},
		{"5 claimed, expired, lease running", with(claimed, expired), nil, store.Busy, store.StateClaimed, 3},
		{"2 claimed", claimed, fingerprinted(printB), store.Conflict, store.StateClaimed, 3},
		{"2 released", released, fingerprinted(printB), store.Conflict, store.StateReleased, 3},
		{"2 succeeded", succeeded, fingerprinted(printB), store.Conflict, store.StateSucceeded, 3},
		{"2 transient", transient, fingerprinted(printB), store.Conflict, store.StateFailed, 3},
		{"2 not terminal", terminal, fingerprinted(printB), store.Granted, store.StateClaimed, 4},
		{"2 not exhausted", exhausted, fingerprinted(printB), store.Granted, store.StateClaimed, 4},
		{"2 not parked", parked, fingerprinted(printB), store.Failed, store.StateFailed, 3},
		{"2 other version", claimed, fingerprinted(printV), store.Busy, store.StateClaimed, 3},
		{"2 same content", succeeded, fingerprinted(printA), store.Done, store.StateSucceeded, 3},
		{"3 claimed", claimed, token(owner), store.Granted, store.StateClaimed, 3},
		{"3 claimed, lease over", over, token(owner), store.Granted, store.StateClaimed, 3},
		{"3 succeeded", succeeded, token(owner), store.Done, store.StateSucceeded, 3},
		{"3 terminal", terminal, token(owner), store.Failed, store.StateFailed, 3},
		{"3 exhausted", exhausted, token(owner), store.Failed, store.StateFailed, 3},
		{"3 parked", parked, token(owner), store.Failed, store.StateFailed, 3},
		{"3 released", released, token(owner), store.Refused, store.StateReleased, 3},
		{"3 transient", transient, token(owner), store.Refused, store.StateFailed, 3},
		{"3 judge", exhausted, token(judge), store.Exhausted, store.StateFailed, 3},
		{"4 succeeded", succeeded, budget(1, 1), store.Done, store.StateSucceeded, 3},
		{"5 running", claimed, budget(1, 1), store.Busy, store.StateClaimed, 3},
		{"6 parked", parked, nil, store.Failed, store.StateFailed, 3},
		{"7 terminal, same delivery", terminal, sameMessage, store.Failed, store.StateFailed, 3},
		{"7 terminal, kept", terminal, keeping, store.Failed, store.StateFailed, 3},
		{"7 exhausted, same delivery", exhausted, sameMessage, store.Failed, store.StateFailed, 3},
		{"7 exhausted, kept", exhausted, keeping, store.Failed, store.StateFailed, 3},
		{"8 terminal", terminal, budget(1, 1), store.Granted, store.StateClaimed, 4},
		{"8 exhausted", exhausted, budget(1, 1), store.Granted, store.StateClaimed, 4},
		{
			"8 unknown deliveries", with(terminal, func(r *rules.Record) { r.Delivery = "" }),
			func(r *store.ClaimRequest) { r.Delivery = "" }, store.Granted, store.StateClaimed, 4,
		},
		{"9 lease over, failures", over, budget(1, 0), store.Exhausted, store.StateFailed, 3},
		{"9 lease over, crashes", over, budget(0, 1), store.Exhausted, store.StateFailed, 3},
		{"9 transient", transient, budget(1, 0), store.Exhausted, store.StateFailed, 3},
		{"9 transient, waiting", with(transient, waiting), budget(1, 0), store.Exhausted, store.StateFailed, 3},
		{"9 not released", released, budget(1, 1), store.Granted, store.StateClaimed, 4},
		{"9 some left", over, budget(2, 2), store.Granted, store.StateClaimed, 4},
		{"10 lease over", over, nil, store.Granted, store.StateClaimed, 4},
		{"10 lease over, park", over, parking, store.Failed, store.StateFailed, 3},
		{"11 released", with(released, waiting), nil, store.Busy, store.StateReleased, 3},
		{"11 transient", with(transient, waiting), nil, store.Busy, store.StateFailed, 3},
		{"12 released", released, nil, store.Granted, store.StateClaimed, 4},
		{"12 transient", transient, parking, store.Granted, store.StateClaimed, 4},
		{"12 the wait ends now", with(released, func(r *rules.Record) { r.NotBefore = now }), nil, store.Granted, store.StateClaimed, 4},
	} {
		t.Run(c.row, func(t *testing.T) {
			r, req := c.record, request(c.change)
			got, changed := rules.Claim(&r, nil, &req, now)
			if got.Verdict != c.want || r.State != c.state || r.Fence != c.fence {
				t.Fatalf("%s, then %s with fence %d; want %s, %s, %d", got.Verdict, r.State, r.Fence, c.want, c.state, c.fence)
			}
			if same := equal(r, c.record); changed == same {
				t.Errorf("changed = %t\nbefore %+v\n after %+v", changed, c.record, r)
			}
			again := r
			if repeated, changed := rules.Claim(&again, nil, &req, now); changed || repeated.Verdict != got.Verdict ||
				repeated.Takeover != got.Takeover || repeated.Fence != got.Fence {
				t.Errorf("repeated: %+v, changed %t; first %+v", repeated, changed, got)
			}
		})
	}
}

func equal(a, b rules.Record) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }

func TestWhatAGrantSets(t *testing.T) {
	r, req := over, request(fingerprinted(printV))
	c, _ := rules.Claim(&r, nil, &req, now)
	want := rules.Record{
		State: store.StateClaimed, Token: stranger, Fence: 4, Starts: 4, Failures: 1, Crashes: 2, TookOver: true,
		LeaseEnd: now.Add(time.Minute), ExpiresAt: now.Add(time.Hour), Fingerprint: printV,
		Delivery: "new d", Holder: "new h", Trace: "new t",
	}
	if !equal(r, want) {
		t.Errorf("record\n got %+v\nwant %+v", r, want)
	}
	if !c.Takeover || c.Holder != "h" || c.Trace != "t" || c.Crashes != 2 || c.Remaining != time.Minute || c.At != now {
		t.Errorf("claim %+v", c)
	}
	r, req = terminal, request(nil)
	c, _ = rules.Claim(&r, nil, &req, now)
	if c.Failures != 0 || c.Crashes != 0 || r.Fingerprint != printA || c.Holder != "" || c.Takeover || r.Payload != nil {
		t.Errorf("a new budget: %+v, %+v", c, r)
	}
}

func TestWhatAClosingClaimSets(t *testing.T) {
	r, req := transient, request(budget(1, 0))
	c, _ := rules.Claim(&r, nil, &req, now)
	want := with(transient, func(r *rules.Record) {
		r.Failure, r.Judge, r.Delivery, r.ExpiresAt = store.FailedExhausted, stranger, "new d", now.Add(time.Hour)
	})
	if !equal(r, want) || c.Failure != store.FailedExhausted || string(c.Payload) != "p" || c.Holder != "h" {
		t.Errorf("exhausted: %+v\n got %+v\nwant %+v", c, r, want)
	}
	r, req = over, request(parking)
	c, _ = rules.Claim(&r, nil, &req, now)
	want = with(over, func(r *rules.Record) {
		r.State, r.Failure, r.Delivery, r.ExpiresAt = store.StateFailed, store.FailedParked, "new d", now.Add(time.Hour)
	})
	if !equal(r, want) || c.Failure != store.FailedParked {
		t.Errorf("parked: %+v\n got %+v\nwant %+v", c, r, want)
	}
}

func TestConflictHandsOutNothing(t *testing.T) {
	r, req := succeeded, request(fingerprinted(printB))
	c, _ := rules.Claim(&r, nil, &req, now)
	if c.Payload != nil || c.Holder != "" || c.Trace != "" || c.Remaining != 0 {
		t.Errorf("%+v", c)
	}
}

func TestEffectClaims(t *testing.T) {
	parent := with(claimed, func(r *rules.Record) { r.Token = parentToken })
	under := func(p store.Token, changes ...func(*store.ClaimRequest)) store.ClaimRequest {
		return request(func(r *store.ClaimRequest) {
			r.ID.Effect, r.Parent = "f", p
			for _, c := range changes {
				c(r)
			}
		})
	}
	gone := with(parent, func(r *rules.Record) { r.ExpiresAt, r.LeaseEnd = now, now })
	late := with(parent, func(r *rules.Record) { r.LeaseEnd = now })
	settled := with(parent, func(r *rules.Record) { r.State = store.StateReleased })
	newer := with(parent, func(r *rules.Record) { r.Token = anotherParent })
	for _, c := range []struct {
		name     string
		record   rules.Record
		parent   *rules.Record
		req      store.ClaimRequest
		want     store.Verdict
		takeover bool
	}{
		{"0 no parent", rules.Record{}, nil, under(parentToken), store.Refused, false},
		{"0 parent never written", rules.Record{}, &rules.Record{}, under(store.Token{}), store.Refused, false},
		{"0 parent absent", rules.Record{}, &gone, under(parentToken), store.Refused, false},
		{"0 parent settled", succeeded, &settled, under(parentToken), store.Refused, false},
		{"0 parent of another", succeeded, &newer, under(parentToken), store.Refused, false},
		{"0 before 3", claimed, &newer, under(parentToken, token(owner)), store.Refused, false},
		{"1", rules.Record{}, &parent, under(parentToken), store.Granted, false},
		{"1 under a parent whose lease is over", rules.Record{}, &late, under(parentToken), store.Granted, false},
		{"1 expiry is the parent's", with(succeeded, expired), &parent, under(parentToken), store.Done, false},
		{"3", claimed, &parent, under(parentToken, token(owner)), store.Granted, false},
		{"5 same parent", claimed, &parent, under(parentToken), store.Busy, false},
		{"10 newer parent", claimed, &newer, under(anotherParent), store.Granted, true},
		{"10 newer parent, park", claimed, &newer, under(anotherParent, parking), store.Failed, false},
		{"10 same parent, lease over", over, &parent, under(parentToken), store.Granted, true},
		{"no budget", transient, &parent, under(parentToken, budget(1, 1)), store.Granted, false},
		{"no budget at takeover", over, &parent, under(parentToken, budget(1, 1)), store.Granted, true},
		{"no KeepFailures", terminal, &parent, under(parentToken, keeping), store.Granted, false},
		{"6", parked, &newer, under(anotherParent), store.Failed, false},
		{"11", with(transient, waiting), &newer, under(anotherParent), store.Busy, false},
	} {
		r := c.record
		if got, _ := rules.Claim(&r, c.parent, &c.req, now); got.Verdict != c.want || got.Takeover != c.takeover {
			t.Errorf("%s: %s (takeover %t), want %s", c.name, got.Verdict, got.Takeover, c.want)
		}
	}
}
