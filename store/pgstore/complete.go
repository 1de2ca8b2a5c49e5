package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

// Complete records success, with result as the stored result, for the claim
// that ctx carries: in tx, so that it is committed together with all else that
// tx does. It is called inside a handler, as the last statement of its
// transaction, and tx must be on the store's database.
//
// When the claim belongs to somebody else by now, the error wraps
// [ErrDisplaced]. After any error the transaction must be rolled back; whether
// the handler then returns an error or not, success is not recorded.
//
// From this call on the row lock keeps everybody else from taking the claim
// over, until the transaction ends. Begin the transaction at the isolation level
// read committed: at a higher one PostgreSQL refuses to update a record that
// was renewed since the transaction's first statement (SQLSTATE 40001).
func (s *Store) Complete(ctx context.Context, tx pgx.Tx, result any) error {
	held := store.HeldFrom(ctx)
	if held == nil {
		return errors.New("pgstore: complete: the context carries no claim: call Complete inside a handler, with the handler's context")
	}
	run := settling{
		db: tx, sql: &s.sql.complete, out: make([]store.Status, 1),
		in: []store.Settlement{{
			ID: held.ID, Token: held.Token, Kind: store.Succeed,
			Payload: held.Encode(result), Retention: held.Retention,
		}},
	}
	if err := checkSettlement(&run.in[0]); err != nil {
		return err
	}
	held.Completing()
	if err := run.single(ctx, 0, true); err != nil {
		return wrap("complete", err)
	}
	return completed(run.out[0], held.ID)
}

func completed(st store.Status, id store.ID) error {
	switch {
	case st.Err != nil:
		return st.Err
	case st.Code == store.OK,
		st.Code == store.Absent && id.Effect == "",
		st.Code == store.Already && st.State == store.StateSucceeded:
		return nil
	}
	return fmt.Errorf("pgstore: complete: record is %s (%s): %w", st.Code, st.State, ErrDisplaced)
}

// WrapTx makes a handler of fn that runs in a transaction at the isolation
// level read committed: it begins one on db, calls fn, calls
// [Store.Complete] without a result unless fn has called it with one, and
// commits. When fn returns an error or panics, or the claim was displaced,
// everything is rolled back. db must be the store's database and should not be
// the pool that the store was made with; see [New].
//
// An error of the commit is returned as it is. It may be one of a commit that
// took effect; the middleware asks the record before it decides.
func WrapTx[M any](st *Store, db Beginner, fn func(ctx context.Context, tx pgx.Tx, m M) error) func(ctx context.Context, m M) error {
	return func(ctx context.Context, m M) error {
		tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			return wrap("begin", err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // without effect after a commit
		ctx = keepingResult(ctx)
		if err := fn(ctx, tx, m); err != nil {
			return err
		}
		if err := st.Complete(ctx, tx, nil); err != nil {
			return err
		}
		return wrap("commit", tx.Commit(ctx))
	}
}

// keepingResult returns a context in which no result, as WrapTx has none, stands
// for the one that fn has completed with before, if it has.
func keepingResult(ctx context.Context) context.Context {
	held := store.HeldFrom(ctx)
	if held == nil {
		return ctx
	}
	inner, last := *held, []byte(nil)
	inner.Encode = func(result any) []byte {
		if result != nil || last == nil {
			last = held.Encode(result)
		}
		return last
	}
	return store.WithHeld(ctx, &inner)
}
