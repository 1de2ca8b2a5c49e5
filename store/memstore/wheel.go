package memstore

import (
	"math"
	"math/bits"
	"time"

	"github.com/secondrun/secondrun/store"
)

// The wheel finds the entries whose retention is over without looking at the
// others, and without ever doing much at a time.
//
// It has levels of 64 slots. A slot of the lowest level is about a millisecond
// wide, every other level has slots eight times as wide as the one below. An
// entry goes into the lowest level that reaches to its end, and is looked at
// when its slot is over: at most an eighth of its retention too late. It is
// never moved to a lower level on the way, unlike in a hierarchical wheel, whose
// cascades are the stalls that this one is meant to avoid; the timers of Linux
// work the same way.
const (
	wheelLevels = 11 // reaches to 2.3 years; what ends later is looked at more than once
	wheelSlots  = 64
	wheelShift  = 20 // 2^20 ns
	never       = math.MaxInt64
)

type wheel struct {
	epoch  time.Time // instants are nanoseconds since
	due    int64     // no slot is over before
	levels [wheelLevels]level
}

type level struct {
	done  int64  // the slots of all ticks up to this are empty
	used  uint64 // a bit for every slot that is not empty
	slots [wheelSlots]*entry
}

// link is the place of an entry in the wheel.
type link struct {
	next, prev *entry
	tick       int64 // of the slot; 0 means in none
	level      uint8
}

func shiftOf(l int) int { return wheelShift + 3*l }

// now is time.Now at half of the price: only the monotonic clock is read.
func (w *wheel) now() time.Time { return w.epoch.Add(time.Since(w.epoch)) }

// instant is never negative: a store may be made outside of a synctest bubble
// and used inside, where it is the year 2000.
func (w *wheel) instant(t time.Time) int64 { return max(0, int64(t.Sub(w.epoch))) }

// end is the instant from which the record of e is absent.
func (w *wheel) end(e *entry) int64 {
	end := e.rec.ExpiresAt
	if e.rec.State == store.StateClaimed && end.Before(e.rec.LeaseEnd) {
		end = e.rec.LeaseEnd
	}
	return w.instant(end)
}

// add puts e, which is in no slot, into the slot of its end.
func (w *wheel) add(e *entry, now int64) {
	end := max(w.end(e), now)
	for l := range wheelLevels {
		lev := &w.levels[l]
		shift := shiftOf(l)
		if lev.used == 0 {
			lev.done = now >> shift
		}
		tick := end>>shift + 1
		if tick > lev.done+wheelSlots {
			if l < wheelLevels-1 {
				continue
			}
			tick = lev.done + wheelSlots
		}
		e.link.tick, e.link.level = tick, uint8(l) //nolint:gosec // less than wheelLevels
		slot := int(tick % wheelSlots)
		if head := lev.slots[slot]; head != nil {
			head.link.prev, e.link.next = e, head
		}
		lev.slots[slot] = e
		lev.used |= 1 << slot
		w.due = min(w.due, tick<<shift)
		return
	}
}

// drop takes e out of its slot.
func (w *wheel) drop(e *entry) {
	lev := &w.levels[e.link.level]
	slot := int(e.link.tick % wheelSlots)
	if e.link.prev != nil {
		e.link.prev.link.next = e.link.next
	} else {
		lev.slots[slot] = e.link.next
	}
	if e.link.next != nil {
		e.link.next.link.prev = e.link.prev
	}
	if lev.slots[slot] == nil {
		lev.used &^= 1 << slot
	}
	e.link = link{}
}

// move puts e where it belongs if it is in no slot, or in one that is over too
// late. Where it is looked at too early, it is moved then: a settlement and a
// renewal put the end off as a rule, and are to cost nothing here.
func (w *wheel) move(e *entry, now int64) {
	if e.link.tick != 0 {
		if shift := shiftOf(int(e.link.level)); w.end(e)>>shift+1 >= e.link.tick {
			return
		}
		w.drop(e)
	}
	w.add(e, now)
}

// pop takes an entry out of a slot that is over; nil means that there is none.
func (w *wheel) pop(now int64) *entry {
	if now < w.due {
		return nil
	}
	w.due = never
	for l := range wheelLevels {
		lev := &w.levels[l]
		if lev.used == 0 {
			continue
		}
		shift := shiftOf(l)
		first := lev.first()
		if first <= now>>shift {
			w.due = now // others may be left
			e := lev.slots[first%wheelSlots]
			lev.done = first - 1
			w.drop(e)
			return e
		}
		lev.done = max(lev.done, now>>shift)
		w.due = min(w.due, first<<shift)
	}
	return nil
}

// first returns the tick of the first slot that is not empty.
func (l *level) first() int64 {
	next := l.done + 1
	return next + int64(bits.TrailingZeros64(bits.RotateLeft64(l.used, -int(next%wheelSlots))))
}
