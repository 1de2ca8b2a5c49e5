package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

// The benchmarks run the store and its floor in turn: the same statements with
// the same settings on a file of its own, without a decision between them.
// x-floor is the time of the store divided by that of the floor.

func BenchmarkFreshPair(b *testing.B) {
	for _, d := range []Durability{Full, Normal} {
		for _, n := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/batch=%d", map[Durability]string{Full: "full", Normal: "normal"}[d], n), func(b *testing.B) {
				opts := &Options{Durability: d}
				s, floor := open(b, newPath(b), opts), open(b, newPath(b), opts)
				compare(b, n, func(i int) { freshPair(b, s, i, n) }, func(i int) { floorPair(b, floor, i, n) })
			})
		}
	}
}

func BenchmarkDuplicate(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			s := open(b, newPath(b), nil)
			freshPair(b, s, 0, n)
			reqs := requests(0, n)
			names := namesOf(reqs)
			compare(b, n, func(int) {
				out, err := s.Claim(context.Background(), reqs)
				if err != nil || out[0].Verdict != store.Done {
					b.Fatal(out, err)
				}
			}, func(int) {
				if _, err := load(context.Background(), s.read, names); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkRenew renews 256 leases in one call.
func BenchmarkRenew(b *testing.B) {
	s := open(b, newPath(b), nil)
	reqs := requests(0, maxBatch)
	if _, err := s.Claim(context.Background(), reqs); err != nil {
		b.Fatal(err)
	}
	leases := make([]store.Lease, len(reqs))
	for i, r := range reqs {
		leases[i] = store.Lease{ID: r.ID, Token: r.Token}
	}
	for b.Loop() {
		if st, err := s.Renew(context.Background(), leases, time.Minute); err != nil || st[0].Code != store.OK {
			b.Fatal(st, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxBatch), "ns/lease")
}

func compare(b *testing.B, n int, run, floor func(i int)) {
	b.Helper()
	var ours, bare time.Duration
	i := 1
	for b.Loop() {
		t0 := time.Now()
		run(i)
		t1 := time.Now()
		floor(i)
		ours, bare = ours+t1.Sub(t0), bare+time.Since(t1)
		i++
	}
	items := float64((i - 1) * n)
	b.ReportMetric(0, "ns/op") // the sum of both says nothing
	b.ReportMetric(float64(ours.Nanoseconds())/items, "ns/item")
	b.ReportMetric(float64(bare.Nanoseconds())/items, "floor-ns/item")
	b.ReportMetric(float64(ours)/float64(bare), "x-floor")
}

func requests(i, n int) []store.ClaimRequest {
	reqs := make([]store.ClaimRequest, n)
	for j := range reqs {
		reqs[j] = request(fmt.Sprintf("0190f7a2-7c1e-7000-8000-%06d%06d", i, j))
	}
	return reqs
}

func namesOf(reqs []store.ClaimRequest) []name {
	names := make([]name, len(reqs))
	for i := range reqs {
		names[i] = nameOf(reqs[i].ID)
	}
	return names
}

var benchResult = make([]byte, 64)

func freshPair(b *testing.B, s *Store, i, n int) {
	reqs := requests(i, n)
	out, err := s.Claim(context.Background(), reqs)
	if err != nil || out[0].Verdict != store.Granted {
		b.Fatal(out, err)
	}
	settlements := make([]store.Settlement, n)
	for j, r := range reqs {
		settlements[j] = store.Settlement{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: benchResult, Retention: time.Hour}
	}
	if st, err := s.Settle(context.Background(), settlements); err != nil || st[0].Code != store.OK {
		b.Fatal(st, err)
	}
}

// floorPair inserts and updates what freshPair does.
func floorPair(b *testing.B, s *Store, i, n int) {
	names := namesOf(requests(i, n))
	records := make([]row, n)
	step := func(look bool, change func(r *row)) {
		if look {
			if _, err := load(context.Background(), s.read, names); err != nil {
				b.Fatal(err)
			}
		}
		err := s.transact(context.Background(), "floor", false, func(ctx context.Context, c *sql.Conn) error {
			if _, err := load(ctx, c, names); err != nil {
				return err
			}
			for j := range records {
				change(&records[j])
				if err := save(ctx, c, names[j], &records[j]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	now := time.Now()
	step(true, func(r *row) {
		r.rec.State, r.rec.Token, r.rec.LeaseEnd, r.rec.ExpiresAt = store.StateClaimed, store.NewToken(), now, now
	})
	step(false, func(r *row) { r.rec.State, r.rec.Payload = store.StateSucceeded, benchResult })
}

// BenchmarkStats counts a scope of 100,000 records that are in the page cache.
func BenchmarkStats(b *testing.B) {
	const records = 100_000
	s := open(b, newPath(b), &Options{Durability: Normal})
	for i := 0; i < records; i += maxBatch {
		var all []store.Settlement
		for _, r := range requests(i, min(maxBatch, records-i)) {
			all = append(all, store.Settlement{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: benchResult, Retention: time.Hour})
		}
		if _, err := s.Settle(b.Context(), all); err != nil {
			b.Fatal(err)
		}
	}
	scope := requests(0, 1)[0].ID.Scope
	for b.Loop() {
		if got, err := s.Stats(b.Context(), scope); err != nil || got.Succeeded != records {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*records), "µs/record")
}
