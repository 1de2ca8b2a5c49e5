package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

func batch(prefix string, n int) []store.ClaimRequest {
	var reqs []store.ClaimRequest
	for i := range n {
		reqs = append(reqs, request(fmt.Sprintf("%s-%04d", prefix, i)))
	}
	return reqs
}

func settlements(reqs []store.ClaimRequest, payload string) []store.Settlement {
	var out []store.Settlement
	for i := range reqs {
		out = append(out, settlement(&reqs[i], store.Succeed, payload))
	}
	return out
}

func claimAll(tb testing.TB, st *Store, reqs []store.ClaimRequest, want store.Verdict) {
	tb.Helper()
	out, err := st.Claim(tb.Context(), reqs)
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range out {
		if c.Verdict != want {
			tb.Fatalf("%+v, want %s", c, want)
		}
	}
}

func settleAll(tb testing.TB, st *Store, in []store.Settlement) {
	tb.Helper()
	out, err := st.Settle(tb.Context(), in)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range out {
		if s.Code != store.OK {
			tb.Fatalf("%+v", s)
		}
	}
}

// TestCost_RoundTrips: one for a claim, one for a settlement, one for a
// duplicate, however many travel together.
func TestCost_RoundTrips(t *testing.T) {
	for name, dsn := range map[string]string{"prepared": direct(t), "exec": withParam(direct(t), "default_query_exec_mode", "exec")} {
		st, tr := traced(t, dsn, 1)
		for round := range 2 { // the first prepares the statements
			for _, n := range []int{1, 3, 10, 256} {
				reqs := batch(fmt.Sprintf("%d-%d", round, n), n)
				trips := func(f func()) int64 {
					before := tr.trips.Load()
					f()
					return tr.trips.Load() - before
				}
				fresh := trips(func() { claimAll(t, st, reqs, store.Granted) })
				renewed := trips(func() {
					if _, err := st.Renew(t.Context(), []store.Lease{{ID: reqs[0].ID, Token: reqs[0].Token}}, minute); err != nil {
						t.Fatal(err)
					}
				})
				settled := trips(func() { settleAll(t, st, settlements(reqs, "result")) })
				for i := range reqs {
					reqs[i].Token = store.NewToken()
				}
				duplicate := trips(func() { claimAll(t, st, reqs, store.Done) })
				if round == 1 && (fresh != 1 || renewed != 1 || settled != 1 || duplicate != 1) {
					t.Errorf("%s, batch of %d: claim %d, renew %d, settle %d, duplicate %d round trips",
						name, n, fresh, renewed, settled, duplicate)
				}
			}
		}
	}
}

