package store

import (
	"context"
	"time"
)

// Pinger is implemented by stores that can be probed without touching a
// record. Ping answers nil when the store can probably serve claims.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Limits describes how a store likes to be called.
type Limits struct {
	// Batch is the largest number of items in one call. Zero means 256.
	Batch int
	// Parallel is the number of claim calls, and the number of settle calls,
	// that are worth having in flight at a time; what comes on top is worth
	// collecting into a batch. Zero means 2. Renewals come on top and must
	// never wait behind claims and settlements.
	Parallel int
}

// Limiter is implemented by stores that do not want the default [Limits].
type Limiter interface {
	Limits() Limits
}

// Record is what an operator sees of a record. Tokens are left out: who knows
// one could settle the claim.
type Record struct {
	ID      ID
	State   State
	Failure Failure
	Fence   int64

	Starts   int
	Failures int
	Crashes  int

	LeaseUntil time.Time // StateClaimed
	NotBefore  time.Time // StateReleased and FailedTransient; zero means at once
	ExpiresAt  time.Time

	Fingerprint Fingerprint
	Delivery    string
	Holder      string
	Trace       string
	Payload     []byte
}

// Inspector reads records without changing them. Absent records are not
// shown.
type Inspector interface {
	// Get returns the record of id; ok is false when it is absent.
	Get(ctx context.Context, id ID) (rec Record, ok bool, err error)
	// List returns up to q.Limit records in the order of the store's primary
	// key, and the cursor of the next page, empty after the last one. A page
	// may hold fewer records than the limit, or none, and still have a next
	// page. Records that change while they are listed may be missed or seen
	// twice; records that do not change are seen exactly once.
	List(ctx context.Context, q ListQuery) (page []Record, next string, err error)
}

// ListQuery selects records.
type ListQuery struct {
	Scope  string // required
	State  State  // zero means every state
	Limit  int    // zero means 100; at most 1000
	Cursor string // empty for the first page; then what List returned
}

// Purger removes absent records physically. It is needed only where the
// storage does not expire records by itself.
type Purger interface {
	// Purge does one bounded step of a cycle that starts with an empty cursor
	// and ends when next is empty. It never removes a record that is not
	// absent, nor an effect whose parent is not absent. It can run beside every
	// other operation.
	Purge(ctx context.Context, cursor string) (removed int, next string, err error)
}

// Admin changes records from outside the protocol. Every successful call is
// reported to the store's audit hook before it returns, with reason as given
// by the operator. Reason must not be empty. The boolean result says whether
// the record was in a state in which the call has a meaning; otherwise nothing
// was changed.
type Admin interface {
	// Reopen makes a failed record, whatever its failure, grantable at once:
	// it becomes released with failures and crashes 0 and no wait. Failed
	// effects of the record are reopened with it; succeeded effects are kept.
	// The last token is forgotten.
	Reopen(ctx context.Context, id ID, reason string) (bool, error)
	// Forget removes a record in any state, with its effects: the next delivery
	// runs as if the key had never been seen.
	Forget(ctx context.Context, id ID, reason string) (bool, error)
	// ForceRelease takes a claim from its owner, whose renewals and settlements
	// are lost from then on: the record becomes released with no wait.
	ForceRelease(ctx context.Context, id ID, reason string) (bool, error)
}

// Audit describes one use of [Admin].
type Audit struct {
	Action string // "reopen", "forget" or "force-release"
	ID     ID
	Reason string
	Before Record // the record as it was
	At     time.Time
}
