package lincheck

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/secondrun/secondrun/store"
)

func nanos(n int64) time.Duration { return time.Duration(n) }

// kind is what an operation does.
type kind uint8

const (
	opClaim kind = iota + 1
	opRenew
	opSettle
	opReopen
	opForget
	opForceRelease
	opGet
)

// op is one item of a call, with what the store answered.
type op struct {
	kind kind
	key  int
	slot int // 0 for the handler's record, then the effects

	req        store.ClaimRequest // opClaim
	lease      store.Lease        // opRenew
	d          time.Duration      // opRenew
	settlement store.Settlement   // opSettle

	claim  store.Claim
	status store.Status
	rec    store.Record // opGet
	ok     bool         // opGet and admin

	// from and to are the host's clock around the call. They stand in where the
	// answer does not say at which instant it was decided.
	from, to time.Time
	drift    time.Duration // how far that clock may be from the store's

	// base is the instant that the model counts from. Differences keep the
	// precision of both kinds of clock: that of a store in this process is
	// monotonic, that of a database is not.
	base time.Time
}

// maxDrift is how far the host's clock, which the store reads, may have moved
// against the monotonic one during a run.
const maxDrift = time.Millisecond

// step returns the states that s may have become when op was answered as it
// was; none means that the answer is wrong.
func step(s state, o *op, cfg Config) []state {
	var next []state
	for i, t := range o.instants(cfg) {
		for _, out := range o.apply(s, t, cfg) {
			if !o.matches(s, out, cfg.Slack) {
				continue
			}
			if p := &out.next[0]; p.token != s[0].token || p.state != s[0].state {
				p.since = int64(o.to.Sub(o.base))
			}
			if !contains(next, out.next) {
				next = append(next, out.next)
			}
		}
		if i == 0 && len(next) > 0 && o.kind <= opSettle {
			break // the exact instant explains the answer
		}
	}
	return next
}

func contains(states []state, s state) bool {
	for _, other := range states {
		if other == s {
			return true
		}
	}
	return false
}

// instants are the instants at which op may have been decided, the most likely
// one first.
func (o *op) instants(cfg Config) []instant {
	slack := cfg.Slack
	var at time.Time
	switch o.kind {
	case opClaim:
		at = o.claim.At
	case opRenew, opSettle:
		at = o.status.At
	default:
		from, to := o.from.Sub(o.base)-slack-o.drift, o.to.Sub(o.base)+slack+o.drift
		around := []int64{int64(from), int64(to)}
		return combine(int64(from), around, around)
	}
	n := int64(at.Sub(o.base))
	around := []int64{n}
	if slack > 0 {
		around = []int64{n, n - int64(slack), n + int64(slack)}
	}
	absences := around
	if cfg.LatePurge {
		absences = append(around, int64(o.to.Sub(o.base)+o.drift))
	}
	return combine(n, around, absences)
}

func combine(at int64, leases, absences []int64) []instant {
	var out []instant
	for _, l := range leases {
		for _, r := range absences {
			out = append(out, instant{at, l, r})
		}
	}
	return out
}

// apply runs the model.
func (o *op) apply(s state, t instant, cfg Config) []outcome {
	admin := func(next state, ok bool) []outcome {
		if ok != o.ok {
			return nil
		}
		return []outcome{{next: next}}
	}
	switch o.kind {
	case opClaim:
		outs := []outcome{s.claim(o.slot, &o.req, t)}
		if cfg.ParentGrants && o.slot > 0 && s[o.slot].parentFence != s[0].fence {
			outs = append(outs, s.underEarlierGrant(o.slot, &o.req, t))
		}
		return outs
	case opRenew:
		if o.status.Code == store.Locked {
			return []outcome{{status: o.status, next: s}}
		}
		return []outcome{s.renew(o.slot, o.lease.Token, int64(o.d), t)}
	case opSettle:
		return s.settle(o.slot, &o.settlement, t)
	case opReopen:
		return admin(s.reopen(t))
	case opForget:
		return admin(s.forget(t))
	case opForceRelease:
		return admin(s.forceRelease(t))
	case opGet:
		return admin(s, !s.absent(o.slot, t))
	}
	return nil
}

// matches compares what the store answered with what the model did.
func (o *op) matches(s state, out outcome, slack time.Duration) bool {
	switch o.kind {
	case opClaim:
		return sameClaim(o.claim, out.claim, slack)
	case opRenew, opSettle:
		a, b := o.status, out.status
		return a.Err == nil && a.Code == b.Code && a.State == b.State && a.Failure == b.Failure
	case opGet:
		return !o.ok || sameRecord(o.rec, &s[o.slot])
	}
	return true
}

// unseen reports whether a claim was answered Busy because of a lock.
func (o *op) unseen() bool {
	return o.kind == opClaim && o.claim.Verdict == store.Busy && o.claim.Fence == 0 && o.claim.Err == nil
}

func sameClaim(got, want store.Claim, slack time.Duration) bool {
	if got.Err != nil || got.Verdict != want.Verdict {
		return false
	}
	switch want.Verdict {
	case store.Conflict: // "nothing is handed out"
		return len(got.Payload) == 0
	case store.Refused:
		return len(got.Payload) == 0
	case store.Busy:
		got.Failure = 0 // said of Failed and Exhausted only
		if got.Remaining < want.Remaining-slack || got.Remaining > want.Remaining+slack {
			return false
		}
	case store.Granted:
		if got.Remaining < want.Remaining-slack || got.Remaining > want.Remaining+slack {
			return false
		}
		if want.Takeover && want.Holder == "" { // a repeated answer may have forgotten the displaced one
			got.Holder, got.Trace = "", ""
		}
	}
	return string(got.Payload) == string(want.Payload) && got.Takeover == want.Takeover &&
		got.Failure == want.Failure && got.Fence == want.Fence && got.Starts == want.Starts &&
		got.Failures == want.Failures && got.Crashes == want.Crashes &&
		got.Holder == want.Holder && got.Trace == want.Trace
}

