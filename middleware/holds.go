package secondrun

import (
	"context"
	"errors"
	"time"
)

// Holds extends a broker's holds on deliveries (SQS visibility, say) on the
// heartbeat that renews the leases. Adapters use it; it is not needed
// elsewhere.
type Holds struct {
	beats *heartbeat
	group *beatGroup
}

// HoldConfig says how the holds of one consumer are extended.
type HoldConfig struct {
	// Lasts is what one extension lasts, from the start of the call.
	Lasts time.Duration
	// Batch is the largest number of holds in one call.
	Batch int
	// Timeout limits one call.
	Timeout time.Duration
	// Extend asks the broker to extend all of the holds and answers each: nil
	// extended, an error made by [Gone] lost for good, any other error try
	// again. It is called concurrently for different holds.
	Extend func(ctx context.Context, holds []*Hold) []error
}

// Hold is one hold that is extended.
type Hold struct {
	Value any // the adapter's own
	holds *Holds
	beat  *beat
}

// NewHolds returns an empty set of holds on the guard's heartbeat.
func (g *Guard) NewHolds(c HoldConfig) *Holds {
	group := &beatGroup{
		lasts: c.Lasts, margin: min(c.Lasts/10, 2*time.Second),
		max: max(c.Batch, 1), timeout: c.Timeout, cause: ErrHoldLost,
	}
	group.extend = func(ctx context.Context, beats []*beat) []error {
		holds := make([]*Hold, len(beats))
		for i, b := range beats {
			holds[i] = b.value.(*Hold)
		}
		return c.Extend(ctx, holds)
	}
	return &Holds{beats: &g.beats, group: group}
}

// Gone marks an extension that was refused for good. A nil err stays nil.
func Gone(err error) error {
	if err == nil {
		return nil
	}
	return &gone{err}
}

// Add starts to extend a hold that lasts until the given instant, less a
// margin. When it is lost for good, or was not extended in time, lost is called
// once with [ErrHoldLost].
func (h *Holds) Add(value any, until time.Time, lost func(cause error)) *Hold {
	hold := &Hold{Value: value, holds: h}
	hold.beat = h.beats.add(h.group, hold, until.Add(-h.group.margin), lost)
	return hold
}

// Limit ends the extensions at the given instant and calls lost with the cause
// then: for brokers that cap the time of a hold.
func (h *Hold) Limit(at time.Time, cause error) { h.holds.beats.limit(h.beat, at, cause) }

// Stop ends the extensions and waits until none is in flight, so that the
// delivery can be settled without racing one. It can be called more than once.
func (h *Hold) Stop() { h.holds.beats.stopAndWait(h.beat) }

// Left is the time until the hold is lost if it is not extended.
func (h *Hold) Left() time.Duration { return h.holds.beats.left(h.beat) }

// isGone reports whether an extension was refused for good.
func isGone(err error) bool {
	var g *gone
	return errors.As(err, &g)
}
