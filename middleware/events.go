package secondrun

import (
	"context"
	"time"

	"github.com/secondrun/secondrun/store"
)

// Event is one thing that happened to a claim, a run or the store.
type Event struct {
	Kind  EventKind
	Scope string
	ID    store.ID // of the record; zero for events about the store

	Verdict  store.Verdict // EventVerdict, EventSuppressed, EventWouldSuppress
	Failure  store.Failure // the same, with Failed and Exhausted: how the key failed
	Takeover bool          // EventVerdict: granted over an expired lease
	Starts   int           // EventVerdict: grants so far
	Kept     store.Kind    // EventSettled: how the claim was settled
	Code     store.Code    // EventSettled: the store's answer
	Late     bool          // EventSettled: the lease had ended before, by this process's reckoning

	// Duration is that of the run (EventRun), of the store's call
	// (EventStoreCall), or the wait that is ahead (EventVerdict with Busy).
	Duration time.Duration
	// Op and Batch describe an EventStoreCall: "claim", "renew", "settle" or
	// "ping", and the number of items.
	Op    string
	Batch int

	Reason string // EventResultOmitted
	Class  Class  // EventRun: what the failure was taken for; zero when the run was no failure
	Err    error  // what went wrong, nil otherwise. It may carry payloads
}

// KeyHash returns the first 8 hexadecimal digits of the hash of the ID: what
// may be logged.
func (e Event) KeyHash() string { return e.ID.KeyHash() }

// EventKind says what happened.
type EventKind uint8

// Kinds of events.
const (
	EventVerdict         EventKind = iota + 1 // a claim was answered
	EventSuppressed                           // a delivery did not run, since an outcome is known
	EventWouldSuppress                        // Mode Observe: it would not have run, and did
	EventRun                                  // a handler returned; Err is what it returned
	EventSettled                              // an outcome was recorded, or refused
	EventUnrecorded                           // a handler returned, and its outcome could not be recorded
	EventRecreated                            // a success was recorded although its record had vanished
	EventResultOmitted                        // a success was recorded without its result
	EventLeaseLost                            // a handler was cancelled: the lease is gone, or MaxRuntime is over, as Err says
	EventHoldLost                             // the broker's hold is gone; Err is with what the handler was cancelled, if it was
	EventRenewFailed                          // a renewal was not confirmed; it is tried again
	EventKeyError                             // no key could be derived
	EventFailOpen                             // a handler ran without a claim, since the store was unavailable
	EventStoreCall                            // the store was called
	EventStoreDown                            // the breaker opened
	EventStoreUp                              // the breaker closed
	EventEffectSucceeded                      // Once recorded an effect
	EventEffectReplayed                       // Once answered from a record
	EventSkipped                              // nothing to handle in the message (keyfn.ErrSkip); it is acknowledged
)

var eventNames = [...]string{
	"none", "verdict", "suppressed", "would-suppress", "run", "settled", "unrecorded", "recreated",
	"result-omitted", "lease-lost", "hold-lost", "renew-failed", "key-error", "fail-open", "store-call",
	"store-down", "store-up", "effect-succeeded", "effect-replayed", "skipped",
}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		k = 0
	}
	return eventNames[k]
}

// emit reports an event of the guard's scope.
func (g *Guard) emit(ctx context.Context, e Event) {
	g.tel.event(ctx, &e)
	if g.opt.OnEvent == nil {
		return
	}
	e.Scope = g.scope
	g.opt.OnEvent(ctx, e)
}
