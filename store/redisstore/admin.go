package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/secondrun/secondrun/store"
)

var errNoReason = errors.New("redisstore: a reason is required")

// Reopen implements [store.Admin].
func (s *Store) Reopen(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, s.scripts.reopen, "reopen", id, reason)
}

// ForceRelease implements [store.Admin].
func (s *Store) ForceRelease(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, s.scripts.reopen, "force-release", id, reason)
}

// Forget implements [store.Admin]. A record that cannot be read is forgotten
// too; its audit then has no Before.
func (s *Store) Forget(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, s.scripts.forget, "forget", id, reason)
}

// Answers of the scripts of this file.
const (
	changed       = 1
	changedBefore = 2
)

// change runs an admin script and reports it. The client repeats a command
// whose reply was lost, and would then be told that there is nothing left to
// change; so the record is read first, and when it was there and the repeated
// script finds its work done, the use is still reported: an audit with one entry
// too many is better than one that lacks an entry.
func (s *Store) change(ctx context.Context, sc script, action string, id store.ID, reason string) (bool, error) {
	if reason == "" {
		return false, fmt.Errorf("%w: %w", errNoReason, store.ErrPermanent)
	}
	before, seen, err := s.Get(ctx, id)
	if err != nil && (action != "forget" || !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrIncompatible)) {
		return false, err
	}
	b := s.newBatch(sc, 1)
	if action == "forget" {
		b.add(ctx, id, store.Token{})
	} else {
		mark := store.NewToken()
		b.add(ctx, id, store.Token{}, action, mark[:])
	}
	if id.Effect == "" {
		b.calls[0].cmd = newCmd(ctx, withEffects(b.calls[0].cmd.Args()))
	}
	if err := b.run(ctx, s.waitReplicas > 0); err != nil {
		return false, err
	}
	a := b.answer(0)
	if a.err != nil && !errors.Is(a.err, ErrTooFewReplicas) {
		return false, a.err
	}
	switch {
	case a.code == changed:
		// What cannot be decoded stays out of the audit.
		if rec, ok, err := present(id, a.extra, a.record, a.now); err == nil && ok {
			before = rec
		}
	case a.code == changedBefore, action == "forget" && seen:
	default:
		return false, a.err
	}
	if s.audit != nil {
		before.ID = id
		s.audit(store.Audit{Action: action, ID: id, Reason: reason, Before: before, At: a.at})
	}
	return true, a.err
}
