package secondrun_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestShortHandlerCostsNoRenewal(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { time.Sleep(lease / 4); return nil })
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "renewals", f.faults.count("renew"), 0)
		time.Sleep(10 * lease)
		is(f, "renewals after the end", f.faults.count("renew"), 0)
	})
}

func TestLongHandlerIsRenewed(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(ctx context.Context, _ msg) error { time.Sleep(10 * lease); return ctx.Err() })
		done := start(f.Context(), p, delivery("a"))
		time.Sleep(9 * lease)
		d := process(f.guard(nil), nothing).Process(f.Context(), delivery("a"))
		decided(f, d, secondrun.Retry, false, secondrun.ErrBusy)
		if d.After <= 0 || d.After > lease+lease/10 {
			f.Errorf("wait %v", d.After)
		}
		decided(f, <-done, secondrun.Ack, true, nil)
		if n := f.faults.count("renew"); n < 27 || n > 40 {
			f.Errorf("%d renewals in 10 leases", n)
		}
	})
}

func TestThousandLeasesShareTheirCalls(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		const n, leases = 1000, 10
		p := process(f.g, func(ctx context.Context, _ msg) error { time.Sleep(leases * lease); return ctx.Err() })
		var done []<-chan secondrun.Decision
		for i := range n {
			done = append(done, start(f.Context(), p, delivery(fmt.Sprint(i))))
			time.Sleep(lease / n)
		}
		for _, c := range done {
			decided(f, <-c, secondrun.Ack, true, nil)
		}
		items := 0
		for _, c := range f.faults.log() {
			if c.op == "renew" {
				items += len(c.ids)
				sortedAndDistinct(f, c.ids)
			}
		}
		calls := f.faults.count("renew")
		f.Logf("%d renewals in %d calls over %d leases", items, calls, leases+1)
		if calls > 30*(leases+1) || items < 3*n*(leases-1) || items > 5*n*(leases+1) {
			f.Errorf("%d renewals in %d calls", items, calls)
		}
	})
}

func sortedAndDistinct(t testing.TB, ids []store.ID) {
	t.Helper()
	for i := 1; i < len(ids); i++ {
		if ids[i-1].Compare(ids[i]) >= 0 {
			t.Errorf("IDs of one call are not sorted and distinct: %v, %v", ids[i-1], ids[i])
		}
	}
}

// cancelledWith returns a handler that reports with which cause, and when after
// its start, it was cancelled.
func cancelledWith(cause *error, after *time.Duration) func(context.Context, msg) error {
	return func(ctx context.Context, _ msg) error {
		began := time.Now()
		<-ctx.Done()
		*cause, *after = context.Cause(ctx), time.Since(began)
		return ctx.Err()
	}
}

func TestZ16_RenewHangsPastTheDeadline(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		stuck := make(chan struct{})
		defer close(stuck)
		f.faults.on(only("renew", fault{block: stuck})) // does not even mind its context
		var cause error
		var after time.Duration
		d := process(f.g, cancelledWith(&cause, &after)).Process(f.Context(), delivery("a"))
		isError(f, cause, secondrun.ErrLeaseLost)
		is(f, "cancelled after", after, lease-2*time.Second)
		decided(f, d, secondrun.Retry, true, context.Canceled)
		is(f, "state", f.record("a").State, store.StateReleased)
		is(f, "lease lost", f.events.count(secondrun.EventLeaseLost), 1)
	})
}

func TestZ16_DeadlineCountsFromTheLastConfirmedRenewal(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var sent time.Time // of the last renewal that worked
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			switch {
			case op == "renew" && n <= 3:
				sent = time.Now()
				return fault{delay: 500 * time.Millisecond}
			case op == "renew":
				return fault{hang: true}
			}
			return fault{}
		})
		var cause error
		process(f.g, func(ctx context.Context, _ msg) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			is(f, "since the request", time.Since(sent), lease-2*time.Second)
			return ctx.Err()
		}).Process(f.Context(), delivery("a"))
		isError(f, cause, secondrun.ErrLeaseLost)
	})
}

func TestRefusedRenewalAfterTheHandlerReturnedIsIgnored(t *testing.T) {
	bubble(t, &secondrun.Options{CallTimeout: time.Minute}, func(f *fixture) {
		f.faults.on(only("settle", fault{delay: 25 * time.Second}))
		done := start(f.Context(), process(f.g, nothing), delivery("a"))
		time.Sleep(time.Second)
		if ok, err := f.faults.ForceRelease(f.Context(), f.record("a").ID, "test"); !ok || err != nil {
			f.Fatal(ok, err)
		}
		decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
		if f.faults.count("renew") == 0 {
			f.Error("not renewed while it was settled")
		}
		is(f, "lease lost", f.events.count(secondrun.EventLeaseLost), 0)
	})
}

func TestZ17_RenewFailsTwiceThenWorks(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("renew", fault{before: errCut}, 1, 2, 3, 4))
		p := process(f.g, func(ctx context.Context, _ msg) error { time.Sleep(3 * lease); return ctx.Err() })
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "lease lost", f.events.count(secondrun.EventLeaseLost), 0)
		failed := f.events.of(secondrun.EventRenewFailed)
		is(f, "failed renewals", len(failed), 4)
		isError(f, failed[0].Err, errCut)
	})
}

