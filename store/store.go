// Package store is the contract between secondrun and the place that keeps its
// records. It holds types and documentation only and imports nothing but the
// standard library.
//
// A store keeps one [Record] for each [ID] and answers three batched
// operations: [Store.Claim] asks for the right to run, [Store.Renew] extends
// leases, [Store.Settle] ends claims. More ability comes as the small optional
// interfaces [Pinger], [Inspector], [Counter], [Purger], [Admin] and [Limiter].
//
// Package [github.com/secondrun/secondrun/store/rules] computes what every
// operation does to a record; a store that can read and write a row inside one
// transaction needs nothing else. Package
// [github.com/secondrun/secondrun/store/storetest] checks any implementation.
package store

import (
	"context"
	"time"
)

// Store is implemented by every store.
//
// # Contract
//
// Every item of a call is atomic by itself; a call as a whole is not. All
// methods are safe for concurrent use by any number of goroutines and
// processes. An empty batch is answered with an empty slice and no error. The
// IDs of one call are distinct (after [ID.Encode]) and sorted by [ID.Compare];
// a store may rely on it and need not check it. The answer has the length and
// the order of the request.
//
// Durations are the caller's, instants are the store's: only the store's own
// clock decides whether a lease or a retention is over, and a lease is over
// when now >= its end. Durations are positive unless said otherwise and are
// kept with a precision of a millisecond or better, never rounded down to zero.
//
// Every operation is idempotent for the same token: it can be repeated with
// the same arguments after an ambiguous error (a lost reply, a deadline) and
// answers as it did the first time, provided nobody else changed the record in
// between. A store must not repeat an operation with another token.
//
// A whole-call error (the error result) says that the outcome of every item is
// unknown. An error that cannot pass by waiting (a missing table, a missing
// permission, a read-only server, a record written by a newer version) wraps
// [ErrPermanent]. A failure of one item only goes into that item's Err and
// leaves its neighbours alone.
//
// A record is absent when it was never written, when it was forgotten, or when
// it is past its retention: now >= ExpiresAt, unless it is claimed and its
// lease is still running. Whether an absent record has been removed physically
// cannot be seen through any method. The record of an effect (ID.Effect is not
// empty) has no retention of its own: it lives exactly as long as the record
// of its parent, the ID without the effect. A parent that is granted anew
// after it was absent starts with no effects.
type Store interface {
	// Claim decides each request by the first row of this table that fits the
	// record, as one atomic step:
	//
	//	 0  an effect whose parent is not claimed by Parent   [Refused]
	//	 1  absent                                            [Granted], fence 1, counters 0
	//	 2  claimed, released, succeeded or failed-transient,
	//	    and both fingerprints present, of one version,
	//	    and different                                     [Conflict]
	//	 3  last token = Token                                the first answer again:
	//	      claimed                                           [Granted]
	//	      succeeded                                         [Done]
	//	      failed terminal, exhausted or parked              [Failed]
	//	      released or failed-transient (spent)              [Refused]
	//	    judged by Token (row 9 answered it)               [Exhausted]
	//	 4  succeeded                                         [Done]
	//	 5  claimed, lease running; or, before any other row,
	//	    the record is locked by another transaction       [Busy]
	//	 6  failed, parked                                    [Failed]
	//	 7  failed terminal or exhausted, and (KeepFailures,
	//	    or Delivery not empty and equal to the record's)  [Failed]
	//	 8  failed terminal or exhausted                      [Granted], failures and crashes 0
	//	 9  (claimed with the lease over, or failed-transient)
	//	    and the budget used up                            [Exhausted], recorded as failed, exhausted
	//	10  claimed with the lease over                       [Granted], takeover, crashes + 1;
	//	    with ParkOnTakeover                               [Failed], recorded as failed, parked
	//	11  failed-transient or released, NotBefore ahead     [Busy]
	//	12  failed-transient or released                      [Granted]
	//
	// For an effect, a claim that is held under another parent token counts as
	// a claim with its lease over (rows 5 and 10): a new owner of the parent
	// takes the unsettled effects of the old one over at once. Row 9 and
	// KeepFailures do not apply to effects.
	//
	// The budget is used up when MaxFailures > 0 and failures >= MaxFailures,
	// or MaxCrashes > 0 and crashes >= MaxCrashes.
	//
	// Every grant sets token, parent, lease, takeover mark, holder, trace and
	// delivery from the request, adds one to fence and starts, replaces the
	// fingerprint if the request has one, drops the payload, and sets
	// ExpiresAt to now + Retention. Exhausted keeps the last owner's token and
	// fence, sets Delivery to the request's, remembers Token as the judge, and
	// sets ExpiresAt to now + Retention. Parked likewise, without a judge.
	// The payload of a record that became exhausted or parked here is kept.
	// Every other verdict writes nothing at all.
	//
	// In a repeated answer of row 3 the lease is not extended: Claim.Remaining
	// is what is left of it, zero or less when it is over.
	Claim(ctx context.Context, reqs []ClaimRequest) ([]Claim, error)

	// Renew sets the end of each lease to now + d, if the record is claimed by
	// the lease's token ([OK]), even when the lease is already over and nobody
	// took over. It moves ExpiresAt only where it would otherwise lie before
	// the end of the lease. A record settled with the same token answers
	// [Already]; another token, and an absent record, answer [Lost]. A row that
	// another transaction has locked answers [Locked] without waiting.
	Renew(ctx context.Context, leases []Lease, d time.Duration) ([]Status, error)

	// Settle ends claims. Each settlement is a compare-and-set on the token:
	//
	//	claimed by Token                              settled as Kind: [OK]
	//	failed, exhausted or parked, last token =
	//	Token, Kind = Succeed                         settled as succeeded: [OK]
	//	settled before with Token                     [Already], nothing changes; State and
	//	                                              Failure say as what
	//	another token                                 [Lost]
	//	absent, Kind = Succeed                        a succeeded record is created: [Absent]
	//	absent, any other kind; or an effect whose
	//	parent is absent                              [Absent], nothing is written
	//
	// A lease that is over does not prevent a settlement; only a newer grant
	// does. Succeed stores Payload. Fail, Retry and Park store Payload as the
	// description of the failure. Fail and Retry add one to failures. Retry and
	// Release are not granted again before NotBefore has passed (zero: at
	// once). Every settlement sets ExpiresAt to now + Retention and keeps
	// token, fence, counters, fingerprint, holder, trace and delivery.
	// "Settled before with Token" includes records that were made exhausted or
	// parked, for every Kind but Succeed.
	Settle(ctx context.Context, settlements []Settlement) ([]Status, error)
}

