package pgstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/secondrun/secondrun/store"
)

// refused checks that opening fails for good and says what to do.
func refused(t *testing.T, dsn string, opts *Options, want string) {
	t.Helper()
	st, err := Open(t.Context(), dsn, opts)
	if err == nil {
		st.Close()
		t.Fatalf("opened, want an error with %q", want)
	}
	if !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a permanent error with %q", err, want)
	}
}

func TestG08_ReadOnlyServer(t *testing.T) {
	opts := freshTable(t)
	refused(t, withParam(direct(t), "default_transaction_read_only", "on"), opts, "connect to the primary")

	// A server that becomes read-only under a running store.
	st := fresh(t)
	pool := poolOf(t, withParam(direct(t), "default_transaction_read_only", "on"), 2)
	st2 := &Store{opts: st.opts, sql: st.sql, work: pool, renew: pool}
	_, err := st2.Claim(t.Context(), []store.ClaimRequest{request("key")})
	var pg *Error
	if !errors.As(err, &pg) || pg.Code != codeReadOnly || !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "primary") {
		t.Errorf("claim on a read-only server: %v", err)
	}
	if err := st2.Ping(t.Context()); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("ping: %v", err)
	}
}

func TestG10_AsynchronousCommitIsReported(t *testing.T) {
	opts := freshTable(t)
	var got []string
	opts.OnWarning = func(w string) { got = append(got, w) }
	open(t, direct(t), opts)
	if len(got) != 0 {
		t.Errorf("warned without a reason: %q", got)
	}
	open(t, withParam(direct(t), "synchronous_commit", "off"), opts)
	if len(got) != 1 || !strings.Contains(got[0], "synchronous_commit") {
		t.Errorf("warnings: %q", got)
	}
}

func TestG14_SchemaIsChecked(t *testing.T) {
	refused(t, direct(t), &Options{Table: "missing_" + random()}, "run pgstore.Migrate")
	refused(t, direct(t), &Options{Schema: "missing_" + random()}, "run pgstore.Migrate")

	opts := freshTable(t)
	comment := func(text string) { exec(t, fmt.Sprintf("COMMENT ON TABLE %s IS '%s'", tableOf(opts), text)) }
	comment("")
	refused(t, direct(t), opts, "was not made by pgstore.Migrate")
	comment("our table of secondrun")
	refused(t, direct(t), opts, "was not made by pgstore.Migrate")
	if err := Migrate(t.Context(), direct(t), opts); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("migrated a foreign table: %v", err)
	}
	comment("secondrun schema 99")
	refused(t, direct(t), opts, "deploy a newer one")
	if _, err := Open(t.Context(), direct(t), opts); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("a newer schema: %v", err)
	}
	if err := Migrate(t.Context(), direct(t), opts); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("migrated a newer table: %v", err)
	}
	comment("secondrun schema 1 (do not touch)")
	open(t, direct(t), opts)

	old := migrations
	t.Cleanup(func() { migrations = old })
	migrations = append(old[:len(old):len(old)], "ALTER TABLE {table} ADD COLUMN extra int")
	refused(t, direct(t), opts, "needs 2: run pgstore.Migrate")
	if err := Migrate(t.Context(), direct(t), opts); err != nil {
		t.Fatal(err)
	}
	open(t, direct(t), opts)
}

func TestG14_PrivilegesAreChecked(t *testing.T) {
	opts := freshTable(t)
	refused(t, limitedRole(t, opts.Table, "", ""), opts, "grant USAGE")
	refused(t, limitedRole(t, opts.Table, "SELECT, INSERT", ""), opts, "grant USAGE")
	st := open(t, limitedRole(t, opts.Table, "SELECT, INSERT, UPDATE", ""), opts) // all that serving needs
	r := request("key")
	claim(t, st, r, store.Granted)
	renew(t, st, &r, minute, store.OK)
	settle(t, st, settlement(&r, store.Fail, ""), store.OK)
	if ok, err := st.Reopen(t.Context(), r.ID, "test"); err != nil || !ok {
		t.Errorf("reopen: %v %v", ok, err)
	}
	if _, err := st.Forget(t.Context(), r.ID, "test"); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("forget without DELETE: %v", err)
	}
}

