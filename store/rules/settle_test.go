package rules_test

import (
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

func settlement(tok store.Token, k store.Kind) store.Settlement {
	return store.Settlement{
		ID: store.ID{Scope: "s", Key: "k"}, Token: tok, Kind: k, Payload: []byte("new p"),
		NotBefore: time.Minute, Retention: time.Hour,
	}
}

var kinds = []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park}

func TestSettleTable(t *testing.T) {
	const succeed, others = 1, 2
	for _, c := range []struct {
		name   string
		record rules.Record
		token  store.Token
		kinds  int
		want   store.Code
	}{
		{"claimed", claimed, owner, succeed | others, store.OK},
		{"claimed, lease over", over, owner, succeed | others, store.OK},
		{"claimed by another", claimed, stranger, succeed | others, store.Lost},
		{"released", released, owner, succeed | others, store.Already},
		{"succeeded", succeeded, owner, succeed | others, store.Already},
		{"transient", transient, owner, succeed | others, store.Already},
		{"terminal", terminal, owner, succeed | others, store.Already},
		{"exhausted, late success", exhausted, owner, succeed, store.OK},
		{"exhausted", exhausted, owner, others, store.Already},
		{"parked, late success", parked, owner, succeed, store.OK},
		{"parked", parked, owner, others, store.Already},
		{"exhausted, the judge", exhausted, judge, succeed | others, store.Lost},
		{"succeeded by another", succeeded, stranger, succeed | others, store.Lost},
		{"never written", rules.Record{}, owner, succeed | others, store.Absent},
		{"expired", with(terminal, expired), stranger, succeed | others, store.Absent},
		{"expired, lease running", with(claimed, expired), owner, succeed | others, store.OK},
	} {
		for _, k := range kinds {
			if k == store.Succeed && c.kinds&succeed == 0 || k != store.Succeed && c.kinds&others == 0 {
				continue
			}
			r, s := c.record, settlement(c.token, k)
			st, changed := rules.Settle(&r, nil, &s, now)
			writes := c.want == store.OK || c.want == store.Absent && k == store.Succeed
			if st.Code != c.want || changed != writes || !writes && !equal(r, c.record) {
				t.Errorf("%s, %s: %s, changed %t, want %s", c.name, k, st.Code, changed, c.want)
			}
			if st.Code == store.Already && (st.State != c.record.State || st.Failure != c.record.Failure) {
				t.Errorf("%s, %s: already %s %s", c.name, k, st.State, st.Failure)
			}
			if !writes {
				continue
			}
			if again, changed := rules.Settle(&r, nil, &s, now); again.Code != store.Already && k != store.Park || changed {
				t.Errorf("%s, %s: repeated: %s, changed %t", c.name, k, again.Code, changed)
			}
		}
	}
}

func TestWhatASettlementSets(t *testing.T) {
	for _, k := range kinds {
		r, s := claimed, settlement(owner, k)
		rules.Settle(&r, nil, &s, now)
		want := with(claimed, func(r *rules.Record) {
			r.LeaseEnd, r.ExpiresAt, r.Payload = time.Time{}, now.Add(time.Hour), []byte("new p")
		})
		switch k {
		case store.Succeed:
			want.State = store.StateSucceeded
		case store.Fail:
			want.State, want.Failure, want.Failures = store.StateFailed, store.FailedTerminal, 2
		case store.Retry:
			want.State, want.Failure, want.Failures = store.StateFailed, store.FailedTransient, 2
			want.NotBefore = now.Add(time.Minute)
		case store.Release:
			want.State, want.NotBefore, want.Payload = store.StateReleased, now.Add(time.Minute), nil
		case store.Park:
			want.State, want.Failure = store.StateFailed, store.FailedParked
		}
		if !equal(r, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", k, r, want)
		}
	}
}

func TestEffectSettlesWithItsParentOnly(t *testing.T) {
	parent := claimed
	gone := with(released, expired)
	for _, c := range []struct {
		name   string
		record rules.Record
		parent *rules.Record
		want   store.Code
		writes bool
	}{
		{"parent never written", rules.Record{}, nil, store.Absent, false},
		{"parent absent", claimed, &gone, store.Absent, false},
		{"parent of whoever", claimed, &parent, store.OK, true},
		{"no record", rules.Record{}, &parent, store.Absent, true},
		{"own retention over", with(claimed, func(r *rules.Record) { r.ExpiresAt, r.LeaseEnd = now, now }), &parent, store.OK, true},
	} {
		r, s := c.record, settlement(owner, store.Succeed)
		s.ID.Effect = "f"
		if st, changed := rules.Settle(&r, c.parent, &s, now); st.Code != c.want || changed != c.writes {
			t.Errorf("%s: %s, changed %t, want %s, %t", c.name, st.Code, changed, c.want, c.writes)
		}
	}
}

func TestRenewTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		record rules.Record
		token  store.Token
		want   store.Code
	}{
		{"claimed", claimed, owner, store.OK},
		{"claimed, lease over", over, owner, store.OK},
		{"claimed, expired, lease running", with(claimed, expired), owner, store.OK},
		{"claimed by another", claimed, stranger, store.Lost},
		{"never written", rules.Record{}, owner, store.Lost},
		{"expired", with(over, expired), owner, store.Lost},
		{"settled and expired", with(succeeded, expired), owner, store.Lost},
		{"released", released, owner, store.Already},
		{"succeeded", succeeded, owner, store.Already},
		{"transient", transient, owner, store.Already},
		{"exhausted", exhausted, owner, store.Already},
		{"exhausted, the judge", exhausted, judge, store.Lost},
		{"parked", parked, owner, store.Already},
	} {
		for _, d := range []time.Duration{time.Millisecond, time.Minute} {
			r := c.record
			st, changed := rules.Renew(&r, nil, &store.Lease{ID: store.ID{Scope: "s", Key: "k"}, Token: c.token}, d, now)
			want := c.record
			if c.want == store.OK {
				want.LeaseEnd = now.Add(d)
				if want.ExpiresAt.Before(want.LeaseEnd) {
					want.ExpiresAt = want.LeaseEnd
				}
			}
			if st.Code != c.want || changed != (c.want == store.OK) || !equal(r, want) {
				t.Errorf("%s by %v: %s, changed %t\n got %+v\nwant %+v", c.name, d, st.Code, changed, r, want)
			}
			if st.Code == store.Already && (st.State != c.record.State || st.Failure != c.record.Failure) {
				t.Errorf("%s: already %s %s", c.name, st.State, st.Failure)
			}
		}
	}
	lease := store.Lease{ID: store.ID{Scope: "s", Key: "k", Effect: "f"}, Token: owner}
	gone, r := with(released, expired), claimed
	if st, _ := rules.Renew(&r, &gone, &lease, time.Minute, now); st.Code != store.Lost {
		t.Errorf("an effect under an absent parent: %s", st.Code)
	}
}
