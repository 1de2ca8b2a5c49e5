package storetest

import (
	"time"

	"github.com/secondrun/secondrun/store"
)

func retentionChecks() []check {
	return []check{
		{"a running lease is never past its retention", leaseOutlivesRetention},
		{"lease and retention over, absent", claimExpires},
		{"lease over, retention not, takeover", claimTakenOver},
		{"a settlement moves the end", settleMovesEnd},
		{"a renewal moves the end only as far as the lease", renewMovesEnd},
		{"a closing claim moves the end", closingMovesEnd},
		{"answers do not move the end", answersKeepEnd},
		{"a grant moves the end", grantMovesEnd},
		{"past its retention every operation finds nothing", expiredIsAbsent},
		{"U35 done ends exactly at its retention", retentionBoundary},
	}
}

var afresh = store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long}

func leaseOutlivesRetention(e *env) {
	r := e.req("k")
	r.Retention = short
	e.granted(r)
	e.pass(short)
	e.verdict(e.req("k"), store.Busy)
	if c := e.granted(r); c.Fence != 1 {
		e.Errorf("repeated: %s", show(c))
	}
	if _, ok := e.st.(store.Inspector); ok && e.look(r.ID) == nil {
		e.Errorf("Get: absent although the lease is running")
	}
	e.renewed(r.ID, r.Token, long, store.OK)
	e.settled(settlement(r, store.Succeed, "kept"), store.OK)
	e.verdict(e.req("k"), store.Done)
}

func claimExpires(e *env) {
	r := e.req("k")
	r.Lease, r.Retention = short, short
	e.granted(r)
	e.pass(short)
	e.renewed(r.ID, r.Token, long, store.Lost)
	e.settled(settlement(r, store.Fail, ""), store.Absent)
	e.answered(e.req("k"), afresh)
}

func claimTakenOver(e *env) {
	r := e.req("k")
	r.Lease = short
	e.granted(r)
	e.pass(short)
	c := e.granted(e.req("k"))
	if !c.Takeover || c.Fence != 2 || c.Crashes != 1 {
		e.Errorf("%s, want a takeover with fence 2", show(c))
	}
}

func settleMovesEnd(e *env) {
	for _, k := range []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park} {
		shorter, longer := e.req("shorter "+k.String()), e.req("longer "+k.String())
		longer.Retention = short
		e.granted(shorter)
		e.granted(longer)
		s := settlement(shorter, k, "")
		s.Retention = short
		e.settled(settlement(longer, k, ""), store.OK)
		e.settled(s, store.OK)
		e.pass(short)
		e.answered(e.req(shorter.ID.Key), afresh)
		other := e.req(longer.ID.Key)
		other.Delivery = "another"
		if c := e.claim(other); c.Fence < 2 && c.Verdict == store.Granted {
			e.Errorf("%s: the record has ended with the retention of the claim: %s", k, show(c))
		}
	}
}

func renewMovesEnd(e *env) {
	// The lease grows beyond the retention: the record ends with the lease.
	r := e.req("grows")
	r.Retention = short
	e.granted(r)
	e.renewed(r.ID, r.Token, 2*short, store.OK)
	e.pass(2 * short)
	e.answered(e.req("grows"), afresh)
	// The lease shrinks: the retention stays what it was.
	r = e.req("shrinks")
	e.granted(r)
	e.over(r)
	if c := e.granted(e.req("shrinks")); c.Fence != 2 {
		e.Errorf("%s, want fence 2: the renewal has shortened the retention", show(c))
	}
	// A renewal that needs no more retention does not move it.
	r = e.req("stays")
	e.granted(r)
	before := e.look(r.ID)
	e.pass(short)
	e.renewed(r.ID, r.Token, 2*long, store.OK)
	if after := e.look(r.ID); before != nil && !after.ExpiresAt.Equal(before.ExpiresAt) {
		e.Errorf("ExpiresAt moved from %v to %v", before.ExpiresAt, after.ExpiresAt)
	}
}

