package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

// migrations are applied in order; the number of those that a table has seen is
// its version. A released migration is never changed.
//
// The table has one index only. State, times and counters are in no index, so
// that a settlement can leave the new version of a row on the page of the old
// one (HOT); half-empty pages make room for it. The keys compare bytewise.
//
// born is the time of the first grant of a record's life and the same in its
// effects: an effect of an earlier life of its parent is absent, without
// anybody having had to delete it when the new life began.
var migrations = []string{
	`CREATE TABLE {table} (
  born         timestamptz NOT NULL, -- when this life of the record began; an effect has its parent's
  lease_end    timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL, -- not used for effects
  fence        bigint      NOT NULL,
  starts       integer     NOT NULL,
  failures     integer     NOT NULL,
  crashes      integer     NOT NULL,
  state        smallint    NOT NULL, -- 1 claimed, 2 released, 3 succeeded, 4 failed
  failure      smallint    NOT NULL, -- 0 none, 1 transient, 2 terminal, 3 exhausted, 4 parked
  took_over    boolean     NOT NULL, -- the latest grant was a takeover
  token        bytea       NOT NULL, -- of the latest grant; a secret
  judge        bytea,                -- token of the claim that found the budget used up
  not_before   timestamptz,
  parent_fence bigint,               -- effects: fence of the parent at the latest grant
  scope        text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  effect       text COLLATE "C" NOT NULL,
  fingerprint  bytea,
  delivery     bytea,
  holder       bytea,
  trace        bytea,
  payload      bytea,
  PRIMARY KEY (scope, key, effect)
) WITH (fillfactor = 50)`,
}

// versionComment is the comment on the table; a number follows. The version is
// kept there, and not in a table of its own, so that one table is all that a
// role needs to be granted.
const versionComment = "secondrun schema "

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Migrate connects to dsn, brings the table up to what this version needs, and
// creates the schema and the table if they are missing. It does nothing where
// nothing is to be done, and any number of processes can call it at a time. A
// table that a newer version has made is refused with [store.ErrIncompatible].
// Of the options, it uses Schema and Table.
func Migrate(ctx context.Context, dsn string, opts *Options) error {
	if _, err := opts.withDefaults(); err != nil {
		return err
	}
	if err := checkDSN(dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return wrap("connect", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on it
	return MigrateIn(ctx, conn, opts)
}

// MigrateIn is [Migrate] for an open connection or pool.
func MigrateIn(ctx context.Context, db Beginner, opts *Options) error {
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	// Behind the lock every statement must see what the process before has done.
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return wrap("migrate", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // without effect after a commit
	if err := migrate(ctx, tx, &o); err != nil {
		return err
	}
	return wrap("migrate", tx.Commit(ctx))
}

func migrate(ctx context.Context, tx pgx.Tx, o *Options) error {
	if err := run(ctx, tx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", o.lockKey())); err != nil {
		return err
	}
	version, exists, err := tableVersion(ctx, tx, o)
	if err != nil {
		return err
	}
	if exists && version == 0 {
		return fmt.Errorf("pgstore: table %s exists and has no comment %q: choose another Options.Table, or restore the comment: %w",
			o.table(), versionComment+"<version>", store.ErrPermanent)
	}
	if version > len(migrations) {
		return newerSchema(o, version)
	}
	for _, text := range o.migrationsFrom(version) {
		if err := run(ctx, tx, text); err != nil {
			return err
		}
	}
	return nil
}

// run sends a statement without arguments that must not be prepared: it is
// used once, and PgBouncer may be in between.
func run(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	return wrap("migrate", err)
}

// MigrationSQL returns the statements that [Migrate] sends to a database
// without the schema, as a script for psql. It can be run only once.
func MigrationSQL(opts *Options) (string, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	for _, text := range o.migrationsFrom(0) {
		b.WriteString(text + ";\n")
	}
	b.WriteString("COMMIT;\n")
	return b.String(), nil
}

// migrationsFrom returns the statements that lead from version to the newest.
func (o *Options) migrationsFrom(version int) []string {
	if version == len(migrations) {
		return nil
	}
	var out []string
	if version == 0 && o.Schema != defaultSchema {
		out = append(out, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{o.Schema}.Sanitize())
	}
	for _, text := range migrations[version:] {
		out = append(out, strings.ReplaceAll(text, "{table}", o.table()))
	}
	return append(out, fmt.Sprintf("COMMENT ON TABLE %s IS '%s%d'", o.table(), versionComment, len(migrations)))
}

// lockKey names the advisory lock of the table.
func (o *Options) lockKey() int64 {
	sum := sha256.Sum256([]byte("secondrun migration of " + o.table()))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any 64 bits will do
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// tableVersion returns the version in the table's comment, 0 for none.
func tableVersion(ctx context.Context, db rowQuerier, o *Options) (version int, exists bool, err error) {
	var comment *string
	err = db.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL, obj_description(to_regclass($1::text), 'pg_class')`,
		o.table()).Scan(&exists, &comment)
	if err != nil || comment == nil {
		return 0, exists, wrap("read the schema version", err)
	}
	rest, ok := strings.CutPrefix(*comment, versionComment)
	if !ok {
		return 0, exists, nil
	}
	rest, _, _ = strings.Cut(rest, " ")
	version, err = strconv.Atoi(rest)
	if err != nil || version < 1 {
		return 0, exists, nil //nolint:nilerr // a comment that is not ours
	}
	return version, exists, nil
}

func newerSchema(o *Options, version int) error {
	return fmt.Errorf("pgstore: table %s has schema version %d, this version of secondrun knows up to %d: deploy a newer one: %w",
		o.table(), version, len(migrations), store.ErrIncompatible)
}