func sameRecord(got store.Record, r *record) bool {
	same := got.State == r.state && got.Failure == r.failure && got.Fence == r.fence &&
		got.Starts == r.starts && got.Failures == r.failures && got.Crashes == r.crashes &&
		got.Holder == r.holder && got.Delivery == r.delivery
	if r.state == store.StateSucceeded || r.state == store.StateFailed {
		same = same && string(got.Payload) == r.payload
	}
	return same
}

// model returns the model of one key for porcupine.
func model(cfg Config) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, input, _ any) []any {
			o := input.(*op)                                    //nolint:forcetypeassert // ours
			next := step(s.(state), o, cfg)                     //nolint:forcetypeassert // ours
			next = append(next, admitted(s.(state), o, cfg)...) //nolint:forcetypeassert // ours
			out := make([]any, len(next))
			for i := range next {
				out[i] = next[i]
			}
			return out
		},
		Equal:             func(a, b any) bool { return a.(state) == b.(state) },     //nolint:forcetypeassert // ours
		DescribeOperation: func(input, _ any) string { return input.(*op).String() }, //nolint:forcetypeassert // ours
	}
	return m.ToModel()
}

// admitted returns the states that the options of cfg admit on top.
func admitted(s state, o *op, cfg Config) []state {
	p := &s[0]
	switch {
	case cfg.LocksRows && o.unseen(), cfg.ItemErrors && (o.claim.Err != nil || o.status.Err != nil):
		return []state{s}
	case cfg.StaleParent && o.kind == opClaim && o.slot > 0:
		return underFormerParent(s, o, cfg)
	case cfg.LooseAdmin && o.kind == opForget && o.ok && p.state == 0:
		return []state{s}
	case cfg.LooseAdmin && o.kind == opForceRelease && o.ok && p.state == store.StateClaimed && p.expires < p.leaseEnd:
		p.expires = p.leaseEnd
		p.giveUp()
		return []state{s}
	}
	return nil
}

// underFormerParent decides the claim of an effect as if its parent were still
// claimed by the token that it names, if it may have been so during the call.
// What is written then belongs to the record as it is, or to an earlier life of
// it and cannot be seen.
func underFormerParent(s state, o *op, cfg Config) []state {
	before := s
	before[0] = record{state: store.StateClaimed, token: o.req.Parent, leaseEnd: math.MaxInt64, expires: math.MaxInt64}
	var out []state
	if s[0].since >= int64(o.from.Sub(o.base)-o.drift) {
		for _, next := range step(before, o, cfg) {
			next[0] = s[0]
			out = append(out, next)
		}
		if len(out) > 0 {
			out = append(out, s)
		}
	}
	if cfg.LatePurge && s.absent(0, instant{absence: int64(o.to.Sub(o.base) + o.drift)}) {
		before[o.slot] = record{}
		if len(step(before, o, cfg)) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// String describes op and its answer for people.
func (o *op) String() string {
	what := [...]string{"", "claim", "renew", "settle", "reopen", "forget", "force-release", "get"}[o.kind]
	where := fmt.Sprintf("%s %d/%d", what, o.key, o.slot)
	switch o.kind {
	case opClaim:
		q, c := &o.req, &o.claim
		return fmt.Sprintf("%s t=%.2x p=%.2x lease=%v keep=%v max=%d,%d park=%t keepf=%t print=%d delivery=%q holder=%s -> at=%v %s takeover=%t %s fence=%d n=%d,%d,%d left=%v by=%s %q %v",
			where, q.Token[:], q.Parent[:], q.Lease, q.Retention, q.MaxFailures, q.MaxCrashes, q.ParkOnTakeover, q.KeepFailures,
			q.Fingerprint.Sum[0], q.Delivery, q.Holder, clockText(c.At), c.Verdict, c.Takeover, c.Failure, c.Fence,
			c.Starts, c.Failures, c.Crashes, c.Remaining, c.Holder, c.Payload, c.Err)
	case opRenew:
		return fmt.Sprintf("%s t=%.2x %v -> at=%v %s %s %v", where, o.lease.Token[:], o.d,
			clockText(o.status.At), o.status.Code, o.status.State, o.status.Err)
	case opSettle:
		q := &o.settlement
		return fmt.Sprintf("%s t=%.2x %s %q wait=%v keep=%v -> at=%v %s %s %s %v", where, q.Token[:], q.Kind, q.Payload,
			q.NotBefore, q.Retention, clockText(o.status.At), o.status.Code, o.status.State, o.status.Failure, o.status.Err)
	case opGet:
		r := &o.rec
		return fmt.Sprintf("%s -> at=%v %t %s %s fence=%d n=%d,%d,%d by=%s delivery=%q %q until=%v expires=%v", where, clockText(o.to), o.ok,
			r.State, r.Failure, r.Fence, r.Starts, r.Failures, r.Crashes, r.Holder, r.Delivery, r.Payload,
			clockText(r.LeaseUntil), clockText(r.ExpiresAt))
	}
	return fmt.Sprintf("%s -> at=%v %t", where, clockText(o.to), o.ok)
}

func clockText(t time.Time) string { return t.UTC().Format("05.000000000") }
