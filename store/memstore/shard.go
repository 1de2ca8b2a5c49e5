package memstore

import (
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

const (
	// sweepStep is the number of entries that a grant looks at to free memory.
	// With more than one, sweeping catches up with any rate of grants.
	sweepStep = 4
	// maxFree and maxBuffer bound what a shard keeps for later entries.
	maxFree   = 512
	maxBuffer = 1 << 10
)

// shard is a part of the store with a lock of its own.
type shard struct {
	mu      sync.Mutex
	entries map[uint64]*entry // by hash; others of the same hash follow by entry.same
	live    int               // entries, all that follow included
	wheel   wheel
	free    *entry // linked by next
	frees   int
	_       [32]byte // keeps the locks of two shards out of one cache line
}

// entry is a record with the records of its effects.
type entry struct {
	rec     rules.Record
	key     key
	same    *entry
	effects []*effect
	buffer  []byte // of rec.Payload; kept for the next record of this entry
	link    link
}

type effect struct {
	name string
	rec  rules.Record
}

func (sh *shard) init(epoch time.Time) {
	sh.entries = make(map[uint64]*entry)
	sh.wheel.epoch = epoch
	sh.wheel.due = never
}

func (sh *shard) claim(k key, name string, req *store.ClaimRequest, c *store.Claim) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.wheel.now() // under the lock: the answers of one record are in the order of its times
	e := sh.lookup(k)
	if name != "" {
		*c = e.claimEffect(name, req, now)
		c.Payload = clone(c.Payload)
		return
	}
	isNew := e == nil
	if isNew {
		e = sh.take(k)
	}
	wasAbsent := e.rec.Absent(now)
	var changed bool
	*c, changed = rules.Claim(&e.rec, nil, req, now)
	c.Payload = clone(c.Payload)
	if !changed {
		return
	}
	if wasAbsent {
		e.effects = nil
	}
	if isNew {
		sh.insert(e)
	}
	sh.moved(e, now)
	sh.sweep(now, sweepStep)
}

// claimEffect decides the claim of an effect. e is nil when there is no parent.
func (e *entry) claimEffect(name string, req *store.ClaimRequest, now time.Time) store.Claim {
	if e == nil {
		c, _ := rules.Claim(&rules.Record{}, nil, req, now)
		return c
	}
	f, isNew := e.effect(name)
	c, changed := rules.Claim(&f.rec, &e.rec, req, now)
	if changed && isNew {
		e.effects = append(e.effects, f)
	}
	return c
}

// effect finds the effect or makes one that is not yet part of e.
func (e *entry) effect(name string) (f *effect, isNew bool) {
	for _, f := range e.effects { // a handler has few
		if f.name == name {
			return f, false
		}
	}
	return &effect{name: name}, true
}

func (sh *shard) renew(k key, name string, l *store.Lease, d time.Duration) store.Status {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.wheel.now()
	e := sh.lookup(k)
	if e == nil {
		return store.Status{Code: store.Lost, At: now}
	}
	if name != "" {
		f, _ := e.effect(name)
		st, _ := rules.Renew(&f.rec, &e.rec, l, d, now)
		return st
	}
	st, changed := rules.Renew(&e.rec, nil, l, d, now)
	if changed {
		sh.moved(e, now)
	}
	return st
}

func (sh *shard) settle(k key, name string, s *store.Settlement) store.Status {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.wheel.now()
	e := sh.lookup(k)
	if name != "" {
		return e.settleEffect(name, s, now)
	}
	isNew := e == nil
	if isNew {
		e = sh.take(k)
	}
	wasAbsent := e.rec.Absent(now)
	st, changed := rules.Settle(&e.rec, nil, s, now)
	switch {
	case !changed && isNew:
		sh.give(e)
		return st
	case !changed:
		return st
	case isNew:
		sh.insert(e)
	}
	if wasAbsent {
		e.effects = nil
	}
	if e.rec.Payload != nil { // the caller's
		e.buffer = append(e.buffer[:0], e.rec.Payload...)
		e.rec.Payload = e.buffer
	}
	sh.moved(e, now)
	return st
}

// settleEffect settles an effect. e is nil when there is no parent.
func (e *entry) settleEffect(name string, s *store.Settlement, now time.Time) store.Status {
	if e == nil {
		return store.Status{Code: store.Absent, At: now}
	}
	f, isNew := e.effect(name)
	st, changed := rules.Settle(&f.rec, &e.rec, s, now)
	if changed {
		f.rec.Payload = clone(f.rec.Payload)
		if isNew {
			e.effects = append(e.effects, f)
		}
	}
	return st
}

// moved tells the wheel that the end of e may be another.
func (sh *shard) moved(e *entry, now time.Time) {
	sh.wheel.move(e, sh.wheel.instant(now))
}

// sweep looks at up to n entries whose end may have come, frees those that are
// absent and returns their number. more says that others are left.
func (sh *shard) sweep(now time.Time, n int) (freed int, more bool) {
	at := sh.wheel.instant(now)
	for range n {
		e := sh.wheel.pop(at)
		if e == nil {
			return freed, false
		}
		if e.rec.Absent(now) {
			sh.remove(e)
			freed++
			continue
		}
		sh.wheel.add(e, at)
	}
	return freed, sh.wheel.due <= at
}

// lookup returns the entry of k, nil when there is none.
func (sh *shard) lookup(k key) *entry {
	e := sh.entries[k.hash]
	for e != nil && e.key != k {
		e = e.same
	}
	return e
}

// insert makes e known, whose key is not.
func (sh *shard) insert(e *entry) {
	sh.live++
	if first, ok := sh.entries[e.key.hash]; ok { // one in 2^64
		first.same, e.same = e, first.same
		return
	}
	sh.entries[e.key.hash] = e
}

// remove frees e, which is not in the wheel.
func (sh *shard) remove(e *entry) {
	sh.live--
	first := sh.entries[e.key.hash]
	switch {
	case first != e:
		for first.same != e {
			first = first.same
		}
		first.same = e.same
	case e.same != nil:
		sh.entries[e.key.hash] = e.same
	default:
		delete(sh.entries, e.key.hash)
	}
	sh.give(e)
}

// take returns an entry without a record.
func (sh *shard) take(k key) *entry {
	e := sh.free
	if e == nil {
		return &entry{key: k}
	}
	sh.free, e.link.next = e.link.next, nil
	sh.frees--
	e.key = k
	return e
}

// give keeps e for take, up to a limit.
func (sh *shard) give(e *entry) {
	if sh.frees >= maxFree {
		return
	}
	buffer := e.buffer
	if cap(buffer) > maxBuffer {
		buffer = nil
	}
	*e = entry{buffer: buffer, link: link{next: sh.free}}
	sh.free = e
	sh.frees++
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
