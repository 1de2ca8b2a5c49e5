// Package rules computes what an operation of the store contract does to a
// record. The functions are pure: they read the record as it is and the
// store's clock, and answer with the verdict and the record as it must be
// afterwards. A store that can read a row and write it back inside one
// transaction (or under one lock) calls them and is done; a store that decides
// inside the database (SQL, Lua) uses them as the executable specification.
package rules

import (
	"time"

	"github.com/secondrun/secondrun/store"
)

// Record is the whole record of one ID, secrets included. The zero Record, with
// no state, stands for "absent".
type Record struct {
	State   store.State
	Failure store.Failure

	Token  store.Token // of the latest grant
	Judge  store.Token // of the claim that was answered Exhausted, else zero
	Parent store.Token // effects: the parent's token at the latest grant

	Fence     int64
	Starts    int
	Failures  int
	Crashes   int
	TookOver  bool // the latest grant was a takeover
	LeaseEnd  time.Time
	NotBefore time.Time
	ExpiresAt time.Time // not used for effects

	Fingerprint store.Fingerprint
	Delivery    string
	Holder      string
	Trace       string
	Payload     []byte
}

// Absent reports whether r, which is not the record of an effect, counts as
// absent: it does not exist, or its retention is over and no lease is running.
func (r *Record) Absent(now time.Time) bool {
	return r.State == 0 || !now.Before(r.ExpiresAt) && !r.leased(now)
}

// gone reports whether the record of id is absent; an effect is absent with its
// parent.
func gone(r, parent *Record, id store.ID, now time.Time) bool {
	if id.Effect == "" {
		return r.Absent(now)
	}
	return parent == nil || parent.Absent(now) || r.State == 0
}

func (r *Record) leased(now time.Time) bool {
	return r.State == store.StateClaimed && now.Before(r.LeaseEnd)
}

func (r *Record) closed() bool { // failed for good, whoever decided it
	return r.State == store.StateFailed && r.Failure != store.FailedTransient
}

// Claim decides req. r is the record of req.ID and is changed in place; parent
// is the record of req.ID.Parent() and is needed for effects only. changed says
// whether r must be written back.
//
// When the parent of r was absent and is now granted with fence 1, the caller
// must remove the effects of r's ID: they belonged to an earlier life.
func Claim(r, parent *Record, req *store.ClaimRequest, now time.Time) (c store.Claim, changed bool) {
	effect := req.ID.Effect != ""
	if effect && (parent == nil || parent.Absent(now) || parent.State != store.StateClaimed || parent.Token != req.Parent) {
		return store.Claim{Verdict: store.Refused, At: now}, false
	}
	if gone(r, parent, req.ID, now) {
		*r = Record{}
		return r.grant(req, now), true
	}
	if !r.closed() && r.Fingerprint.Conflicts(req.Fingerprint) {
		return r.answer(store.Conflict, now), false
	}
	if r.Token == req.Token {
		return r.again(now), false
	}
	if !r.Judge.IsZero() && r.Judge == req.Token {
		return r.answer(store.Exhausted, now), false
	}
	switch {
	case r.State == store.StateSucceeded:
		return r.answer(store.Done, now), false
	case r.leased(now) && (!effect || r.Parent == req.Parent):
		return r.busy(r.LeaseEnd, now), false
	case r.closed():
		if r.Failure == store.FailedParked || !effect && req.KeepFailures ||
			req.Delivery != "" && req.Delivery == r.Delivery {
			return r.answer(store.Failed, now), false
		}
		r.Failures, r.Crashes = 0, 0
		return r.grant(req, now), true
	case r.State != store.StateReleased && !effect && used(r, req):
		r.Judge, r.Delivery = req.Token, req.Delivery
		r.fail(store.FailedExhausted, now.Add(req.Retention))
		return r.answer(store.Exhausted, now), true
	case r.State == store.StateClaimed && req.ParkOnTakeover:
		r.Delivery = req.Delivery
		r.fail(store.FailedParked, now.Add(req.Retention))
		return r.answer(store.Failed, now), true
	case r.State == store.StateClaimed:
		return r.takeover(req, now), true
	case now.Before(r.NotBefore):
		return r.busy(r.NotBefore, now), false
	default:
		return r.grant(req, now), true
	}
}

func used(r *Record, req *store.ClaimRequest) bool {
	return req.MaxFailures > 0 && r.Failures >= req.MaxFailures ||
		req.MaxCrashes > 0 && r.Crashes >= req.MaxCrashes
}

// again answers a claim whose token already has the record.
func (r *Record) again(now time.Time) store.Claim {
	switch {
	case r.State == store.StateClaimed:
		c := r.answer(store.Granted, now)
		c.Takeover, c.Remaining, c.Holder, c.Trace, c.Payload = r.TookOver, r.LeaseEnd.Sub(now), "", "", nil
		return c
	case r.State == store.StateSucceeded:
		return r.answer(store.Done, now)
	case r.closed():
		return r.answer(store.Failed, now)
	default:
		return store.Claim{Verdict: store.Refused, At: now}
	}
}

