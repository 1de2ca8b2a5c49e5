package secondrun_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestIdleStoreIsCalledAtOnce(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		began := time.Now()
		process(f.g, nothing).Process(f.Context(), delivery("a"))
		is(f, "time", time.Since(began), 0)
		log := f.faults.log()
		is(f, "calls", len(log), 2)
		is(f, "items", len(log[0].ids), 1)
	})
}

func TestOneReceiveIsOneClaimCall(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		var ds []secondrun.Delivery
		for i := range 10 {
			ds = append(ds, delivery(fmt.Sprint(9-i)))
		}
		as := process(f.g, nothing).Claim(f.Context(), ds)
		is(f, "claims", f.faults.count("claim"), 1)
		for i, a := range as {
			d := a.Run(f.Context())
			decided(f, d, secondrun.Ack, true, nil)
			is(f, "key", d.ID.Key, fmt.Sprint(9-i)) // in the order of the deliveries
		}
		sortedAndDistinct(f, f.faults.log()[0].ids)
	})
}

func TestH10_ThousandDuplicatesAtOnce(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.on(func(string, int, []store.ID) fault { return fault{delay: 5 * time.Millisecond} })
		var runs, acks, busy atomic.Int32
		p := process(f.g, func(context.Context, msg) error { runs.Add(1); time.Sleep(time.Second); return nil })
		const n = 1000
		done := make(chan struct{}, n)
		for i := range n {
			go func() {
				defer func() { done <- struct{}{} }()
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				for {
					d := p.Process(f.Context(), delivery("a"))
					if d.Action == secondrun.Ack {
						acks.Add(1)
						return
					}
					busy.Add(1)
					time.Sleep(time.Second)
				}
			}()
		}
		for range n {
			<-done
		}
		is(f, "runs", runs.Load(), 1)
		is(f, "acks", acks.Load(), n)
		is(f, "claims in flight", f.faults.highest["claim"], 1)
		if calls := f.faults.count("claim"); calls > 12 {
			f.Errorf("%d claim calls", calls)
		}
		for _, c := range f.faults.log() {
			is(f, "items", len(c.ids), 1)
		}
		f.Logf("%d claim calls, %d busy", f.faults.count("claim"), busy.Load())
	})
}

func TestDifferentKeysTravelTogether(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.limits = store.Limits{Batch: 100, Parallel: 2}
		f.g = f.guard(nil)
		f.faults.on(func(string, int, []store.ID) fault { return fault{delay: 10 * time.Millisecond} })
		p := process(f.g, nothing)
		const n = 1000
		done := make([]<-chan secondrun.Decision, n)
		for i := range n {
			done[i] = start(f.Context(), p, delivery(fmt.Sprint(i%(n/2))))
		}
		for _, c := range done {
			if d := <-c; d.Action != secondrun.Ack && d.Action != secondrun.Retry {
				f.Error(d)
			}
		}
		for _, c := range f.faults.log() {
			sortedAndDistinct(f, c.ids)
			if len(c.ids) > 100 {
				f.Errorf("%d items in a call", len(c.ids))
			}
		}
		for op, most := range f.faults.highest {
			if most > 2 {
				f.Errorf("%d calls of %s at a time", most, op)
			}
		}
		if calls := f.faults.count("claim"); calls > 2*n/100+10 {
			f.Errorf("%d claim calls", calls)
		}
	})
}

func TestBatchThatIsLargerThanACall(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.faults.limits = store.Limits{Batch: 3}
		f.g = f.guard(nil)
		var ds []secondrun.Delivery
		for i := range 10 {
			ds = append(ds, delivery(fmt.Sprint(i)))
		}
		for _, a := range process(f.g, nothing).Claim(f.Context(), ds) {
			decided(f, a.Run(f.Context()), secondrun.Ack, true, nil)
		}
		is(f, "claims", f.faults.count("claim"), 4)
	})
}

func TestDuplicatesOfAnotherContentShareNoAnswer(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.serial(nil)
		f.faults.on(only("claim", fault{delay: time.Second}, 1))
		h := secondrun.Wrap(f.g, keyOf("k"), func(context.Context, msg) error { time.Sleep(time.Minute); return nil }).WithFingerprint(1, body)
		first := start(f.Context(), h.Processor(), delivery("x"))
		synctest.Wait()
		same := start(f.Context(), h.Processor(), delivery("x"))
		other := start(f.Context(), h.Processor(), delivery("y"))
		decided(f, <-same, secondrun.Retry, false, secondrun.ErrBusy)
		decided(f, <-other, secondrun.DeadLetter, false, secondrun.ErrConflict)
		decided(f, <-first, secondrun.Ack, true, nil)
	})
}

// A store that panics must not stop the guard for everybody else.
func TestPanicOfTheStoreHoldsNothingBack(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		f.serial(nil)
		f.faults.on(func(op string, n int, _ []store.ID) fault {
			if op == "claim" && n == 1 {
				panic("store")
			}
			return fault{}
		})
		p := process(f.g, nothing)
		func() {
			defer func() { is(f, "panic", recover(), any("store")) }()
			p.Process(f.Context(), delivery("a"))
		}()
		decided(f, p.Process(f.Context(), delivery("a")), secondrun.Ack, true, nil)
	})
}

func TestWrongNumberOfAnswersIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := secondrun.New("test", shortAnswers{newFaults()}, nil)
		isError(t, err, nil)
		decided(t, process(g, nothing).Process(t.Context(), delivery("a")), secondrun.Retry, false, store.ErrPermanent)
	})
}

type shortAnswers struct{ *faultStore }

func (shortAnswers) Claim(context.Context, []store.ClaimRequest) ([]store.Claim, error) {
	return nil, nil
}