// TestCost_DuplicateWritesNothing measures WAL and transaction ids. Others may
// use the server at the same time: the least of many counts.
func TestCost_DuplicateWritesNothing(t *testing.T) {
	st := fresh(t)
	conn, err := pgx.Connect(t.Context(), direct(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	position := func() (wal, xid int64) {
		err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn() - '0/0', pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&wal, &xid)
		if err != nil {
			t.Fatal(err)
		}
		return wal, xid
	}
	for _, n := range []int{1, 3, 20} {
		done, running, failed := batch(fmt.Sprint("done-", n), n), batch(fmt.Sprint("running-", n), n), batch(fmt.Sprint("failed-", n), n)
		effects := batch(fmt.Sprint("running-", n), n)
		for _, b := range [][]store.ClaimRequest{done, running, failed} {
			claimAll(t, st, b, store.Granted)
		}
		for i := range effects {
			effects[i].ID.Effect, effects[i].Parent = "effect", running[i].Token
		}
		claimAll(t, st, effects, store.Granted)
		settleAll(t, st, settlements(done, "result"))
		settleAll(t, st, settlements(effects, "result"))
		late := settlements(failed, "")
		for i := range late {
			late[i].Kind = store.Fail
		}
		settleAll(t, st, late)
		again := func(b []store.ClaimRequest) []store.ClaimRequest {
			for i := range b {
				b[i].Token = store.NewToken()
			}
			return b
		}
		lost := settlements(again(running), "")
		for name, f := range map[string]func(){
			"done":   func() { claimAll(t, st, again(done), store.Done) },
			"busy":   func() { claimAll(t, st, again(running), store.Busy) },
			"failed": func() { claimAll(t, st, again(failed), store.Failed) },
			"effect": func() { claimAll(t, st, again(effects), store.Done) },
			"lost settlement": func() {
				if _, err := st.Settle(t.Context(), lost); err != nil {
					t.Fatal(err)
				}
			},
		} {
			wal, xid := int64(1<<62), int64(1<<62)
			for range 100 {
				w, x := position()
				f()
				w2, x2 := position()
				wal, xid = min(wal, w2-w), min(xid, x2-x)
				if wal == 0 && xid == 0 {
					break
				}
			}
			if wal != 0 || xid != 0 {
				t.Errorf("%s, batch of %d: %d bytes of WAL, %d transaction ids", name, n, wal, xid)
			}
		}
	}
}

// TestCost_PlansOfAnEmptyTable compares a session whose statements were planned
// while the table was empty with a fresh one, on 200,000 rows that nobody has
// analysed.
func TestCost_PlansOfAnEmptyTable(t *testing.T) {
	opts := freshTable(t)
	exec(t, "ALTER TABLE "+tableOf(opts)+" SET (autovacuum_enabled = off)")
	old := open(t, direct(t), opts)
	for i := range 12 { // after five executions a plan may be kept for good
		session(t, old, fmt.Sprint("plan-", i))
	}
	exec(t, `INSERT INTO `+tableOf(opts)+` (`+columns+`)
		SELECT '\x01', now(), now(), now() + interval '1 day', 1, 1, 0, 0, 3, 0, false, NULL, NULL, NULL,
		'test', 'row-' || i, '', NULL, NULL, NULL, NULL, repeat('x', 64)::bytea FROM generate_series(1, 200000) i`)
	young := open(t, direct(t), opts)
	for i := range 12 {
		session(t, young, fmt.Sprint("warm-", i))
	}
	least := func(st *Store, name string) time.Duration {
		d := time.Hour
		for i := range 15 {
			d = min(d, session(t, st, fmt.Sprint(name, i)))
		}
		return d
	}
	a, b := least(old, "old-"), least(young, "young-")
	t.Logf("old session %v, fresh session %v", a, b)
	if a > 3*b {
		t.Errorf("the old session takes %v, the fresh one %v", a, b)
	}
	old.Close()
	young.Close()
	var scanned, read int64
	for range 50 { // statistics come when a session ends
		scanned = query[int64](t, "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = $1::text::regclass", tableOf(opts))
		read = query[int64](t, "SELECT idx_scan FROM pg_stat_user_tables WHERE relid = $1::text::regclass", tableOf(opts))
		if read > 2000 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if scanned > 400_000 || read < 2000 { // a purge reads 128 blocks; they count
		t.Errorf("%d rows read by sequential scans, %d index scans", scanned, read)
	}
}

// session does one of everything and returns how long it took.
func session(t *testing.T, st *Store, key string) time.Duration {
	t.Helper()
	start := time.Now()
	for _, n := range []int{1, 3, 32} {
		reqs := batch(fmt.Sprint(key, "-", n), n)
		claimAll(t, st, reqs, store.Granted)
		var leases []store.Lease
		for i := range reqs {
			leases = append(leases, store.Lease{ID: reqs[i].ID, Token: reqs[i].Token})
		}
		if _, err := st.Renew(t.Context(), leases, minute); err != nil {
			t.Fatal(err)
		}
		e := reqs[0]
		e.ID.Effect, e.Parent, e.Token = "effect", reqs[0].Token, store.NewToken()
		claim(t, st, e, store.Granted)
		settle(t, st, settlement(&e, store.Succeed, ""), store.OK)
		settleAll(t, st, settlements(reqs, "result"))
	}
	if _, _, err := st.List(t.Context(), store.ListQuery{Scope: "test", Limit: 10}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.Purge(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestCost_SpaceAndHOT holds the table to its goals: 64 messages in flight, a
// result of 64 bytes, a key of 36.
func TestCost_SpaceAndHOT(t *testing.T) {
	opts := freshTable(t)
	exec(t, "ALTER TABLE "+tableOf(opts)+" SET (autovacuum_enabled = off)")
	st := open(t, direct(t), opts)
	const messages, inFlight = 6400, 64
	result := fmt.Sprintf("%064d", 1)
	for i := range messages / inFlight {
		var reqs []store.ClaimRequest
		for k := range inFlight {
			r := request(fmt.Sprintf("0192f0c1-0000-7000-8000-%08d%04d", i, k))
			r.Delivery, r.Holder, r.Trace = "", "", ""
			reqs = append(reqs, r)
		}
		claimAll(t, st, reqs, store.Granted)
		settleAll(t, st, settlements(reqs, result))
	}
	st.Close()
	table := tableOf(opts)
	bytes := query[int64](t, "SELECT pg_total_relation_size($1::text::regclass)", table) / messages
	var updates, hot int64
	for range 50 {
		updates = query[int64](t, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = $1::text::regclass", table)
		hot = query[int64](t, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = $1::text::regclass", table)
		if updates >= messages {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d bytes a row, %d of %d updates are HOT", bytes, hot, updates)
	if updates < messages || hot*100 < updates*75 {
		t.Errorf("%d of %d updates are HOT, want 75%%", hot, updates)
	}
	if bytes > 520 {
		t.Errorf("%d bytes a row", bytes)
	}
}
