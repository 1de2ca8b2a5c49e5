package sqsadapter

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// durations counts how long messages were held by a running handler, in
// buckets that grow by a quarter of a power of two: enough to tell a p99 within
// a fifth.
type durations struct {
	buckets [4 * 40]atomic.Uint64 // of milliseconds; the last one is 34 years
	n       atomic.Uint64
	warned  atomic.Int64 // the p99, in nanoseconds, that was last warned of
}

func (d *durations) add(took time.Duration) (n uint64) {
	d.buckets[bucket(took)].Add(1)
	return d.n.Add(1)
}

func bucket(d time.Duration) int {
	ms := uint64(max(d.Milliseconds(), 0)) //nolint:gosec // not negative
	if ms < 4 {
		return int(ms) //nolint:gosec // below 4
	}
	exp := bits.Len64(ms) - 3                                  // so that ms>>exp has three bits
	return min(4*exp+int(ms>>exp), len(durations{}.buckets)-1) //nolint:gosec // small
}

// upper is the upper end of a bucket.
func upper(i int) time.Duration {
	if i < 4 {
		return time.Duration(i+1) * time.Millisecond
	}
	exp, mantissa := i/4-1, i%4+4
	return time.Duration(mantissa+1) << exp * time.Millisecond
}

// p99 is the 99th percentile so far, zero when nothing has run.
func (d *durations) p99() time.Duration {
	n := d.n.Load()
	above, rank := uint64(0), n/100
	for i := len(d.buckets) - 1; i >= 0 && n > 0; i-- {
		if above += d.buckets[i].Load(); above > rank {
			return upper(i)
		}
	}
	return 0
}

// measured is the number of runs from which the p99 is trusted.
const measured = 100

// ran takes the duration of a run, and warns when the visibility timeout is
// shorter than three times the p99 so far. Heartbeats cover such handlers; but
// every stall of a heartbeat is then a second run.
func (c *core) ran(ctx context.Context, took time.Duration) {
	c.p.Guard().ObserveHold(ctx, took, c.opt.Visibility)
	n := c.took.add(took)
	if n < measured || n%measured != 0 {
		return
	}
	p99 := c.took.p99()
	last := c.took.warned.Load()
	if 3*p99 <= c.opt.Visibility || p99 < 2*time.Duration(last) || !c.took.warned.CompareAndSwap(last, int64(p99)) {
		return
	}
	c.warn(ctx, fmt.Sprintf("the p99 of the handler is %v, more than a third of the visibility timeout (%v): a heartbeat that stalls now lets a message be delivered twice", p99, c.opt.Visibility), nil)
}

// HoldRatio is the 99th percentile of the duration of handlers so far, divided
// by the visibility timeout. Above 0.33 the timeout is short for the work. It
// is 0 while nothing has run.
func (c *Consumer) HoldRatio() float64 { return c.c.holdRatio() }

// HoldRatio is [Consumer.HoldRatio].
func (h *Handler) HoldRatio() float64 { return h.c.holdRatio() }

func (c *core) holdRatio() float64 { return float64(c.took.p99()) / float64(c.opt.Visibility) }

// busyWait is how long a message waits whose key is busy: for the rest of the
// lease, and longer with every receive. A holder that renews its lease for
// half an hour would otherwise use up the message's maxReceiveCount.
func busyWait(after time.Duration, receives int) time.Duration {
	const first, longest = 3, 15 * time.Minute
	if receives < first {
		return after
	}
	return max(after, min(30*time.Second<<min(receives-first, 10), longest))
}
