package secondrun

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// heartbeat extends everything that this process holds: leases in the store
// and, for adapters, the broker's holds. One timer serves all of it. It is
// armed only while something is held, and no goroutine waits: a handler that
// returns before its first beat costs an entry in a map.
//
// What is due together is extended together, one call per group and batch. The
// calls run beside the timer, so that a call that hangs delays neither the
// others nor the local deadlines.
type heartbeat struct {
	mu    sync.Mutex
	timer *time.Timer
	at    time.Time // when the timer fires; zero when it is not armed
	beats map[*beat]struct{}
}

// beatGroup is a kind of hold: how long one extension lasts and how to ask for
// it.
type beatGroup struct {
	lasts   time.Duration // from the start of the extending call
	margin  time.Duration // safety subtracted from a confirmed end
	max     int           // items of one call
	timeout time.Duration // of one call
	// extend asks to extend all of them. It answers each: nil extended, a gone
	// error lost for good, any other error try again.
	extend func(ctx context.Context, beats []*beat) []error
	cause  error // with which a lost hold cancels
	// failed, if there is one, is told of every extension to be tried again.
	failed func(b *beat, err error)
}

// gone marks an extension that was refused for good.
type gone struct{ err error }

func (g *gone) Error() string { return g.err.Error() }
func (g *gone) Unwrap() error { return g.err }

// beat is one thing held.
type beat struct {
	group *beatGroup
	value any
	lost  func(cause error) // called without locks, for the limit and for the loss

	due     time.Time // next extension
	until   time.Time // local deadline: lost, unless extended before
	last    time.Time // no extension from then on; zero means no end
	why     error     // with which to cancel at last; nil lets the hold run out quietly
	flying  bool
	stopped bool
	landed  chan struct{} // closed when the extension in flight has been answered; nil when nobody waits
}

// add starts to extend what is held until the given instant.
func (h *heartbeat) add(g *beatGroup, value any, until time.Time, lost func(error)) *beat {
	now := time.Now()
	b := &beat{group: g, value: value, lost: lost, until: until}
	b.due = g.next(now)
	if early := now.Add(until.Sub(now) / 3); early.Before(b.due) {
		b.due = early
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beats == nil {
		h.beats = make(map[*beat]struct{})
	}
	h.beats[b] = struct{}{}
	h.armLocked(now, b.next())
	return b
}

// next is a third of what an extension lasts, at most, and a little less at
// random, so that processes that started together do not beat together.
func (g *beatGroup) next(now time.Time) time.Time {
	third := g.lasts / 3
	return now.Add(third - rand.N(third/8+1)) //nolint:gosec // spreads load, guards nothing
}

// next is when the timer must look at b.
func (b *beat) next() time.Time {
	at := b.until
	if !b.flying && b.renewable(b.due) && b.due.Before(at) {
		at = b.due
	}
	if b.why != nil && b.last.Before(at) {
		at = b.last
	}
	return at
}

func (b *beat) renewable(at time.Time) bool { return b.last.IsZero() || at.Before(b.last) }

func (h *heartbeat) armLocked(now, at time.Time) {
	if !h.at.IsZero() && !at.Before(h.at) {
		return
	}
	h.at = at
	if h.timer == nil {
		h.timer = time.AfterFunc(max(at.Sub(now), 0), h.tick)
		return
	}
	h.timer.Reset(max(at.Sub(now), 0))
}

// stop ends the extensions of b. An extension in flight goes on; its answer is
// ignored.
func (h *heartbeat) stop(b *beat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(b)
}

func (h *heartbeat) removeLocked(b *beat) {
	b.stopped = true
	delete(h.beats, b)
	if len(h.beats) == 0 && h.timer != nil {
		h.timer.Stop()
		h.at = time.Time{}
	}
}

// stopAndWait ends the extensions of b and waits until none is in flight.
func (h *heartbeat) stopAndWait(b *beat) {
	h.mu.Lock()
	h.removeLocked(b)
	if !b.flying {
		h.mu.Unlock()
		return
	}
	if b.landed == nil {
		b.landed = make(chan struct{})
	}
	landed := b.landed
	h.mu.Unlock()
	<-landed // bounded by the group's timeout
}

// limit ends the extensions of b at the given instant, unless they end before,
// and then cancels with why, if that is not nil. What is held runs out.
func (h *heartbeat) limit(b *beat, at time.Time, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.stopped || !b.renewable(at) {
		return
	}
	b.last, b.why = at, why
	h.armLocked(time.Now(), b.next())
}

// tick extends what is due, gives up what is over, and arms the timer again.
func (h *heartbeat) tick() {
	now := time.Now()
	var over, limited []*beat
	var whys []error
	due := map[*beatGroup][]*beat{}
	h.mu.Lock()
	h.at = time.Time{}
	for b := range h.beats {
		if b.why != nil && !now.Before(b.last) {
			limited, whys = append(limited, b), append(whys, b.why)
			b.why = nil
		}
		switch {
		case !now.Before(b.until):
			over = append(over, b)
		case !b.flying && b.renewable(b.due) && b.due.Before(now.Add(b.group.lasts/24)):
			b.flying = true
			due[b.group] = append(due[b.group], b)
		}
	}
	for _, b := range over {
		h.removeLocked(b)
	}
	for b := range h.beats {
		h.armLocked(now, b.next())
	}
	h.mu.Unlock()
	for i, b := range limited {
		b.lost(whys[i])
	}
	for _, b := range over {
		b.lost(b.group.cause)
	}
	for g, beats := range due {
		for len(beats) > 0 {
			n := min(len(beats), g.max)
			go h.extend(g, beats[:n:n])
			beats = beats[n:]
		}
	}
}

func (h *heartbeat) extend(g *beatGroup, beats []*beat) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	errs := g.extend(ctx, beats)
	cancel()
	h.answer(g, beats, errs, sent)
}

func (h *heartbeat) answer(g *beatGroup, beats []*beat, errs []error, sent time.Time) {
	now := time.Now()
	var lost, failed []*beat
	var why []error
	h.mu.Lock()
	for i, b := range beats {
		b.flying = false
		if b.landed != nil {
			close(b.landed)
			b.landed = nil
		}
		if b.stopped {
			continue
		}
		switch err := errs[i]; {
		case err == nil:
			b.until, b.due = sent.Add(g.lasts-g.margin), g.next(now)
		case isGone(err):
			h.removeLocked(b)
			lost = append(lost, b)
			continue
		default:
			failed, why = append(failed, b), append(why, err)
			b.due = now.Add(g.lasts/24 + rand.N(g.lasts/24+1)) //nolint:gosec // spreads load, guards nothing
		}
		h.armLocked(now, b.next())
	}
	h.mu.Unlock()
	for _, b := range lost {
		b.lost(g.cause)
	}
	for i, b := range failed {
		if g.failed != nil {
			g.failed(b, why[i])
		}
	}
}

// left is the time until the local deadline of b.
func (h *heartbeat) left(b *beat) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(b.until)
}

// now extends b at once and waits for the answer. It returns nil when b was
// confirmed.
func (h *heartbeat) now(b *beat) error {
	h.mu.Lock()
	was := b.until
	switch {
	case b.stopped, !b.renewable(time.Now()):
		h.mu.Unlock()
		return b.group.cause
	case b.flying:
		if b.landed == nil {
			b.landed = make(chan struct{})
		}
		landed := b.landed
		h.mu.Unlock()
		<-landed
	default:
		b.flying = true
		h.mu.Unlock()
		h.extend(b.group, []*beat{b})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.stopped || !b.until.After(was) {
		return b.group.cause
	}
	return nil
}
