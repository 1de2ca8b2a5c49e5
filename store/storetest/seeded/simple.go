// Package seeded holds a store that is correct and nine that are each wrong in
// one way that real stores were wrong in. They test the tests: a suite or a
// checker that finds nothing wrong with one of the nine is not good enough.
// None of them is for use.
package seeded

import (
	"context"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// Correct returns a store in memory that keeps the contract in the simplest
// way: one mutex around package rules. It has no optional interfaces and never
// frees memory.
func Correct() store.Store { return newSimple(hooks{}) }

// key is an encoded ID.
type key struct{ scope, key, effect string }

// simple is a store whose steps a bug can replace.
type simple struct {
	mu      sync.Mutex
	records map[key]*rules.Record
	effects map[key]map[key]bool // of a parent
	hooks   hooks
}

// hooks change what a step does. They run under the mutex, except for gap. Nil
// changes nothing.
type hooks struct {
	// claim sees the record before the claim is decided; ok says that it has
	// answered the claim by itself.
	claim func(id key, r *rules.Record, req *store.ClaimRequest, now time.Time) (c store.Claim, ok bool)
	// after sees every claim that was decided by the rules.
	after func(id key, r *rules.Record, c store.Claim, now time.Time)
	// renew and settle may change the request.
	renew  func(r *rules.Record, l *store.Lease)
	settle func(r *rules.Record, s *store.Settlement)
	// gap, if there is one, runs between reading a record and writing it back,
	// outside of the mutex.
	gap func()
}

func newSimple(h hooks) *simple {
	return &simple{records: map[key]*rules.Record{}, effects: map[key]map[key]bool{}, hooks: h}
}

func encoded(id store.ID) key {
	s, k, e := id.Encode()
	return key{s, k, e}
}

// Claim implements [store.Store].
func (s *simple) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Claim, len(reqs))
	for i := range reqs {
		out[i] = s.claim(&reqs[i])
	}
	return out, nil
}

func (s *simple) claim(req *store.ClaimRequest) store.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, now := encoded(req.ID), time.Now()
	r, parent := s.read(req.ID)
	if s.hooks.claim != nil {
		if c, ok := s.hooks.claim(id, r, req, now); ok {
			return c
		}
	}
	wasAbsent := req.ID.Effect == "" && r.Absent(now)
	c, changed := rules.Claim(r, parent, req, now)
	if s.hooks.gap != nil {
		s.mu.Unlock()
		s.hooks.gap()
		s.mu.Lock()
	}
	if changed {
		s.write(req.ID, r, wasAbsent)
	}
	if s.hooks.after != nil {
		s.hooks.after(id, r, c, now)
	}
	c.Payload = clone(c.Payload)
	return c
}

// Renew implements [store.Store].
func (s *simple) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Status, len(leases))
	for i := range leases {
		out[i] = s.renew(leases[i], d)
	}
	return out, nil
}

func (s *simple) renew(l store.Lease, d time.Duration) store.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, parent := s.read(l.ID)
	if s.hooks.renew != nil {
		s.hooks.renew(r, &l)
	}
	st, changed := rules.Renew(r, parent, &l, d, time.Now())
	if changed {
		s.write(l.ID, r, false)
	}
	return st
}

// Settle implements [store.Store].
func (s *simple) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Status, len(settlements))
	for i := range settlements {
		out[i] = s.settle(settlements[i])
	}
	return out, nil
}

func (s *simple) settle(set store.Settlement) store.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r, parent := s.read(set.ID)
	if s.hooks.settle != nil {
		s.hooks.settle(r, &set)
	}
	set.Payload = clone(set.Payload)
	wasAbsent := set.ID.Effect == "" && r.Absent(now)
	st, changed := rules.Settle(r, parent, &set, now)
	if changed {
		s.write(set.ID, r, wasAbsent)
	}
	return st
}

// read returns a copy of the record and, for an effect, of its parent's.
func (s *simple) read(id store.ID) (r, parent *rules.Record) {
	r = &rules.Record{}
	if found := s.records[encoded(id)]; found != nil {
		*r = *found
	}
	if id.Effect != "" {
		parent, _ = s.read(id.Parent())
	}
	return r, parent
}

// write stores r. A parent that begins a new life loses its effects.
func (s *simple) write(id store.ID, r *rules.Record, newLife bool) {
	k := encoded(id)
	if newLife {
		for e := range s.effects[k] {
			delete(s.records, e)
		}
		delete(s.effects, k)
	}
	s.records[k] = r
	if id.Effect != "" {
		p := encoded(id.Parent())
		if s.effects[p] == nil {
			s.effects[p] = map[key]bool{}
		}
		s.effects[p][k] = true
	}
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
