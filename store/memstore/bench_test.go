package memstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

const scope = "billing"

// ids are keys of the usual length.
func ids(n int) []store.ID {
	all := make([]store.ID, n)
	for i := range all {
		all[i] = store.ID{Scope: scope, Key: fmt.Sprintf("invoice:inv_%019d:capture", i)}
	}
	return all
}

// fresh claims and settles one key after another with a retention that leaves
// about live records, so that every record is also freed.
type fresh struct {
	st        *memstore.Store
	ids       []store.ID
	retention time.Duration
	req       [1]store.ClaimRequest
	set       [1]store.Settlement
	token     store.Token
	n         int
}

func newFresh(live int) *fresh {
	return &fresh{
		st: memstore.New(nil), ids: ids(8 * live), retention: time.Duration(live) * 600 * time.Nanosecond,
		token: store.NewToken(),
	}
}

func (f *fresh) next(ctx context.Context) bool {
	id := f.ids[f.n%len(f.ids)]
	f.n++
	f.req[0] = store.ClaimRequest{ID: id, Token: f.token, Lease: f.retention, Retention: f.retention}
	c, err := f.st.Claim(ctx, f.req[:])
	if err != nil || c[0].Verdict != store.Granted {
		return false
	}
	f.set[0] = store.Settlement{ID: id, Token: f.token, Kind: store.Succeed, Retention: f.retention}
	s, err := f.st.Settle(ctx, f.set[:])
	return err == nil && (s[0].Code == store.OK || s[0].Code == store.Absent) // absent: the machine was busy elsewhere
}

// floor is the least that any store in a map must do: insert, update, delete.
func floor(live, n int) time.Duration {
	type record struct {
		_   store.Token // as large as a real one
		end int64
	}
	all := ids(8 * live)
	m := map[string]record{}
	start := time.Now()
	for i := range n {
		k := all[i%len(all)].Key
		m[k] = record{end: 1}
		r := m[k]
		r.end = 2
		m[k] = r
		if i >= live {
			delete(m, all[(i-live)%len(all)].Key)
		}
	}
	return time.Since(start)
}

// BenchmarkFresh is a claim, a settlement and the end of a record. x-floor is
// the ratio to a plain map on the same machine in the same run.
func BenchmarkFresh(b *testing.B) {
	for _, live := range []int{10_000, 200_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			f := newFresh(live)
			ctx := b.Context()
			for range 2 * live { // steady state
				f.next(ctx)
			}
			b.ReportAllocs()
			for b.Loop() {
				if !f.next(ctx) {
					b.Fatal("not granted and settled")
				}
			}
			ours := float64(b.Elapsed()) / float64(b.N)
			n := max(b.N, 4*live)
			plain := float64(floor(live, n)) / float64(n)
			b.ReportMetric(ours/plain, "x-floor")
			b.ReportMetric(plain, "floor-ns")
			b.ReportMetric(float64(f.st.Len()), "records")
		})
	}
}

// BenchmarkDuplicate is a claim of what has succeeded before. x-floor is the
// ratio to a locked look-up in a plain map.
func BenchmarkDuplicate(b *testing.B) {
	for _, payload := range []string{"", "a result of thirty-two bytes ..."} {
		b.Run(fmt.Sprintf("payload=%d", len(payload)), func(b *testing.B) {
			const live = 10_000
			st, all, ctx := memstore.New(nil), ids(live), b.Context()
			for _, id := range all {
				set := store.Settlement{ID: id, Token: store.NewToken(), Kind: store.Succeed, Payload: []byte(payload), Retention: time.Hour}
				if _, err := st.Settle(ctx, []store.Settlement{set}); err != nil {
					b.Fatal(err)
				}
			}
			var req [1]store.ClaimRequest
			token, n := store.NewToken(), 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				req[0] = store.ClaimRequest{ID: all[n%live], Token: token, Lease: time.Hour, Retention: time.Hour}
				if c, err := st.Claim(ctx, req[:]); err != nil || c[0].Verdict != store.Done {
					b.Fatal(c, err)
				}
			}
			ours := float64(b.Elapsed()) / float64(b.N)
			b.ReportMetric(ours/lookups(all, b.N), "x-floor")
		})
	}
}

// lookups returns the nanoseconds of a locked look-up.
func lookups(all []store.ID, n int) float64 {
	var mu sync.Mutex
	m := map[string]store.State{}
	for _, id := range all {
		m[id.Key] = store.StateSucceeded
	}
	start, found := time.Now(), 0
	for i := range n {
		mu.Lock()
		if m[all[i%len(all)].Key] == store.StateSucceeded {
			found++
		}
		mu.Unlock()
	}
	return float64(time.Since(start)) / float64(max(found, 1))
}

func BenchmarkFreshParallel(b *testing.B) {
	st, ctx := memstore.New(nil), b.Context()
	all := ids(80_000)
	var workers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		n := int(workers.Add(1)) * 7919
		token := store.NewToken()
		for pb.Next() {
			n++
			id := all[n%len(all)]
			c, err := st.Claim(ctx, []store.ClaimRequest{{ID: id, Token: token, Lease: time.Millisecond, Retention: time.Millisecond}})
			if err != nil {
				b.Error(err)
			}
			if c[0].Verdict == store.Granted {
				_, _ = st.Settle(ctx, []store.Settlement{{ID: id, Token: token, Kind: store.Succeed, Retention: time.Millisecond}})
			}
		}
	})
}

// BenchmarkStall claims fresh keys while a million records expire, and reports
// the slowest claim. floor-worst-ms is the slowest insertion of as many keys into
// a plain map: what the machine and the garbage collector make of it.
func BenchmarkStall(b *testing.B) {
	const records = 1_000_000
	ctx := b.Context()
	all, more := ids(records), make([]store.ID, 0, records)
	for i := range records {
		more = append(more, store.ID{Scope: "more", Key: all[i].Key})
	}
	var worst time.Duration
	for b.Loop() {
		st, token := memstore.New(nil), store.NewToken()
		end := time.Now().Add(4 * time.Second)
		for _, id := range all {
			r := store.ClaimRequest{ID: id, Token: token, Lease: time.Millisecond, Retention: time.Until(end)}
			_, _ = st.Claim(ctx, []store.ClaimRequest{r})
		}
		time.Sleep(time.Until(end))
		for _, id := range more {
			r := store.ClaimRequest{ID: id, Token: token, Lease: time.Hour, Retention: time.Hour}
			start := time.Now()
			_, _ = st.Claim(ctx, []store.ClaimRequest{r})
			worst = max(worst, time.Since(start))
		}
		b.ReportMetric(float64(st.Len()), "records")
	}
	b.ReportMetric(float64(worst)/float64(time.Millisecond), "worst-ms")
	m, plain := map[store.ID]*store.Record{}, time.Duration(0)
	for _, id := range append(all, more...) {
		start := time.Now()
		m[id] = &store.Record{}
		plain = max(plain, time.Since(start))
	}
	b.ReportMetric(float64(plain)/float64(time.Millisecond), "floor-worst-ms")
}

// BenchmarkStats counts a scope of 100,000 records.
func BenchmarkStats(b *testing.B) {
	const records = 100_000
	st, ctx := memstore.New(nil), b.Context()
	for _, id := range ids(records) {
		set := store.Settlement{ID: id, Token: store.NewToken(), Kind: store.Succeed, Retention: time.Hour}
		if _, err := st.Settle(ctx, []store.Settlement{set}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if got, err := st.Stats(ctx, scope); err != nil || got.Succeeded != records {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*records), "µs/record")
}
