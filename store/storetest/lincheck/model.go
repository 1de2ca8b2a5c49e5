package lincheck

import (
	"github.com/secondrun/secondrun/store"
)

// The model is written from the tables in package store and shares no code
// with package rules: what both get wrong in the same way must have been read
// the same way twice.

// record is one record. The zero record does not exist. All times are
// nanoseconds of the store's clock since the run began. It is comparable, which makes
// the check fast.
type record struct {
	state   store.State
	failure store.Failure

	token, judge, parent store.Token

	fence                     int64
	parentFence               int64 // of the parent's grant; see Config.ParentGrants
	starts, failures, crashes int
	takeover                  bool
	parkedByOwner             bool

	leaseEnd, notBefore, expires int64
	since                        int64 // when its owner changed, at the latest; see step

	print                            store.Fingerprint
	delivery, holder, trace, payload string
}

// state is a key: the record of the handler and, after it, those of its
// effects.
type state [1 + effects]record

// effects is the number of effects that a key has here.
const effects = 2

// instant is the store's clock at a decision, as it is compared with the ends
// of leases and waits, and as it decides whether a record is absent. Both differ
// from at only where the store's rounding may have made a difference, or see
// Config.LatePurge.
type instant struct{ at, lease, absence int64 }

// outcome is one way in which an operation may have gone.
type outcome struct {
	claim  store.Claim
	status store.Status
	next   state
}

// leased: "claimed, lease running". A lease is over when now >= its end.
func (r *record) leased(t instant) bool {
	return r.state == store.StateClaimed && t.lease < r.leaseEnd
}

// absent: "it was never written, it was forgotten, or it is past its
// retention, unless it is claimed and its lease is still running". An effect
// "lives exactly as long as the record of its parent".
func (s *state) absent(slot int, t instant) bool {
	p := &s[0]
	running := p.state == store.StateClaimed && t.absence < p.leaseEnd
	if p.state == 0 || t.absence >= p.expires && !running {
		return true
	}
	return s[slot].state == 0
}

// underEarlierGrant decides the claim of an effect as if the effect were claimed
// under another token than the parent's; see Config.ParentGrants.
func (s state) underEarlierGrant(slot int, q *store.ClaimRequest, t instant) outcome {
	r := &s[slot]
	parent := r.parent
	r.parent = store.Token{}
	o := s.claim(slot, q, t)
	if o.next[slot].parent.IsZero() { // not granted
		o.next[slot].parent = parent
	}
	return o
}

// claim is the table of Store.Claim, row by row.
func (s state) claim(slot int, q *store.ClaimRequest, t instant) outcome {
	effect := slot > 0
	r := &s[slot]
	say := func(v store.Verdict) outcome { return outcome{claim: r.says(v), next: s} }

	if effect && (s.absent(0, t) || s[0].state != store.StateClaimed || s[0].token != q.Parent) { // row 0
		return outcome{claim: store.Claim{Verdict: store.Refused}, next: s}
	}
	if s.absent(slot, t) { // row 1
		if !effect { // "starts with no effects"
			s = state{}
		}
		s[slot] = record{}
		return s.grant(slot, q, t)
	}
	forGood := r.state == store.StateFailed && r.failure != store.FailedTransient
	if !forGood && different(r.print, q.Fingerprint) { // row 2
		return outcome{claim: store.Claim{Verdict: store.Conflict}, next: s}
	}
	if r.token == q.Token { // row 3
		switch {
		case r.state == store.StateClaimed:
			o := say(store.Granted)
			o.claim.Takeover, o.claim.Remaining = r.takeover, nanos(r.leaseEnd-t.at)
			return o
		case r.state == store.StateSucceeded:
			return say(store.Done)
		case forGood:
			return say(store.Failed)
		}
		return outcome{claim: store.Claim{Verdict: store.Refused}, next: s}
	}
	if r.judge == q.Token { // a token is never zero
		return say(store.Exhausted)
	}
	if r.state == store.StateSucceeded { // row 4
		return say(store.Done)
	}
	displaced := effect && r.parent != q.Parent // "counts as a claim with its lease over"
	if r.leased(t) && !displaced {              // row 5
		o := say(store.Busy)
		o.claim.Remaining = nanos(r.leaseEnd - t.at)
		return o
	}
	if forGood {
		if r.failure == store.FailedParked || // row 6
			q.KeepFailures && !effect || q.Delivery != "" && q.Delivery == r.delivery { // row 7
			return say(store.Failed)
		}
		s[slot].failures, s[slot].crashes = 0, 0 // row 8
		return s.grant(slot, q, t)
	}
	return s.rows9to12(slot, q, t)
}