func TestLockedIsNeitherLostNorConfirmed(t *testing.T) {
	for name, test := range map[string]struct {
		locked []int // renewals; none means all
		cause  error
	}{"for a while": {locked: []int{1, 2, 3}}, "for ever": {cause: secondrun.ErrLeaseLost}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				locked := func(store.ID) error { return errLockedRow }
				f.faults.on(only("renew", fault{item: locked}, test.locked...))
				var cause error
				began := time.Now()
				process(f.g, func(ctx context.Context, _ msg) error {
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-time.After(3 * lease):
					}
					return nil
				}).Process(f.Context(), delivery("a"))
				isError(f, cause, test.cause)
				if test.cause != nil {
					is(f, "cancelled after", time.Since(began), lease-2*time.Second)
				}
			})
		})
	}
}

func TestZ05_RefusedRenewalCancels(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var cause error
		var after time.Duration
		done := start(f.Context(), process(f.g, cancelledWith(&cause, &after)), delivery("a"))
		time.Sleep(time.Second)
		if ok, err := f.faults.ForceRelease(f.Context(), f.record("a").ID, "test"); !ok || err != nil {
			f.Fatal(ok, err)
		}
		d := <-done
		isError(f, cause, secondrun.ErrLeaseLost)
		if after > lease/2 {
			f.Errorf("cancelled after %v", after)
		}
		decided(f, d, secondrun.Retry, true, secondrun.ErrLeaseLost)
	})
}

func TestZ03_LateCompletionWithoutTakeover(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(only("renew", fault{before: errCut}))
		p := process(f.g, func(context.Context, msg) error { time.Sleep(3 * lease); return nil })
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
		is(f, "state", f.record("a").State, store.StateSucceeded)
	})
}

func TestZ15_RenewedAfterTheLeaseEnded(t *testing.T) {
	bubble(t, &secondrun.Options{CallTimeout: 2 * lease}, func(f *fixture) {
		f.faults.on(only("renew", fault{delay: lease}, 1))
		var cause error
		var after time.Duration
		d := process(f.g, cancelledWith(&cause, &after)).Process(f.Context(), delivery("a"))
		isError(f, cause, secondrun.ErrLeaseLost)
		decided(f, d, secondrun.Retry, true, context.Canceled)
		time.Sleep(2 * lease) // the renewal arrives after the release
		is(f, "state", f.record("a").State, store.StateReleased)
	})
}

func TestH04_Z18_ResultAfterLeaseLossIsFenced(t *testing.T) {
	for _, takenOver := range []bool{true, false} {
		t.Run(fmt.Sprint("taken over ", takenOver), func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				f.faults.on(only("renew", fault{before: errCut}))
				done := start(f.Context(), process(f.g, func(context.Context, msg) error {
					time.Sleep(3 * lease) // ignores its context
					return nil
				}), delivery("a"))
				time.Sleep(lease + time.Second)
				if takenOver {
					other := process(f.guard(nil), func(context.Context, msg) error { return nil })
					decided(f, other.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
					decided(f, <-done, secondrun.Retry, true, secondrun.ErrLeaseLost)
					is(f, "fence", f.record("a").Fence, 2)
				} else {
					decided(f, <-done, secondrun.Ack, true, nil)
					is(f, "fence", f.record("a").Fence, 1)
				}
				is(f, "state", f.record("a").State, store.StateSucceeded)
				is(f, "lost", f.events.count(secondrun.EventLeaseLost), 1)
			})
		})
	}
}

func TestToxicLeaseDoesNotCostTheOthersTheirs(t *testing.T) {
	for name, ft := range map[string]fault{"fails": {before: errCut}, "hangs": {hang: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				bad := toxic("renew", "b")
				f.faults.on(func(op string, n int, ids []store.ID) fault {
					if bad(op, n, ids).before != nil {
						return ft
					}
					return fault{}
				})
				p := process(f.g, func(ctx context.Context, _ msg) error {
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(3 * lease):
						return nil
					}
				})
				as := p.Claim(f.Context(), []secondrun.Delivery{delivery("a"), delivery("b"), delivery("c")})
				var done []chan secondrun.Decision
				for _, a := range as {
					c := make(chan secondrun.Decision, 1)
					go func() { c <- a.Run(f.Context()) }()
					done = append(done, c)
				}
				decided(f, <-done[1], secondrun.Retry, true, secondrun.ErrLeaseLost)
				decided(f, <-done[0], secondrun.Ack, true, nil)
				decided(f, <-done[2], secondrun.Ack, true, nil)
			})
		})
	}
}

func TestStoreThatIsDownIsNotRenewedOneByOne(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var ds []secondrun.Delivery
		for i := range 100 {
			ds = append(ds, delivery(fmt.Sprint(i)))
		}
		as := process(f.g, nothing).Claim(f.Context(), ds)
		f.faults.on(only("renew", fault{before: errCut}))
		time.Sleep(lease)
		if n := f.faults.count("renew"); n > 4*60 {
			f.Errorf("%d renewals", n)
		}
		for _, a := range as { // all leases are lost
			decided(f, a.Run(f.Context()), secondrun.Retry, false, secondrun.ErrLeaseLost)
		}
	})
}
