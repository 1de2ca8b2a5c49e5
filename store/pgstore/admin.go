package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

// Reopen implements [store.Admin].
func (s *Store) Reopen(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "reopen", id, reason, store.StateFailed, func(ctx context.Context, tx pgx.Tx) error {
		scope, key, effect := id.Encode()
		_, err := tx.Exec(ctx, s.sql.reopen, scope, key, effect)
		if err == nil && effect == "" {
			_, err = tx.Exec(ctx, s.sql.reopenEffects, scope, key)
		}
		return err
	})
}

// Forget implements [store.Admin].
func (s *Store) Forget(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "forget", id, reason, 0, func(ctx context.Context, tx pgx.Tx) error {
		scope, key, effect := id.Encode()
		var err error
		if effect == "" {
			_, err = tx.Exec(ctx, s.sql.forgetAll, scope, key)
		} else {
			_, err = tx.Exec(ctx, s.sql.forget, scope, key, effect)
		}
		return err
	})
}

// ForceRelease implements [store.Admin].
func (s *Store) ForceRelease(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.admin(ctx, "force-release", id, reason, store.StateClaimed, func(ctx context.Context, tx pgx.Tx) error {
		scope, key, effect := id.Encode()
		_, err := tx.Exec(ctx, s.sql.release, scope, key, effect)
		return err
	})
}

// admin runs change on a locked record, if it is in the wanted state (zero:
// any), and reports it after the commit.
func (s *Store) admin(ctx context.Context, action string, id store.ID, reason string, want store.State,
	change func(context.Context, pgx.Tx) error,
) (bool, error) {
	if reason == "" {
		return false, invalid(action + " needs a reason")
	}
	audit := store.Audit{Action: action, ID: id, Reason: reason}
	done := false
	err := isolated(ctx, func() (err error) {
		done, err = s.change(ctx, &audit, want, change)
		return err
	})
	if err != nil || !done {
		return false, wrap(action, err)
	}
	if s.opts.Audit != nil {
		s.opts.Audit(audit)
	}
	return true, nil
}

func (s *Store) change(ctx context.Context, audit *store.Audit, want store.State,
	change func(context.Context, pgx.Tx) error,
) (bool, error) {
	tx, err := s.work.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // without effect after a commit
	found, err := s.lock(ctx, tx, audit)
	if err != nil || !found || want != 0 && audit.Before.State != want {
		return false, err
	}
	if err := change(ctx, tx); err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

// lock locks the record, waiting for at most Options.LockTimeout, and notes it
// as it is.
func (s *Store) lock(ctx context.Context, tx pgx.Tx, audit *store.Audit) (bool, error) {
	_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1::text, true)`, s.opts.lockTimeout())
	if err != nil {
		return false, err
	}
	scope, key, effect := audit.ID.Encode()
	var one int
	err = tx.QueryRow(ctx, s.sql.lockRow, scope, key, effect).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var live bool
	var at time.Time
	audit.Before, live, at, err = scanRecord(tx.QueryRow(ctx, s.sql.get, scope, key, effect))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	audit.At = at
	if errors.Is(err, store.ErrIncompatible) || errors.Is(err, store.ErrCorrupt) {
		return live, nil // an operator must be able to remove it
	}
	return live, err
}