func (s state) rows9to12(slot int, q *store.ClaimRequest, t instant) outcome {
	r := &s[slot]
	expired := r.state == store.StateClaimed
	usedUp := q.MaxFailures > 0 && r.failures >= q.MaxFailures || q.MaxCrashes > 0 && r.crashes >= q.MaxCrashes
	switch {
	case r.state != store.StateReleased && usedUp && slot == 0: // row 9
		r.state, r.failure = store.StateFailed, store.FailedExhausted
		r.judge, r.delivery, r.expires = q.Token, q.Delivery, t.at+int64(q.Retention)
		return outcome{claim: r.says(store.Exhausted), next: s}
	case expired && q.ParkOnTakeover: // row 10
		r.state, r.failure = store.StateFailed, store.FailedParked
		r.delivery, r.expires = q.Delivery, t.at+int64(q.Retention)
		return outcome{claim: r.says(store.Failed), next: s}
	case expired: // row 10
		holder, trace := r.holder, r.trace
		r.crashes++
		o := s.grant(slot, q, t)
		o.next[slot].takeover = true
		o.claim.Takeover, o.claim.Holder, o.claim.Trace = true, holder, trace
		return o
	case t.lease < r.notBefore: // row 11
		o := outcome{claim: r.says(store.Busy), next: s}
		o.claim.Remaining = nanos(r.notBefore - t.at)
		return o
	}
	return s.grant(slot, q, t) // row 12
}

// different: "both fingerprints present, of one version, and different".
func different(a, b store.Fingerprint) bool {
	return a.Version != 0 && a.Version == b.Version && a.Sum != b.Sum
}

// grant: "Every grant sets ...".
func (s state) grant(slot int, q *store.ClaimRequest, t instant) outcome {
	old := s[slot]
	r := record{
		state: store.StateClaimed, token: q.Token, parent: q.Parent,
		fence: old.fence + 1, starts: old.starts + 1, failures: old.failures, crashes: old.crashes,
		leaseEnd: t.at + int64(q.Lease), expires: t.at + int64(q.Retention),
		print: old.print, delivery: q.Delivery, holder: q.Holder, trace: q.Trace,
	}
	if q.Fingerprint.Version != 0 {
		r.print = q.Fingerprint
	}
	if slot > 0 {
		r.parentFence = s[0].fence
	}
	s[slot] = r
	o := outcome{claim: r.says(store.Granted), next: s}
	o.claim.Remaining = q.Lease
	return o
}

// says fills an answer from r.
func (r *record) says(v store.Verdict) store.Claim {
	c := store.Claim{Verdict: v, Fence: r.fence, Starts: r.starts, Failures: r.failures, Crashes: r.crashes}
	switch v {
	case store.Done, store.Failed, store.Exhausted:
		c.Failure, c.Payload = r.failure, []byte(r.payload)
		c.Holder, c.Trace = r.holder, r.trace
	case store.Busy:
		c.Holder, c.Trace = r.holder, r.trace
	}
	return c
}

