package memstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// TestWheelFindsEveryEntryInTime adds, moves and drops entries with ends from a
// millisecond to ten years away, and lets time pass in steps of every size. No
// entry may come before its slot is over, and none may be an eighth of its way
// late.
func TestWheelFindsEveryEntryInTime(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
		w := wheel{epoch: time.Now(), due: never}
		var now int64
		added := map[*entry]int64{} // when it was put into its slot
		some := func() time.Duration { return time.Duration(1) << (10 + rnd.IntN(49)) }
		for range 400 {
			switch rnd.IntN(4) {
			case 0, 1:
				e := &entry{rec: rules.Record{State: store.StateSucceeded, ExpiresAt: w.epoch.Add(time.Duration(now) + some())}}
				w.add(e, now)
				added[e] = now
			case 2:
				for e := range added {
					e.rec.ExpiresAt = w.epoch.Add(time.Duration(now) + some())
					tick, level := e.link.tick, e.link.level
					w.move(e, now)
					if e.link.tick != tick || e.link.level != level {
						added[e] = now
					}
					break
				}
			default:
				now += int64(some()) >> rnd.IntN(20)
				drain(t, &w, now, added)
			}
		}
		for len(added) > 0 && now < 1<<61 {
			now += now/2 + 1<<30
			drain(t, &w, now, added)
		}
		if len(added) > 0 {
			t.Fatalf("seed %d: %d entries were never found", seed, len(added))
		}
	}
}

// drain pops what is over and checks that nothing late is left.
func drain(t *testing.T, w *wheel, now int64, added map[*entry]int64) {
	t.Helper()
	for {
		e := w.pop(now)
		if e == nil {
			break
		}
		if _, ok := added[e]; !ok {
			t.Fatal("an entry came twice")
		}
		delete(added, e)
		if end := w.end(e); end > now {
			w.add(e, now) // moved to a later end, or beyond the last level
			added[e] = now
		}
	}
	for e, since := range added {
		if end := w.end(e); now > end+(end-since)/7+4<<wheelShift {
			t.Fatalf("an entry of %v is %v late", time.Duration(end-since), time.Duration(now-end))
		}
	}
}

func TestWheelKeepsClaimsWhoseLeaseOutlivesTheirRetention(t *testing.T) {
	w := wheel{epoch: time.Now(), due: never}
	e := &entry{rec: rules.Record{
		State: store.StateClaimed, ExpiresAt: w.epoch.Add(time.Second), LeaseEnd: w.epoch.Add(time.Minute),
	}}
	w.add(e, 0)
	if w.pop(int64(59*time.Second)) != nil {
		t.Error("found before the lease was over")
	}
	if w.pop(int64(70*time.Second)) != e {
		t.Error("not found after the lease")
	}
}
