package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/secondrun/secondrun/store"
)

// duel runs the floor and the store in turns, by workers goroutines, until each
// has done b.N operations. It reports how fast the store is in units of the
// floor (x-floor, more is better), both in microseconds of wall time an
// operation, and what the store wrote to the WAL an operation.
func duel(b *testing.B, pool *pgxpool.Pool, workers int, floor, subject func(ctx context.Context, i int) error) {
	b.Helper()
	ctx := b.Context()
	run := func(f func(context.Context, int) error, from, n int) time.Duration {
		var next atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for range workers {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					if err := f(ctx, from+i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	slice := max(1, workers*25)
	run(floor, -2*slice, slice) // connections and plans
	run(subject, -2*slice, slice)
	var floorTime, storeTime time.Duration
	var wal int64
	b.ResetTimer()
	for done := 0; done < b.N; done += slice {
		n := min(slice, b.N-done)
		floorTime += run(floor, done, n)
		before := walPosition(b, pool)
		storeTime += run(subject, done, n)
		wal += walPosition(b, pool) - before
	}
	b.ReportMetric(float64(floorTime)/float64(storeTime), "x-floor")
	b.ReportMetric(float64(storeTime.Microseconds())/float64(b.N), "µs/op")
	b.ReportMetric(float64(floorTime.Microseconds())/float64(b.N), "floor-µs/op")
	b.ReportMetric(float64(wal)/float64(b.N), "WAL-B/op")
	b.ReportMetric(0, "ns/op")
}

func walPosition(b *testing.B, pool *pgxpool.Pool) (n int64) {
	if err := pool.QueryRow(b.Context(), `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// benchStore has a store and the table of the floor on one pool.
func benchStore(b *testing.B, conns int) (*Store, *pgxpool.Pool, string) {
	pool := poolOf(b, direct(b), int32(conns)+1)
	st, err := New(b.Context(), pool, freshTable(b))
	if err != nil {
		b.Fatal(err)
	}
	floor := "floor_" + random()
	exec(b, "CREATE TABLE "+floor+` (state smallint NOT NULL, key text COLLATE "C" PRIMARY KEY, result bytea) WITH (fillfactor = 50)`)
	b.Cleanup(func() { exec(b, "DROP TABLE "+floor) })
	return st, pool, floor
}

func benchKey(i int) string { return fmt.Sprintf("0192f0c1-0000-7000-8000-%012d", i+1_000_000) }

var benchResult = []byte(fmt.Sprintf("%064d", 1))

func benchRequest(i int) store.ClaimRequest {
	return store.ClaimRequest{
		ID: store.ID{Scope: "billing", Key: benchKey(i)}, Token: store.NewToken(), Lease: minute, Retention: hour, Holder: "host/1",
	}
}

// BenchmarkFresh is a claim and a settlement; the floor is the least that
// writes twice.
func BenchmarkFresh(b *testing.B) {
	for _, workers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			st, pool, table := benchStore(b, workers)
			insert := "INSERT INTO " + table + " (key, state) VALUES ($1, 1) ON CONFLICT DO NOTHING"
			update := "UPDATE " + table + " SET state = 3, result = $2 WHERE key = $1"
			duel(b, pool, workers, func(ctx context.Context, i int) error {
				if _, err := pool.Exec(ctx, insert, benchKey(i)); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, update, benchKey(i), benchResult)
				return err
			}, func(ctx context.Context, i int) error { return freshPair(ctx, st, benchRequest(i)) })
		})
	}
}

func freshPair(ctx context.Context, st *Store, r store.ClaimRequest) error {
	out, err := st.Claim(ctx, []store.ClaimRequest{r})
	if err != nil || out[0].Verdict != store.Granted {
		return fmt.Errorf("%+v %w", out, err)
	}
	s, err := st.Settle(ctx, []store.Settlement{{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: benchResult, Retention: hour}})
	if err != nil || s[0].Code != store.OK {
		return fmt.Errorf("%+v %w", s, err)
	}
	return nil
}

// BenchmarkDuplicate is a claim that is answered with the outcome; the floor
// reads one row by its primary key.
func BenchmarkDuplicate(b *testing.B) {
	for _, workers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			st, pool, table := benchStore(b, workers)
			const keys = 1000
			for i := range keys {
				if err := freshPair(b.Context(), st, benchRequest(i)); err != nil {
					b.Fatal(err)
				}
			}
			exec(b, "INSERT INTO "+table+" SELECT state, key, payload FROM "+st.opts.table())
			read := "SELECT state, result FROM " + table + " WHERE key = $1"
			duel(b, pool, workers, func(ctx context.Context, i int) error {
				var state int
				var result []byte
				return pool.QueryRow(ctx, read, benchKey((i+keys*1000)%keys)).Scan(&state, &result)
			}, func(ctx context.Context, i int) error {
				out, err := st.Claim(ctx, []store.ClaimRequest{benchRequest((i + keys*1000) % keys)})
				if err == nil && out[0].Verdict != store.Done {
					return fmt.Errorf("%+v", out)
				}
				return err
			})
		})
	}
}

// BenchmarkBatch claims and settles 64 messages in one call each, by two
// workers; the floor does the same with two bulk statements. An operation is
// 64 messages.
func BenchmarkBatch(b *testing.B) {
	const size, workers = 64, 2
	st, pool, table := benchStore(b, workers)
	insert := "INSERT INTO " + table + " (key, state) SELECT k, 1 FROM unnest($1::text[]) k ON CONFLICT DO NOTHING"
	update := "INSERT INTO " + table + " AS t (key, state, result) SELECT k, 3, r FROM unnest($1::text[], $2::bytea[]) u(k, r) " +
		"ON CONFLICT (key) DO UPDATE SET state = 3, result = excluded.result"
	duel(b, pool, workers, func(ctx context.Context, i int) error {
		keys, results := make([]string, size), make([][]byte, size)
		for k := range size {
			keys[k], results[k] = benchKey(i*size+k), benchResult
		}
		if _, err := pool.Exec(ctx, insert, keys); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, update, keys, results)
		return err
	}, func(ctx context.Context, i int) error {
		reqs := make([]store.ClaimRequest, size)
		in := make([]store.Settlement, size)
		for k := range size {
			reqs[k] = benchRequest(i*size + k)
			in[k] = store.Settlement{ID: reqs[k].ID, Token: reqs[k].Token, Kind: store.Succeed, Payload: benchResult, Retention: hour}
		}
		out, err := st.Claim(ctx, reqs)
		if err != nil || out[0].Verdict != store.Granted {
			return fmt.Errorf("%+v %w", out, err)
		}
		s, err := st.Settle(ctx, in)
		if err != nil || s[0].Code != store.OK {
			return fmt.Errorf("%+v %w", s, err)
		}
		return nil
	})
}

// BenchmarkHeartbeat renews 1,000 leases in one call; the floor renews each by
// a statement of its own. An operation is 1,000 renewals.
func BenchmarkHeartbeat(b *testing.B) {
	const leases = 1000
	st, pool, _ := benchStore(b, 2)
	reqs := make([]store.ClaimRequest, leases)
	in := make([]store.Lease, leases)
	for i := range reqs {
		reqs[i] = benchRequest(i)
		in[i] = store.Lease{ID: reqs[i].ID, Token: reqs[i].Token}
	}
	if _, err := st.Claim(b.Context(), reqs); err != nil {
		b.Fatal(err)
	}
	update := "UPDATE " + st.opts.table() + ` SET lease_end = clock_timestamp() + interval '1 minute'
		WHERE scope = 'billing' AND key = $1 AND effect = '' AND token = $2 AND state = 1`
	duelOnce(b, pool, func(ctx context.Context) error {
		for i := range reqs {
			if _, err := pool.Exec(ctx, update, reqs[i].ID.Key, reqs[i].Token[:]); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context) error {
		out, err := st.Renew(ctx, in, minute)
		if err == nil && out[leases-1].Code != store.OK {
			return fmt.Errorf("%+v", out[leases-1])
		}
		return err
	})
}

// duelOnce is duel for operations that are long by themselves.
func duelOnce(b *testing.B, pool *pgxpool.Pool, floor, subject func(ctx context.Context) error) {
	b.Helper()
	var floorTime, storeTime time.Duration
	var wal int64
	for b.Loop() {
		start := time.Now()
		err := floor(b.Context())
		floorTime += time.Since(start)
		before := walPosition(b, pool)
		start = time.Now()
		if err == nil {
			err = subject(b.Context())
		}
		storeTime += time.Since(start)
		wal += walPosition(b, pool) - before
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(floorTime)/float64(storeTime), "x-floor")
	b.ReportMetric(float64(storeTime.Microseconds())/float64(b.N), "µs/op")
	b.ReportMetric(float64(floorTime.Microseconds())/float64(b.N), "floor-µs/op")
	b.ReportMetric(float64(wal)/float64(b.N), "WAL-B/op")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPurge removes 20,000 of 40,000 rows an operation, step by step; the
// longest step is reported too.
func BenchmarkPurge(b *testing.B) {
	st, _, _ := benchStore(b, 2)
	const rows = 40_000
	var total, longest time.Duration
	removed := 0
	for b.Loop() {
		exec(b, "TRUNCATE "+st.opts.table())
		exec(b, `INSERT INTO `+st.opts.table()+` (`+columns+`)
			SELECT '\x01', now(), now(), now() + CASE WHEN i % 2 = 0 THEN interval '1 day' ELSE interval '-1 day' END,
			1, 1, 0, 0, 3, 0, false, NULL, NULL, NULL, 'test', 'row-' || i, '', NULL, NULL, NULL, NULL, $1::bytea
			FROM generate_series(1, $2::int) i`, benchResult, rows)
		for cursor, more := "", true; more; more = cursor != "" {
			start := time.Now()
			n, next, err := st.Purge(b.Context(), cursor)
			if err != nil {
				b.Fatal(err)
			}
			d := time.Since(start)
			total += d
			longest = max(longest, d)
			removed += n
			cursor = next
		}
	}
	if removed != b.N*rows/2 {
		b.Errorf("%d rows removed", removed)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(removed)/1000, "µs/row")
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-step-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStats counts a scope of 100,000 records that are in memory.
func BenchmarkStats(b *testing.B) {
	const records = 100_000
	st := open(b, direct(b), freshTable(b))
	for i := 0; i < records; i += maxBatch {
		all := make([]store.Settlement, 0, maxBatch)
		for j := i; j < min(i+maxBatch, records); j++ {
			all = append(all, store.Settlement{ID: id(benchKey(j)), Token: store.NewToken(), Kind: store.Succeed, Payload: benchResult, Retention: hour})
		}
		if _, err := st.Settle(b.Context(), all); err != nil {
			b.Fatal(err)
		}
	}
	exec(b, "VACUUM ANALYZE "+st.opts.table())
	for b.Loop() {
		if got, err := st.Stats(b.Context(), "test"); err != nil || got.Succeeded != records {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*records), "µs/record")
}
