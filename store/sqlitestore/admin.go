package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

var errNoReason = fmt.Errorf("sqlitestore: %w: the reason is empty", store.ErrPermanent)

// Reopen implements [store.Admin].
func (s *Store) Reopen(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "reopen", id, reason, func(ctx context.Context, c *sql.Conn, n name, r *row) (bool, error) {
		if r.rec.State != store.StateFailed {
			return false, nil
		}
		r.rec.Failures, r.rec.Crashes = 0, 0
		give(&r.rec)
		if err := save(ctx, c, n, r); err != nil || n.effect != "" {
			return true, err
		}
		_, err := c.ExecContext(ctx, `UPDATE records SET state=?, failure=0, token=NULL, judge=NULL, failures=0, crashes=0,
			took_over=0, lease_end=0, not_before=0, payload=NULL WHERE scope=? AND key=? AND effect<>'' AND state=?`,
			int64(store.StateReleased), n.scope, n.key, int64(store.StateFailed))
		return true, err
	})
}

// Forget implements [store.Admin].
func (s *Store) Forget(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "forget", id, reason, func(ctx context.Context, c *sql.Conn, n name, r *row) (bool, error) {
		if n.effect == "" {
			if _, err := c.ExecContext(ctx, dropEffects, n.scope, n.key); err != nil {
				return true, err
			}
		}
		_, err := c.ExecContext(ctx, `DELETE FROM records WHERE id=?`, r.id)
		return true, err
	})
}

// ForceRelease implements [store.Admin].
func (s *Store) ForceRelease(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "force-release", id, reason, func(ctx context.Context, c *sql.Conn, n name, r *row) (bool, error) {
		if r.rec.State != store.StateClaimed {
			return false, nil
		}
		give(&r.rec)
		return true, save(ctx, c, n, r)
	})
}

// give makes r released without a wait and forgets who had it.
func give(r *rules.Record) {
	r.State, r.Failure = store.StateReleased, 0
	r.Token, r.Judge, r.TookOver = store.Token{}, store.Token{}, false
	r.LeaseEnd, r.NotBefore, r.Payload = time.Time{}, time.Time{}, nil
}

// admin runs change on the record of id unless it is absent, and reports it.
func (s *Store) admin(ctx context.Context, action string, id store.ID, reason string,
	change func(context.Context, *sql.Conn, name, *row) (bool, error),
) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	if reason == "" {
		return false, errNoReason
	}
	var changed bool
	var entry store.Audit
	err := s.transact(ctx, action, false, func(ctx context.Context, c *sql.Conn) error {
		n := nameOf(id)
		now := s.clock()
		r, parent, err := find(ctx, c, n, now)
		if err != nil || r == nil {
			return err
		}
		entry = store.Audit{Action: action, ID: id, Reason: reason, Before: shown(n, r, parent), At: now}
		changed, err = change(ctx, c, n, r)
		return err
	})
	if err != nil || !changed {
		return false, err
	}
	if s.audit != nil {
		s.audit(entry)
	}
	return true, nil
}

// find returns the row of n and of its parent, nil when the record is absent.
// A record that cannot be understood can only be forgotten by hand.
func find(ctx context.Context, q querier, n name, now time.Time) (r *row, parent *rules.Record, err error) {
	found, err := load(ctx, q, []name{n})
	if err != nil {
		return nil, nil, err
	}
	r = found.at(n)
	parent, err = found.parentOf(n)
	if err = errors.Join(r.err, err); err != nil {
		return nil, nil, err
	}
	if absent(n, r, parent, now) {
		return nil, nil, nil
	}
	return r, parent, nil
}

// absent reports whether the record counts as absent; an effect goes with its
// parent.
func absent(n name, r *row, parent *rules.Record, now time.Time) bool {
	if n.effect == "" {
		return r.rec.Absent(now)
	}
	return r.id == 0 || parent.Absent(now)
}