// ClaimRequest asks for the right to run what ID names.
type ClaimRequest struct {
	ID    ID
	Token Token // chosen by the caller, one per delivery; never zero

	Lease     time.Duration // how long the claim holds without renewal
	Retention time.Duration // how long the record is kept from now on; not used for effects

	MaxFailures int // failures before the budget is used up; 0 means no limit
	MaxCrashes  int // takeovers before the budget is used up; 0 means no limit

	// ParkOnTakeover answers an expired lease with Failed (parked) instead of
	// a takeover.
	ParkOnTakeover bool
	// KeepFailures answers a terminal failure with Failed for every delivery,
	// not only for the one that failed.
	KeepFailures bool

	Fingerprint Fingerprint // of the message's stable fields; zero means none
	Delivery    string      // the broker's identity of the message; empty means unknown. At most MaxText bytes

	// Parent is the token of the claim that an effect runs under. It is
	// required when ID.Effect is set and must be zero otherwise.
	Parent Token

	Holder string // names the process to people; at most MaxText bytes
	Trace  string // trace context of the run (W3C traceparent), may be empty; at most MaxText bytes
}

// MaxText is the limit, in bytes, of Delivery, Holder and Trace. They hold any
// bytes and come back unchanged.
const MaxText = 256

// MaxPayload is the limit, in bytes, of a payload that every store accepts.
const MaxPayload = 1 << 20

// Verdict is the answer to a claim.
type Verdict uint8

