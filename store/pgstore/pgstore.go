package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/secondrun/secondrun/store"
)

// Store keeps records in PostgreSQL. It implements [store.Store],
// [store.Pinger], [store.Limiter], [store.Inspector], [store.Counter],
// [store.Purger] and [store.Admin]. All methods are safe for concurrent use.
type Store struct {
	opts  Options
	sql   statements
	work  *pgxpool.Pool // everything but renewals
	renew *pgxpool.Pool // renewals; the same pool after New
	owned bool
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Pinger    = (*Store)(nil)
	_ store.Limiter   = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Purger    = (*Store)(nil)
	_ store.Admin     = (*Store)(nil)
)

// Open connects to dsn, a URL or a list of settings as [pgxpool.ParseConfig]
// takes it, and checks that the server can be written to and has the table that
// this version needs; see [Migrate]. The connections, at most Options.MaxConns,
// belong to the store alone, and one of them is kept for renewals: neither
// handlers nor claims can keep a lease from being renewed. pool_max_conns in the
// DSN is ignored. An empty dsn is an error; "postgres://" takes everything from
// the environment (PGHOST, PGDATABASE, …).
//
// A missing or outdated table, missing privileges and a read-only server are
// errors that wrap [store.ErrPermanent].
func Open(ctx context.Context, dsn string, opts *Options) (*Store, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkDSN(dsn); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", errors.Join(err, store.ErrPermanent))
	}
	st := &Store{opts: o, sql: newStatements(&o), owned: true}
	if st.work, err = newPool(ctx, cfg, o.MaxConns-1); err != nil {
		return nil, err
	}
	if st.renew, err = newPool(ctx, cfg, 1); err != nil {
		st.work.Close()
		return nil, err
	}
	if err := st.check(ctx); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// checkDSN refuses what a variable that is not set gives: the driver would try
// the local socket.
func checkDSN(dsn string) error {
	if strings.TrimSpace(dsn) != "" {
		return nil
	}
	return fmt.Errorf(`pgstore: the DSN is empty: give the URL of a database, or "postgres://" to take it from the environment (PGHOST and so on): %w`,
		store.ErrPermanent)
}

func newPool(ctx context.Context, cfg *pgxpool.Config, conns int) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = int32(conns) //nolint:gosec // checked by withDefaults
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return pool, wrap("connect", err)
}

// New makes a store on a pool that the caller keeps and closes, after the same
// checks as [Open].
//
// The pool should not be the one that handlers use. If it is, handlers that
// take all its connections keep the store from renewing leases, and a lease
// that is not renewed is lost: size the pool for all handlers and four more.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	st := &Store{opts: o, sql: newStatements(&o), work: pool, renew: pool}
	if err := st.check(ctx); err != nil {
		return nil, err
	}
	return st, nil
}

// Close closes the connections that [Open] has made. It waits for calls that
// are under way. Later calls fail at once, with an error that wraps
// [store.ErrPermanent].
func (s *Store) Close() {
	if !s.owned {
		return
	}
	s.work.Close()
	s.renew.Close()
}

// Limits tells how the store likes to be called: one claim call and one settle
// call at a time, with what arrives meanwhile in the next one. PostgreSQL flushes
// each commit to disk; two calls at a time would flush twice for half the items
// each.
func (s *Store) Limits() store.Limits { return store.Limits{Batch: maxBatch, Parallel: 1} }

// Ping asks the server whether it answers and can be written to.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	err := s.work.QueryRow(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool`).Scan(&readOnly)
	if err == nil && readOnly {
		err = &pgconn.PgError{Severity: "ERROR", Code: codeReadOnly, Message: "the server is in recovery or read-only"}
	}
	return wrap("ping", err)
}

// check looks at all that would otherwise fail with every message.
func (s *Store) check(ctx context.Context) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	version, exists, err := tableVersion(ctx, s.work, &s.opts)
	switch {
	case err != nil:
		return err
	case !exists:
		return fmt.Errorf("pgstore: table %s does not exist: run pgstore.Migrate, or set Options.Schema and Options.Table: %w",
			s.opts.table(), store.ErrPermanent)
	case version == 0:
		return fmt.Errorf("pgstore: table %s has no comment %q: it was not made by pgstore.Migrate: %w",
			s.opts.table(), versionComment+"<version>", store.ErrPermanent)
	case version < len(migrations):
		return fmt.Errorf("pgstore: table %s has schema version %d, this version of secondrun needs %d: run pgstore.Migrate: %w",
			s.opts.table(), version, len(migrations), store.ErrPermanent)
	case version > len(migrations):
		return newerSchema(&s.opts, version)
	}
	return s.checkServer(ctx)
}

func (s *Store) checkServer(ctx context.Context) error {
	var allowed bool
	var async, server string
	err := s.work.QueryRow(ctx, `SELECT has_schema_privilege($1::text, 'USAGE')
		AND has_table_privilege($2::text, 'SELECT') AND has_table_privilege($2::text, 'INSERT')
		AND has_table_privilege($2::text, 'UPDATE'),
		current_setting('synchronous_commit'), current_setting('server_version_num')`,
		s.opts.Schema, s.opts.table()).Scan(&allowed, &async, &server)
	switch {
	case err != nil:
		return wrap("check privileges", err)
	case !allowed:
		return &Error{
			Op: "check privileges", Code: "42501", Hint: hints["42501"],
			err: fmt.Errorf("this role may not read, insert and update %s", s.opts.table()),
		}
	case len(server) < 6 || server < "140000":
		return fmt.Errorf("pgstore: the server has version %s, needs 14 or newer: %w", server, store.ErrPermanent)
	}
	if async == "off" && s.opts.OnWarning != nil {
		s.opts.OnWarning("synchronous_commit is off: a crash of the server forgets outcomes that were acknowledged, " +
			"and their messages will run again if they are delivered again")
	}
	return nil
}

// querier is what the operations need: a pool or a caller's transaction.
type querier interface {
	rowQuerier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// maxBatch is the number of items that travel in one statement. More gain
// nothing.
const maxBatch = 256

// backoff is the pause before the next of a few tries: about a millisecond,
// doubled each time up to a limit, with jitter.
func backoff(try int) time.Duration {
	d := time.Millisecond << min(try, 5)
	return d/2 + rand.N(d/2) //nolint:gosec // spreads load, protects nothing
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
