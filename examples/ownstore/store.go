// Package ownstore is a complete store of one's own: the afternoon's work that
// CONTRIBUTING.md promises. A map stands for the database; what a real one
// needs is a transaction that reads two rows and writes one.
package ownstore

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// Store keeps records in a map. The zero value is not ready; use [New].
type Store struct {
	mu   sync.Mutex // the transaction
	rows map[row]rules.Record
}

// row is the primary key: the spellings that ID.Encode gives, never the raw
// parts, which can be long or no text at all.
type row struct{ scope, key, effect string }

// New returns an empty store.
func New() *Store { return &Store{rows: make(map[row]rules.Record)} }

// Claim decides every request by itself. Nothing is written where rules say
// that nothing changed: a duplicate must cost a read.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	answers := make([]store.Claim, len(reqs))
	for i := range reqs {
		req := &reqs[i]
		err := s.transaction(ctx, req.ID, func(rec, parent *rules.Record, now time.Time) (changed bool) {
			answers[i], changed = rules.Claim(rec, parent, req, now)
			if changed && req.ID.Effect == "" && rec.Fence == 1 {
				s.forgetEffects(req.ID) // a new life starts with no effects
			}
			answers[i].Payload = bytes.Clone(answers[i].Payload) // the caller may write to it
			return changed
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Renew extends leases.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	answers := make([]store.Status, len(leases))
	for i := range leases {
		err := s.transaction(ctx, leases[i].ID, func(rec, parent *rules.Record, now time.Time) (changed bool) {
			answers[i], changed = rules.Renew(rec, parent, &leases[i], d, now)
			return changed
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Settle ends claims. The payload belongs to the caller, so it is copied.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	answers := make([]store.Status, len(settlements))
	for i := range settlements {
		set := settlements[i]
		set.Payload = bytes.Clone(set.Payload)
		err := s.transaction(ctx, set.ID, func(rec, parent *rules.Record, now time.Time) (changed bool) {
			answers[i], changed = rules.Settle(rec, parent, &set, now)
			if answers[i].Code == store.Absent && changed && set.ID.Effect == "" {
				s.forgetEffects(set.ID)
			}
			return changed
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// transaction reads a record and its parent, lets decide change the record, and
// writes it back if it did. Only the store's own clock is asked. A context that
// has ended is an error, and nothing happens.
func (s *Store) transaction(ctx context.Context, id store.ID, decide func(rec, parent *rules.Record, now time.Time) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := rowOf(id)
	rec := s.rows[key] // the zero Record stands for absent
	var parent *rules.Record
	if id.Effect != "" {
		p := s.rows[rowOf(id.Parent())]
		parent = &p
	}
	if decide(&rec, parent, time.Now()) {
		s.rows[key] = rec
	}
	return nil
}

func (s *Store) forgetEffects(id store.ID) {
	of := rowOf(id)
	for r := range s.rows {
		if r.scope == of.scope && r.key == of.key && r.effect != "" {
			delete(s.rows, r)
		}
	}
}

func rowOf(id store.ID) row {
	scope, key, effect := id.Encode()
	return row{scope, key, effect}
}
