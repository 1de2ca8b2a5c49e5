package secondrun

import (
	"errors"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
)

// Errors that callers act on. They are found with [errors.Is].
var (
	// ErrBusy says that another delivery holds the key, or that the key waits
	// for a retry. [BusyError] carries how long.
	ErrBusy = errors.New("secondrun: key is busy")
	// ErrFailed says that the key failed for good and is not run again for this
	// delivery. [FailedError] carries the recorded failure.
	ErrFailed = errors.New("secondrun: key has failed")
	// ErrExhausted says that the budget of failures or crashes is used up. It
	// is also an ErrFailed.
	ErrExhausted = errors.New("secondrun: budget is used up")
	// ErrParked says that an earlier run ended with an unknown outcome and that
	// the policy is not to repeat it. It is also an ErrFailed.
	ErrParked = errors.New("secondrun: outcome unknown, parked")
	// ErrConflict says that the key was used before with another fingerprint.
	ErrConflict = errors.New("secondrun: same key, different content")
	// ErrKey says that no key could be derived from the message.
	ErrKey = errors.New("secondrun: no key")
	// ErrStore says that the store did not answer. Nothing has run.
	ErrStore = errors.New("secondrun: store unavailable")
	// ErrUnrecorded says that the handler returned but its outcome could not be
	// recorded: the effect may be done, and a later delivery may repeat it.
	ErrUnrecorded = errors.New("secondrun: outcome not recorded")
	// ErrReentrant says that a handler tried to claim its own key, or an effect
	// inside itself.
	ErrReentrant = errors.New("secondrun: key claimed inside its own handler")
	// ErrNoClaim says that Once or EffectKey was called outside a handler.
	ErrNoClaim = errors.New("secondrun: context carries no claim")
	// ErrNotCommitted says that a handler settled its claim in a transaction,
	// returned nil, and the transaction was not committed.
	ErrNotCommitted = errors.New("secondrun: transaction was not committed")

	// ErrResultUnavailable accompanies a success whose result was not kept.
	ErrResultUnavailable = errors.New("secondrun: succeeded before, result not available")
	// ErrResultUndecodable accompanies a success whose stored result cannot be
	// decoded. It is also an ErrResultUnavailable.
	ErrResultUndecodable = errors.New("secondrun: succeeded before, result not decodable")
)

// Causes with which the context of a handler is cancelled ([context.Cause]).
var (
	// ErrLeaseLost says that the lease ran out or another owner took over.
	ErrLeaseLost = errors.New("secondrun: lease lost")
	// ErrHoldLost says that the broker no longer holds the delivery for us. The
	// outcome is still recorded; the delivery is not acknowledged.
	ErrHoldLost = errors.New("secondrun: broker's hold lost")
	// ErrMaxRuntime says that the run took longer than Options.MaxRuntime.
	ErrMaxRuntime = errors.New("secondrun: run exceeded MaxRuntime")
	// ErrShutdown says that the Guard is shutting down.
	ErrShutdown = errors.New("secondrun: shutting down")
)

// BusyError is the [ErrBusy] of one claim.
type BusyError struct {
	After  time.Duration // how long to wait before asking again, jitter included
	Holder string        // who holds the key; may be empty
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v for %v", ErrBusy, e.After.Round(time.Millisecond))
}

// Is makes a BusyError an [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// FailedError is the [ErrFailed] of one claim: a failure that was recorded
// earlier, or just now because the budget is used up.
type FailedError struct {
	Failure store.Failure
	Text    string // the recorded description, already redacted; may be empty
}

func (e *FailedError) Error() string {
	switch e.Failure {
	case store.FailedParked: // the text tells less than what to do
		return ErrParked.Error() + ": find out what happened, then reopen the key"
	case store.FailedExhausted:
		if e.Text != "" {
			return fmt.Sprintf("%v, last failure: %q", ErrExhausted, e.Text)
		}
		return fmt.Sprintf("%v: too many failures or crashes", ErrExhausted)
	}
	if e.Text == "" {
		return fmt.Sprintf("%v (%v)", ErrFailed, e.Failure)
	}
	return fmt.Sprintf("%v (%v): %q", ErrFailed, e.Failure, e.Text)
}

// Is makes a FailedError an [ErrFailed], and an [ErrExhausted] or [ErrParked]
// where that is how it failed.
func (e *FailedError) Is(target error) bool {
	switch target {
	case ErrFailed:
		return true
	case ErrExhausted:
		return e.Failure == store.FailedExhausted
	case ErrParked:
		return e.Failure == store.FailedParked
	}
	return false
}

// KeyError is the [ErrKey] of one message.
type KeyError struct {
	Err error // from the key function
}

func (e *KeyError) Error() string { return ErrKey.Error() + ": " + e.Err.Error() }

// Unwrap returns the key function's error.
func (e *KeyError) Unwrap() error { return e.Err }

// Is makes a KeyError an [ErrKey].
func (e *KeyError) Is(target error) bool { return target == ErrKey }

// ResultError is the [ErrResultUnavailable] of one replay.
type ResultError struct {
	Reason string // why the result was not kept; or empty
	Err    error  // why it cannot be decoded; or nil
}

func (e *ResultError) Error() string {
	if e.Err != nil {
		return ErrResultUndecodable.Error() + ": " + e.Err.Error()
	}
	return ErrResultUnavailable.Error() + ": " + e.Reason
}

// Unwrap returns Err.
func (e *ResultError) Unwrap() error { return e.Err }

// Is makes a ResultError an [ErrResultUnavailable], and an
// [ErrResultUndecodable] when it has an Err.
func (e *ResultError) Is(target error) bool {
	return target == ErrResultUnavailable || target == ErrResultUndecodable && e.Err != nil
}

// storeError is the ErrStore of one call.
type storeError struct{ err error }

func (e *storeError) Error() string        { return ErrStore.Error() + ": " + e.err.Error() }
func (e *storeError) Unwrap() error        { return e.err }
func (e *storeError) Is(target error) bool { return target == ErrStore }
