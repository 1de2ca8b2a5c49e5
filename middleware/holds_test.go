package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

const visibility = time.Minute

// broker answers extensions.
type broker struct {
	calls, items atomic.Int32
	answer       func(ctx context.Context, value any) error
}

func (b *broker) extend(ctx context.Context, holds []*secondrun.Hold) []error {
	b.calls.Add(1)
	errs := make([]error, len(holds))
	for i, h := range holds {
		b.items.Add(1)
		if b.answer != nil {
			errs[i] = b.answer(ctx, h.Value)
		}
	}
	return errs
}

func holds(g *secondrun.Guard, b *broker) *secondrun.Holds {
	return g.NewHolds(secondrun.HoldConfig{Lasts: visibility, Batch: 10, Timeout: 5 * time.Second, Extend: b.extend})
}

func TestHoldsAreExtendedTogether(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		b := &broker{}
		hs := holds(f.g, b)
		var all []*secondrun.Hold
		for i := range 25 {
			all = append(all, hs.Add(i, time.Now().Add(visibility), func(cause error) { f.Errorf("lost: %v", cause) }))
		}
		time.Sleep(10 * visibility)
		if left := all[0].Left(); left < visibility/2 || left > visibility {
			f.Errorf("%v left", left)
		}
		for _, h := range all {
			h.Stop()
			h.Stop()
		}
		calls, items := b.calls.Load(), b.items.Load()
		if items < 25*28 || items > 25*40 || calls < items/10 || calls > 300 {
			f.Errorf("%d holds in %d calls", items, calls)
		}
		time.Sleep(10 * visibility)
		is(f, "calls after the end", b.calls.Load(), calls)
	})
}

func TestB03_HoldThatIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(ctx context.Context, _ any) error
		after  time.Duration
	}{
		"refused": {func(context.Context, any) error { return secondrun.Gone(errCut) }, visibility / 3},
		"wrapped": {func(context.Context, any) error { return fmt.Errorf("entry: %w", secondrun.Gone(errCut)) }, visibility / 3},
		"fails":   {func(context.Context, any) error { return errCut }, visibility - 2*time.Second},
		"hangs":   {func(ctx context.Context, _ any) error { <-ctx.Done(); return ctx.Err() }, visibility - 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				lost := make(chan error, 2)
				holds(f.g, &broker{answer: test.answer}).Add(1, time.Now().Add(visibility), func(cause error) { lost <- cause })
				began := time.Now()
				isError(f, <-lost, secondrun.ErrHoldLost)
				if took := time.Since(began); took > test.after || took < test.after*8/10 {
					f.Errorf("lost after %v, want %v", took, test.after)
				}
				time.Sleep(visibility)
				is(f, "told again", len(lost), 0)
			})
		})
	}
	is(t, "no error", secondrun.Gone(nil), nil)
	isError(t, secondrun.Gone(errCut), errCut)
	is(t, "text", secondrun.Gone(errCut).Error(), errCut.Error())
}

func TestB03_ExtensionThatFailsForAWhile(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		n := 0
		b := &broker{answer: func(context.Context, any) error {
			if n++; n < 5 {
				return errCut
			}
			return nil
		}}
		h := holds(f.g, b).Add(1, time.Now().Add(visibility), func(cause error) { f.Errorf("lost: %v", cause) })
		time.Sleep(2 * visibility)
		h.Stop()
	})
}

func TestB04_HoldThatIsCapped(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		capped := errors.New("no more than two minutes")
		lost := make(chan error, 2)
		b := &broker{}
		h := holds(f.g, b).Add(1, time.Now().Add(visibility), func(cause error) { lost <- cause })
		h.Limit(time.Now().Add(2*visibility), capped)
		h.Limit(time.Now().Add(3*visibility), errCut) // later than the first: no change
		began := time.Now()
		isError(f, <-lost, capped)
		is(f, "after", time.Since(began), 2*visibility)
		calls := b.calls.Load()
		isError(f, <-lost, secondrun.ErrHoldLost) // what was held runs out
		is(f, "extensions after the limit", b.calls.Load(), calls)
	})
}

func TestStopWaitsForTheExtensionInFlight(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		answer := make(chan struct{})
		b := &broker{answer: func(context.Context, any) error { <-answer; return nil }}
		h := holds(f.g, b).Add(1, time.Now().Add(visibility), func(cause error) { f.Errorf("lost: %v", cause) })
		time.Sleep(visibility / 3)
		is(f, "calls", b.calls.Load(), 1)
		stopped := make(chan struct{})
		go func() { h.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			f.Error("did not wait")
		default:
		}
		close(answer)
		<-stopped
	})
}