func closingMovesEnd(e *env) {
	for name, change := range map[string]func(*store.ClaimRequest){"exhausted": exhaust, "parked": park} {
		r := e.req(name)
		e.granted(r)
		if name == "parked" {
			e.over(r)
		} else {
			e.settled(settlement(r, store.Retry, ""), store.OK)
		}
		judge := e.req(name)
		judge.Retention = short
		change(&judge)
		if c := e.claim(judge); c.Verdict != store.Exhausted && c.Verdict != store.Failed {
			e.Fatalf("%s: %s", name, show(c))
		}
		e.pass(short)
		e.answered(e.req(name), afresh)
	}
}

func answersKeepEnd(e *env) {
	ends, stays := first(e), first(e).settled(e, store.Succeed, false)
	s := settlement(ends.owner, store.Succeed, "")
	s.Retention = 2 * short
	e.settled(s, store.OK)
	for _, x := range []situation{ends, stays} {
		r := e.req(x.owner.ID.Key)
		r.Retention = keep
		if x.owner.ID == stays.owner.ID {
			r.Retention = time.Millisecond
		}
		e.claim(r) // Done, or granted by a very slow clock
	}
	s.Retention = keep
	again, err := e.st.Settle(e.ctx, []store.Settlement{s}) // already
	e.item("Settle", len(again), err)
	e.pass(2 * short)
	if again[0].Code == store.Already {
		c := e.granted(e.req(ends.owner.ID.Key))
		if c.Fence != 1 {
			e.Errorf("an answer has made the retention longer: %s", show(c))
		}
	}
	e.verdict(e.req(stays.owner.ID.Key), store.Done)
}

func grantMovesEnd(e *env) {
	s := first(e)
	set := settlement(s.owner, store.Release, "")
	set.Retention = keep
	e.settled(set, store.OK)
	r := e.req(s.owner.ID.Key)
	r.Lease, r.Retention = short, short
	if c := e.granted(r); c.Fence != 2 {
		e.Fatalf("%s, want fence 2", show(c))
	}
	e.pass(short)
	e.answered(e.req(s.owner.ID.Key), afresh)
}

// expire lets a record of every settled state pass its retention.
func expire(e *env, k store.Kind) situation {
	e.Helper()
	s := first(e)
	set := settlement(s.owner, k, "gone")
	set.Retention = short
	e.settled(set, store.OK)
	e.pass(short)
	return s
}

func expiredIsAbsent(e *env) {
	kinds := []store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park}
	for i, k := range kinds {
		s := expire(e, k)
		if rec := e.look(s.owner.ID); rec != nil {
			e.Errorf("%s: Get: %+v", k, rec)
		}
		e.renewed(s.owner.ID, s.owner.Token, long, store.Lost)
		e.settled(settlement(s.owner, kinds[1+i%4], ""), store.Absent) // any but success
		r := ask{print: "other"}.request(e, s)                         // no conflict with what is gone
		if i%2 == 0 {
			r.Token = s.owner.Token // nor is the token spent
		}
		e.answered(r, afresh)
	}
	s := expire(e, store.Fail)
	e.settled(settlement(s.owner, store.Succeed, "late"), store.Absent)
	if c := e.verdict(e.req(s.owner.ID.Key), store.Done); string(c.Payload) != "late" {
		e.Errorf("payload %q", c.Payload)
	}
}

func retentionBoundary(e *env) {
	e.exact()
	s := first(e)
	set := settlement(s.owner, store.Succeed, "")
	set.Retention = 7 * 24 * time.Hour
	e.settled(set, store.OK)
	e.pass(set.Retention - time.Millisecond)
	e.verdict(e.req(s.owner.ID.Key), store.Done)
	e.pass(time.Millisecond)
	e.answered(e.req(s.owner.ID.Key), afresh)
	// A lease that ends later than the retention, and both at their ends.
	r := e.req("k")
	r.Lease, r.Retention = 2*short, short
	e.granted(r)
	e.pass(2*short - time.Millisecond)
	e.verdict(e.req("k"), store.Busy)
	e.pass(time.Millisecond)
	e.answered(e.req("k"), afresh)
}
