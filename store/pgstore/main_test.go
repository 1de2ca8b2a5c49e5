package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// direct returns the URL of the server itself.
func direct(tb testing.TB) string { return testenv.Get(tb, testenv.PostgresVar) }

// bouncer returns the URL of the same database behind PgBouncer, with the
// setting that it needs.
func bouncer(tb testing.TB) string {
	return withParam(testenv.Get(tb, testenv.PgBouncerVar), "default_query_exec_mode", "exec")
}

// freshTable returns options with a table of the test's own, which exists.
func freshTable(tb testing.TB) *Options {
	tb.Helper()
	opts := &Options{Table: "test_" + random()}
	if err := Migrate(tb.Context(), direct(tb), opts); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { exec(tb, "DROP TABLE IF EXISTS "+tableOf(opts)) })
	return opts
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func tableOf(o *Options) string {
	c, _ := o.withDefaults()
	return c.table()
}

// exec runs a statement on a connection of its own.
func exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, direct(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// open opens a store for the length of the test.
func open(tb testing.TB, dsn string, opts *Options) *Store {
	tb.Helper()
	st, err := Open(tb.Context(), dsn, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(st.Close)
	return st
}

func fresh(tb testing.TB) *Store { return open(tb, direct(tb), freshTable(tb)) }

// poolOf opens a pool of n connections for the length of the test.
func poolOf(tb testing.TB, dsn string, n int32) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxConns = n
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

const (
	minute = time.Minute
	hour   = time.Hour
)

func id(key string) store.ID { return store.ID{Scope: "test", Key: key} }

func request(key string) store.ClaimRequest {
	return store.ClaimRequest{
		ID: id(key), Token: store.NewToken(), Lease: minute, Retention: hour,
		Delivery: "delivery-" + key, Holder: "holder", Trace: "trace",
	}
}

func settlement(r *store.ClaimRequest, k store.Kind, payload string) store.Settlement {
	return store.Settlement{ID: r.ID, Token: r.Token, Kind: k, Payload: []byte(payload), Retention: hour}
}

func claim(tb testing.TB, st store.Store, r store.ClaimRequest, want store.Verdict) store.Claim {
	tb.Helper()
	out, err := st.Claim(tb.Context(), []store.ClaimRequest{r})
	if err != nil || out[0].Err != nil {
		tb.Fatalf("claim: %v, %+v", err, out)
	}
	if out[0].Verdict != want {
		tb.Fatalf("claim of %q: %+v, want %s", r.ID.Key, out[0], want)
	}
	return out[0]
}

func settle(tb testing.TB, st store.Store, s store.Settlement, want store.Code) store.Status {
	tb.Helper()
	out, err := st.Settle(tb.Context(), []store.Settlement{s})
	if err != nil || out[0].Err != nil {
		tb.Fatalf("settle: %v, %+v", err, out)
	}
	if out[0].Code != want {
		tb.Fatalf("settle of %q: %+v, want %s", s.ID.Key, out[0], want)
	}
	return out[0]
}

func renew(tb testing.TB, st store.Store, r *store.ClaimRequest, d time.Duration, want store.Code) store.Status {
	tb.Helper()
	out, err := st.Renew(tb.Context(), []store.Lease{{ID: r.ID, Token: r.Token}}, d)
	if err != nil || out[0].Err != nil {
		tb.Fatalf("renew: %v, %+v", err, out)
	}
	if out[0].Code != want {
		tb.Fatalf("renew of %q: %+v, want %s", r.ID.Key, out[0], want)
	}
	return out[0]
}

// runOut lets the lease of a claim end.
func runOut(tb testing.TB, st store.Store, r *store.ClaimRequest) {
	tb.Helper()
	renew(tb, st, r, time.Microsecond, store.OK)
	time.Sleep(2 * time.Millisecond) // a server's clock must pass
}

// withParam adds a setting to a URL.
func withParam(dsn, name, value string) string {
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	return dsn + sep + name + "=" + value
}

// begin begins a transaction on a connection of its own, which is rolled back
// when the test ends.
func begin(tb testing.TB) pgx.Tx {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), direct(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return tx
}

// lockRow locks a record in a transaction of its own until the returned
// function is called.
func lockRow(tb testing.TB, st *Store, id store.ID) (unlock func()) {
	tb.Helper()
	tx := begin(tb)
	scope, key, effect := id.Encode()
	if tag, err := tx.Exec(tb.Context(), st.sql.lockRow, scope, key, effect); err != nil || tag.RowsAffected() != 1 {
		tb.Fatalf("lock: %v %v", tag, err)
	}
	return func() {
		if err := tx.Rollback(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// soon fails the test if f takes as long as a lock timeout.
func soon(tb testing.TB, f func()) {
	tb.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d > defaultLockTimeout*3/4 {
		tb.Errorf("took %v: has waited for a lock", d)
	}
}

// query returns one value.
func query[V any](tb testing.TB, sql string, args ...any) (v V) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), direct(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(tb.Context(), sql, args...).Scan(&v); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return v
}
