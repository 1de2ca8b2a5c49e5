package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/secondrun/secondrun/store"
)

// ErrDisplaced is wrapped by the error of [Store.Complete] when the claim does
// not belong to the handler any more. The transaction must be rolled back;
// nothing of it may take effect.
var ErrDisplaced = errors.New("claim displaced")

// Error is an error that PostgreSQL or PgBouncer answered with. It wraps the
// driver's error, and [store.ErrPermanent] where waiting does not mend it.
type Error struct {
	Op   string // what the store was doing
	Code string // SQLSTATE
	Hint string // what to do about it; empty where nothing is known

	err error
}

// Error describes the failure and what to do about it.
func (e *Error) Error() string {
	msg := fmt.Sprintf("pgstore: %s: %v", e.Op, e.err)
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return msg
}

// Unwrap returns the driver's error and, for what does not pass,
// [store.ErrPermanent].
func (e *Error) Unwrap() []error {
	if permanent(e.Code) {
		return []error{e.err, store.ErrPermanent}
	}
	return []error{e.err}
}

// SQLSTATEs that the package acts on.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeReadOnly      = "25006"
)

// hints has an entry for every SQLSTATE that waiting does not mend, besides
// those of class 28.
var hints = map[string]string{
	"42P01":      "the table is missing: run pgstore.Migrate, or set Options.Schema and Options.Table",
	"42703":      "the table has another shape than this version expects: run pgstore.Migrate",
	"42501":      "grant USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on the table to this role",
	"3F000":      "the schema is missing: run pgstore.Migrate, or set Options.Schema",
	"3D000":      "the database is missing",
	codeReadOnly: "the server is read-only, most likely a replica: connect to the primary (target_session_attrs=read-write)",
	"26000":      hintPgBouncer,
	"42P05":      hintPgBouncer,
}

const hintPgBouncer = "prepared statements do not survive PgBouncer's transaction mode: " +
	"put default_query_exec_mode=exec into the DSN, or set QueryExecModeExec in the pool's configuration"

func permanent(code string) bool {
	_, known := hints[code]
	return known || len(code) == 5 && code[:2] == "28"
}

// wrap makes err, which op met, an error of this package.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if poolClosed(err) {
		return fmt.Errorf("pgstore: %s: the store is closed (%w): %w", op, err, store.ErrPermanent)
	}
	code := sqlState(err)
	if code == "" {
		return fmt.Errorf("pgstore: %s: %w", op, err)
	}
	hint := hints[code]
	if hint == "" && permanent(code) {
		hint = "the server refuses this login: check user, password and pg_hba.conf"
	}
	return &Error{Op: op, Code: code, Hint: hint, err: err}
}

// poolClosed reports whether the pool has been closed, by [Store.Close] or by its
// owner. pgx does not export the error, which comes from the pool below it.
func poolClosed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "closed pool" {
			return true
		}
	}
	return false
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// rolledBack reports whether the server gave the transaction up for the sake
// of another one, so that it can be sent again at once.
func rolledBack(err error) bool {
	code := sqlState(err)
	return code == codeSerialization || code == codeDeadlock
}

// isolated runs once and repeats it while the server rolls it back because of
// concurrent transactions, which is usual where the default isolation level is
// repeatable read or serializable.
func isolated(ctx context.Context, once func() error) error {
	const tries = 20
	for try := 1; ; try++ {
		err := once()
		if err == nil || !rolledBack(err) || try == tries {
			return err
		}
		if pause(ctx, backoff(try)) != nil {
			return err
		}
	}
}
