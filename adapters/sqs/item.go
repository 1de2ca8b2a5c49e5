package sqsadapter

import (
	"errors"
	"sync"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// item is one message that is held.
type item struct {
	*Message
	receipt  string // its handle, which does not change
	received time.Time
	hold     *secondrun.Hold
	free     func()      // gives its slot to another message; it can be called again
	limit    *time.Timer // cancels the handler before the 12 hours end
	unseen   error       // why Options.View could not look into it
	settled  bool        // nothing is left to tell the queue
	started  time.Time   // when it began to run

	mu      sync.Mutex
	attempt *secondrun.Attempt // nil until it is claimed; written under mu, by whoever runs the item
	cause   error              // of a loss
	dead    bool               // the handle is not to be used any more
}

// lose notes a loss, and returns the attempt that must hear of it, if there is
// one already.
func (it *item) lose(cause error) *secondrun.Attempt {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.cause = cause
	it.dead = it.dead || !errors.Is(cause, ErrVisibilityLimit)
	return it.attempt
}

// claimed notes the attempt, and returns what was lost meanwhile.
func (it *item) claimed(a *secondrun.Attempt) (lost error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.attempt = a
	return it.cause
}

// letGo ends the extensions, and waits for the one in flight.
func (it *item) letGo() {
	it.limit.Stop()
	it.hold.Stop()
}

func (it *item) isDead() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.dead
}

// alive reports whether the message is still held, so that it may start.
func (it *item) alive() bool { return !it.isDead() && it.hold.Left() > 0 }

// decision is zero while nothing is decided.
func (it *item) decision() secondrun.Decision {
	if it.attempt == nil {
		return secondrun.Decision{}
	}
	return it.attempt.Decision()
}

// release gives back the claim of an item that has not run.
func (it *item) release() {
	if it.attempt != nil {
		it.attempt.Release(0)
	}
}

// seconds rounds a delay up to whole seconds within what SQS allows: the total
// since the receive is limited.
func (it *item) seconds(delay time.Duration) int32 {
	left := (maxVisibility - endBefore - time.Since(it.received)).Truncate(time.Second)
	delay = max(min(delay, left), 0)
	return int32((delay + time.Second - 1) / time.Second) //nolint:gosec // at most 12 h
}

// wait is the delay of a message that must come again: a second at least, or
// an impatient queue would burn through its receives.
func (it *item) wait(d secondrun.Decision) time.Duration {
	after := d.After
	if errors.Is(d.Err, secondrun.ErrBusy) {
		after = busyWait(after, it.ReceiveCount())
	}
	return max(after, time.Second)
}