func TestG14_LoginRefused(t *testing.T) {
	u, err := url.Parse(direct(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("nobody_"+random(), "wrong")
	refused(t, u.String(), nil, "refuses this login")
}

func TestG14_DroppedUnderARunningStore(t *testing.T) {
	st := fresh(t)
	claim(t, st, request("key"), store.Granted)
	exec(t, "DROP TABLE "+st.opts.table())
	_, err := st.Claim(t.Context(), []store.ClaimRequest{request("key")})
	if !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("claim without a table: %v", err)
	}
}

func TestMigrate_TenAtOnce(t *testing.T) {
	opts := &Options{Schema: "Schema_" + random(), Table: "Records"} // upper case must be quoted everywhere
	t.Cleanup(func() { exec(t, "DROP SCHEMA IF EXISTS "+pgx.Identifier{opts.Schema}.Sanitize()+" CASCADE") })
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := Migrate(t.Context(), direct(t), opts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := Migrate(t.Context(), bouncer(t), opts); err != nil {
		t.Errorf("again, behind PgBouncer: %v", err)
	}
	st := open(t, direct(t), opts)
	r := request("key")
	claim(t, st, r, store.Granted)
	settle(t, st, settlement(&r, store.Succeed, "x"), store.OK)
	if _, _, err := st.Purge(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

func TestMigrationSQL(t *testing.T) {
	opts := &Options{Schema: "sql_" + random()}
	t.Cleanup(func() { exec(t, "DROP SCHEMA IF EXISTS "+opts.Schema+" CASCADE") })
	text, err := MigrationSQL(opts)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, text)
	open(t, direct(t), opts)
	if _, err := MigrationSQL(&Options{Table: `x"; DROP TABLE y; --`}); err == nil {
		t.Error("a bad name was taken")
	}
}

func TestS06_NamesAreValidated(t *testing.T) {
	for _, name := range []string{
		"1a", "a-b", "a b", `a"b`, "a;b", "a.b", "a\x00", "ä", "{table}", "$1", "a'b", strings.Repeat("a", 64), "a\n", " a",
	} {
		for _, opts := range []*Options{{Table: name}, {Schema: name}} {
			if _, err := Open(t.Context(), "postgres://127.0.0.1:1/none", opts); !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "name") {
				t.Errorf("Open with %q: %v", name, err)
			}
			if err := Migrate(t.Context(), "postgres://127.0.0.1:1/none", opts); !errors.Is(err, store.ErrPermanent) {
				t.Errorf("Migrate with %q: %v", name, err)
			}
		}
	}
	long := &Options{Table: strings.Repeat("a", 63), Schema: "select"}
	if _, err := long.withDefaults(); err != nil {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []*Options{{LockTimeout: -1}, {LockTimeout: 1}, {MaxConns: 1}, {MaxConns: -4}} {
		if _, err := Open(t.Context(), direct(t), o); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(t.Context(), "postgres://%zz", nil); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("a DSN that is none: %v", err)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for code, want := range map[string]bool{
		"42P01": true, "42501": true, "3F000": true, "3D000": true, "25006": true, "28P01": true, "28000": true, "26000": true, "42P05": true,
		"40001": false, "40P01": false, "57P01": false, "57014": false, "53300": false, "53100": false, "55P03": false, "08006": false, "57P03": false,
	} {
		pg := &pgconn.PgError{Code: code, Message: "text"}
		err := wrap("claim", fmt.Errorf("driver: %w", pg))
		if errors.Is(err, store.ErrPermanent) != want {
			t.Errorf("%s: permanent %v", code, !want)
		}
		if got := (&pgconn.PgError{}); !errors.As(err, &got) || got != pg {
			t.Errorf("%s: the driver's error is hidden", code)
		}
		if hint := err.(*Error).Hint; (hint != "") != want {
			t.Errorf("%s: hint %q", code, hint)
		}
	}
}

func TestG03_RolledBackIsRepeated(t *testing.T) {
	for _, code := range []string{codeSerialization, codeDeadlock} {
		n := 0
		err := isolated(t.Context(), func() error {
			if n++; n < 4 {
				return &pgconn.PgError{Code: code}
			}
			return nil
		})
		if err != nil || n != 4 {
			t.Errorf("%s: %d tries, %v", code, n, err)
		}
	}
}

// A variable that is not set must not send the store to whatever listens on the
// local socket.
func TestOpen_EmptyDSN(t *testing.T) {
	for _, dsn := range []string{"", " \n"} {
		refused(t, dsn, nil, "the DSN is empty")
		if err := Migrate(t.Context(), dsn, nil); !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "the DSN is empty") {
			t.Errorf("migrate with %q: %v", dsn, err)
		}
	}
}

// A store that was closed, or whose pool was, says so at once and for good:
// nobody waits for it to come back.
func TestClose_LaterCallsFail(t *testing.T) {
	opts := freshTable(t)
	closed := open(t, direct(t), opts)
	closed.Close()
	pool := poolOf(t, direct(t), 2)
	lent, err := New(t.Context(), pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	for _, st := range []*Store{closed, lent} {
		everyCall(t, st, func(call string, err error) {
			if !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "the store is closed") {
				t.Errorf("%s: %v", call, err)
			}
		})
	}
}

// everyCall makes each kind of call that uses a connection.
func everyCall(t *testing.T, st *Store, answer func(call string, err error)) {
	t.Helper()
	ctx := t.Context()
	for _, n := range []int{1, maxSingles + 1} { // statements for one, and for many
		var reqs []store.ClaimRequest
		var settlements []store.Settlement
		for i := range n {
			r := request(fmt.Sprint("key", i))
			reqs, settlements = append(reqs, r), append(settlements, settlement(&r, store.Succeed, ""))
		}
		_, err := st.Claim(ctx, reqs)
		answer("claim", err)
		out, err := st.Settle(ctx, settlements)
		for _, o := range out {
			err = errors.Join(err, o.Err)
		}
		answer("settle", err)
	}
	_, err := st.Renew(ctx, []store.Lease{{ID: id("key"), Token: store.NewToken()}}, minute)
	answer("renew", err)
	answer("ping", st.Ping(ctx))
	_, _, err = st.Get(ctx, id("key"))
	answer("get", err)
	_, _, err = st.List(ctx, store.ListQuery{Scope: "test"})
	answer("list", err)
	_, _, err = st.Purge(ctx, "")
	answer("purge", err)
	_, err = st.Stats(ctx, "test")
	answer("stats", err)
	_, err = st.Forget(ctx, id("key"), "test")
	answer("forget", err)
}