func (r *Record) takeover(req *store.ClaimRequest, now time.Time) store.Claim {
	holder, trace := r.Holder, r.Trace
	r.Crashes++
	c := r.grant(req, now)
	r.TookOver = true
	c.Takeover, c.Holder, c.Trace = true, holder, trace
	return c
}

func (r *Record) grant(req *store.ClaimRequest, now time.Time) store.Claim {
	r.State, r.Failure = store.StateClaimed, 0
	r.Token, r.Judge, r.Parent = req.Token, store.Token{}, req.Parent
	r.Fence++
	r.Starts++
	r.TookOver = false
	r.LeaseEnd, r.NotBefore, r.ExpiresAt = now.Add(req.Lease), time.Time{}, now.Add(req.Retention)
	if !req.Fingerprint.IsZero() {
		r.Fingerprint = req.Fingerprint
	}
	r.Delivery, r.Holder, r.Trace, r.Payload = req.Delivery, req.Holder, req.Trace, nil
	c := r.answer(store.Granted, now)
	c.Remaining, c.Holder, c.Trace = req.Lease, "", ""
	return c
}

func (r *Record) fail(f store.Failure, expires time.Time) {
	r.State, r.Failure, r.ExpiresAt = store.StateFailed, f, expires
}

func (r *Record) busy(until, now time.Time) store.Claim {
	c := r.answer(store.Busy, now)
	c.Remaining, c.Payload = until.Sub(now), nil
	return c
}

// answer fills what most verdicts have in common. A conflict hands out nothing.
func (r *Record) answer(v store.Verdict, now time.Time) store.Claim {
	c := store.Claim{
		Verdict: v, Fence: r.Fence,
		Starts: r.Starts, Failures: r.Failures, Crashes: r.Crashes, At: now,
	}
	if v == store.Conflict {
		return c
	}
	if r.State == store.StateFailed {
		c.Failure = r.Failure
	}
	c.Holder, c.Trace, c.Payload = r.Holder, r.Trace, r.Payload
	return c
}

// Renew decides the renewal of l by d. parent is as for [Claim].
func Renew(r, parent *Record, l *store.Lease, d time.Duration, now time.Time) (s store.Status, changed bool) {
	switch {
	case gone(r, parent, l.ID, now) || r.Token != l.Token:
		return store.Status{Code: store.Lost, At: now}, false
	case r.State != store.StateClaimed:
		return store.Status{Code: store.Already, State: r.State, Failure: r.Failure, At: now}, false
	}
	r.LeaseEnd = now.Add(d)
	if r.ExpiresAt.Before(r.LeaseEnd) {
		r.ExpiresAt = r.LeaseEnd
	}
	return store.Status{Code: store.OK, At: now}, true
}

// Settle decides s. parent is as for [Claim]. The payload is taken over without
// a copy.
func Settle(r, parent *Record, s *store.Settlement, now time.Time) (st store.Status, changed bool) {
	if gone(r, parent, s.ID, now) {
		st = store.Status{Code: store.Absent, At: now}
		if s.Kind != store.Succeed || s.ID.Effect != "" && (parent == nil || parent.Absent(now)) {
			return st, false
		}
		*r = Record{Token: s.Token, Fence: 1, Starts: 1}
		r.settle(s, now)
		return st, true
	}
	switch {
	case r.Token != s.Token:
		return store.Status{Code: store.Lost, At: now}, false
	case r.State == store.StateClaimed, s.Kind == store.Succeed && r.unknown():
		r.settle(s, now)
		return store.Status{Code: store.OK, At: now}, true
	default:
		return store.Status{Code: store.Already, State: r.State, Failure: r.Failure, At: now}, false
	}
}

// unknown reports whether the failure was not reported by the owner, so that
// the owner's late success is still welcome.
func (r *Record) unknown() bool {
	return r.State == store.StateFailed &&
		(r.Failure == store.FailedExhausted || r.Failure == store.FailedParked)
}

func (r *Record) settle(s *store.Settlement, now time.Time) {
	r.Judge, r.LeaseEnd, r.NotBefore = store.Token{}, time.Time{}, time.Time{}
	r.Failure = 0
	switch s.Kind {
	case store.Succeed:
		r.State = store.StateSucceeded
	case store.Release:
		r.State = store.StateReleased
	case store.Retry:
		r.State, r.Failure = store.StateFailed, store.FailedTransient
		r.Failures++
	case store.Fail:
		r.State, r.Failure = store.StateFailed, store.FailedTerminal
		r.Failures++
	case store.Park:
		r.State, r.Failure = store.StateFailed, store.FailedParked
	}
	if s.NotBefore > 0 && (s.Kind == store.Retry || s.Kind == store.Release) {
		r.NotBefore = now.Add(s.NotBefore)
	}
	r.Payload = nil
	if s.Kind != store.Release {
		r.Payload = s.Payload
	}
	r.ExpiresAt = now.Add(s.Retention)
}