// Verdicts. The zero value is none of them: an item with an error has no
// verdict.
const (
	Granted   Verdict = iota + 1 // the caller owns the claim and must run and settle
	Done                         // succeeded before; Payload is the stored result
	Busy                         // held by somebody else, or waiting; ask again after Remaining
	Failed                       // failed for good; Payload describes the failure
	Exhausted                    // the budget is used up; recorded as a failure by this very claim
	Conflict                     // the same key with another fingerprint; nothing is handed out
	Refused                      // the token is spent, or the parent is not held by Parent
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	return name(v, "granted", "done", "busy", "failed", "exhausted", "conflict", "refused")
}

// Claim is the answer to one [ClaimRequest].
type Claim struct {
	Verdict  Verdict
	Takeover bool    // Granted over an expired lease: the earlier run may have had effects
	Failure  Failure // Failed and Exhausted: how it failed
	Fence    int64   // of the latest grant of this record; zero when it is Busy because it is locked

	Starts   int // grants, this one included
	Failures int // settlements as Fail or Retry
	Crashes  int // takeovers

	// Remaining is what is left of the lease (Granted), or of the lease or the
	// wait that is in the way (Busy). Zero or less means over.
	Remaining time.Duration

	// Holder and Trace are those of the run that the verdict refers to: the
	// one in the way (Busy), the one that ended (Done, Failed, Exhausted), the
	// displaced one (Granted with Takeover).
	Holder string
	Trace  string

	Payload []byte // Done, Failed, Exhausted: as settled; owned by the caller

	// At is the store's clock at the instant that decided the verdict. It is
	// for tests and audits; it must not be compared with a local clock.
	At time.Time

	// Err is set when this item alone failed; Verdict is then zero.
	Err error
}

// Lease names a claim to renew.
type Lease struct {
	ID    ID
	Token Token
}

// Settlement ends a claim.
type Settlement struct {
	ID        ID
	Token     Token
	Kind      Kind
	Payload   []byte        // not retained after the call; at most MaxPayload bytes
	NotBefore time.Duration // Retry and Release: wait until the next grant, from now; zero means none
	Retention time.Duration // how long the record is kept from now on; not used for effects
}

// Kind says how a claim ends.
type Kind uint8

// Kinds of settlement.
const (
	Succeed Kind = iota + 1 // succeeded; never changed again
	Fail                    // failed for good
	Retry                   // failed, may be granted again after NotBefore
	Release                 // given back without having failed
	Park                    // failed with an unknown outcome; answered Failed until reopened
)

// String returns the kind in lower case.
func (k Kind) String() string { return name(k, "succeed", "fail", "retry", "release", "park") }

// Code is the answer to a renewal or a settlement.
type Code uint8

// Codes. The zero value is none of them: an item with an error has no code.
const (
	OK      Code = iota + 1 // done
	Already                 // the same token settled it before; nothing changed
	Lost                    // the claim belongs to somebody else or is gone
	Locked                  // Renew only: another transaction has the row; neither lost nor confirmed
	Absent                  // Settle only: there was no record
)

// String returns the code in lower case.
func (c Code) String() string { return name(c, "ok", "already", "lost", "locked", "absent") }

// Status is the answer to one renewal or settlement.
type Status struct {
	Code    Code
	State   State   // Already: the state that the record has
	Failure Failure // Already, when State is StateFailed
	At      time.Time
	Err     error // set when this item alone failed; Code is then zero
}

// State is the state of a record.
type State uint8

// States.
const (
	StateClaimed State = iota + 1
	StateReleased
	StateSucceeded
	StateFailed
)

// String returns the state in lower case.
func (s State) String() string { return name(s, "claimed", "released", "succeeded", "failed") }

// Failure says how a failed record failed. Zero for other states.
type Failure uint8

// Failures.
const (
	FailedTransient Failure = iota + 1 // may be granted again
	FailedTerminal                     // settled as Fail
	FailedExhausted                    // a claim found the budget used up
	FailedParked                       // the outcome is unknown; waits for Reopen
)

// String returns the failure in lower case.
func (f Failure) String() string { return name(f, "transient", "terminal", "exhausted", "parked") }

func name[T ~uint8](v T, names ...string) string {
	if v == 0 || int(v) > len(names) {
		return "none"
	}
	return names[v-1]
}
