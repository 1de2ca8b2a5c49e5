package store

import (
	"context"
	"time"
)

// Counter counts the records of one scope, for gauges that are asked for
// rarely. It is an optional interface like [Inspector]. The cost grows with the
// number of records: every implementation says how.
type Counter interface {
	// Stats counts without changing anything. Effects are not counted. Records
	// that change meanwhile may be counted as they were or as they are.
	Stats(ctx context.Context, scope string) (Stats, error)
}

// Stats are the numbers of records by state. Absent records are in Expired
// only.
type Stats struct {
	Claimed   int64
	Released  int64
	Succeeded int64
	Transient int64 // failed, may be granted again
	Terminal  int64 // failed for good
	Exhausted int64
	Parked    int64

	// Expired are past their retention and not removed yet. Zero where the
	// storage removes them by itself.
	Expired int64
	// Overdue is how long ago the first of the leases ended that are over with
	// nobody having taken over: the oldest claim that is nobody's. Zero when
	// there is none.
	Overdue time.Duration
}

// Add counts n more records of a state. Unknown states are not counted.
func (s *Stats) Add(state State, f Failure, n int64) {
	switch {
	case state == StateClaimed:
		s.Claimed += n
	case state == StateReleased:
		s.Released += n
	case state == StateSucceeded:
		s.Succeeded += n
	case state != StateFailed:
	case f == FailedTransient:
		s.Transient += n
	case f == FailedTerminal:
		s.Terminal += n
	case f == FailedExhausted:
		s.Exhausted += n
	case f == FailedParked:
		s.Parked += n
	}
}