// renew is the text of Store.Renew. The answer Locked is always allowed and
// changes nothing; see allowed.
func (s state) renew(slot int, token store.Token, d int64, t instant) outcome {
	r := &s[slot]
	switch {
	case s.absent(slot, t), r.token != token:
		return outcome{status: store.Status{Code: store.Lost}, next: s}
	case r.state != store.StateClaimed:
		return outcome{status: already(r), next: s}
	}
	r.leaseEnd = t.at + d
	if slot == 0 {
		r.expires = max(r.expires, r.leaseEnd)
	}
	return outcome{status: store.Status{Code: store.OK}, next: s}
}

func already(r *record) store.Status {
	return store.Status{Code: store.Already, State: r.state, Failure: r.failure}
}

// settle is the table of Store.Settle. There are two outcomes where the
// contract can be read in two ways: whether an owner that parked its own claim
// may still report a success.
func (s state) settle(slot int, q *store.Settlement, t instant) []outcome {
	r := &s[slot]
	unchanged := func(st store.Status) []outcome { return []outcome{{status: st, next: s}} }
	if s.absent(slot, t) {
		if q.Kind != store.Succeed || slot > 0 && s.absent(0, t) {
			return unchanged(store.Status{Code: store.Absent})
		}
		if slot == 0 {
			s = state{}
		}
		s[slot] = record{token: q.Token, fence: 1, starts: 1}
		return []outcome{{status: store.Status{Code: store.Absent}, next: s.settled(slot, q, t)}}
	}
	ok := outcome{status: store.Status{Code: store.OK}}
	unknown := r.failure == store.FailedExhausted || r.failure == store.FailedParked
	switch {
	case r.token != q.Token:
		return unchanged(store.Status{Code: store.Lost})
	case r.state == store.StateClaimed:
		ok.next = s.settled(slot, q, t)
		return []outcome{ok}
	case unknown && q.Kind == store.Succeed:
		ok.next = s.settled(slot, q, t)
		if r.parkedByOwner {
			return append(unchanged(already(r)), ok)
		}
		return []outcome{ok}
	}
	return unchanged(already(r))
}

// settled does what a settlement does to its record.
func (s state) settled(slot int, q *store.Settlement, t instant) state {
	r := &s[slot]
	r.judge, r.leaseEnd, r.notBefore, r.failure, r.parkedByOwner = store.Token{}, 0, 0, 0, false
	r.payload = string(q.Payload)
	switch q.Kind {
	case store.Succeed:
		r.state = store.StateSucceeded
	case store.Fail:
		r.state, r.failure = store.StateFailed, store.FailedTerminal
		r.failures++
	case store.Retry:
		r.state, r.failure = store.StateFailed, store.FailedTransient
		r.failures++
	case store.Park:
		r.state, r.failure, r.parkedByOwner = store.StateFailed, store.FailedParked, true
	case store.Release:
		r.state, r.payload = store.StateReleased, ""
	}
	if q.Kind == store.Retry || q.Kind == store.Release {
		r.notBefore = t.at + int64(q.NotBefore)
	}
	r.expires = t.at + int64(q.Retention)
	return s
}

// reopen, forget and forceRelease are the texts of Admin; ok says whether the
// call had a meaning.
func (s state) reopen(t instant) (next state, ok bool) {
	if s.absent(0, t) || s[0].state != store.StateFailed {
		return s, false
	}
	for i := range s {
		if s[i].state == store.StateFailed {
			s[i].failures, s[i].crashes = 0, 0
			s[i].giveUp()
		}
	}
	return s, true
}

func (s state) forget(t instant) (next state, ok bool) {
	if s.absent(0, t) {
		return s, false
	}
	return state{}, true
}

func (s state) forceRelease(t instant) (next state, ok bool) {
	if s.absent(0, t) || s[0].state != store.StateClaimed {
		return s, false
	}
	s[0].giveUp()
	return s, true
}

func (r *record) giveUp() {
	r.state, r.failure = store.StateReleased, 0
	r.token, r.judge, r.takeover, r.parkedByOwner = store.Token{}, store.Token{}, false, false
	r.leaseEnd, r.notBefore, r.payload = 0, 0, ""
}
