package secondrun_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

// floor is what a fresh delivery costs without the middleware: the two calls of
// the store, with a timeout for each.
func floor(b *testing.B, st store.Store, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	id, token := store.ID{Scope: "bench", Key: key}, store.NewToken()
	cs, err := st.Claim(ctx, []store.ClaimRequest{{ID: id, Token: token, Lease: lease, Retention: time.Hour}})
	if err != nil || cs[0].Verdict != store.Granted {
		if cs[0].Verdict == store.Done {
			return
		}
		b.Fatal(cs, err)
	}
	_, err = st.Settle(ctx, []store.Settlement{{ID: id, Token: token, Kind: store.Succeed, Retention: time.Hour}})
	if err != nil {
		b.Fatal(err)
	}
}

func benchGuard(b *testing.B, st store.Store) *secondrun.Handler[msg] {
	g, err := secondrun.New("bench", st, nil)
	if err != nil {
		b.Fatal(err)
	}
	return secondrun.Wrap(g, body, nothing)
}

// ratio reports how much longer the middleware takes than the floor.
func ratio(b *testing.B, floor func(i int)) {
	b.StopTimer()
	const n = 20000
	start := time.Now()
	for i := range n {
		floor(i)
	}
	per := time.Since(start) / n
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(per), "x/floor")
}

func BenchmarkHandleFresh(b *testing.B) {
	b.ReportAllocs()
	h, other := benchGuard(b, memstore.New(nil)), memstore.New(nil)
	ctx := context.Background()
	i := 0
	for b.Loop() {
		i++
		if err := h.Handle(ctx, msg(strconv.Itoa(i))); err != nil {
			b.Fatal(err)
		}
	}
	ratio(b, func(i int) { floor(b, other, strconv.Itoa(i)) })
}

func BenchmarkHandleDuplicate(b *testing.B) {
	b.ReportAllocs()
	st := memstore.New(nil)
	h := benchGuard(b, st)
	ctx := context.Background()
	if err := h.Handle(ctx, "a"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := h.Handle(ctx, "a"); err != nil {
			b.Fatal(err)
		}
	}
	ratio(b, func(int) { floor(b, st, "a") })
}

func BenchmarkFloorFresh(b *testing.B) {
	b.ReportAllocs()
	st := memstore.New(nil)
	i := 0
	for b.Loop() {
		i++
		floor(b, st, strconv.Itoa(i))
	}
}

func BenchmarkFloorDuplicate(b *testing.B) {
	b.ReportAllocs()
	st := memstore.New(nil)
	floor(b, st, "a")
	for b.Loop() {
		floor(b, st, "a")
	}
}

func BenchmarkHandleParallel(b *testing.B) {
	b.ReportAllocs()
	h := benchGuard(b, memstore.New(nil))
	b.RunParallel(func(pb *testing.PB) {
		ctx, worker, i := context.Background(), store.NewToken(), 0
		for pb.Next() {
			i++
			if err := h.Handle(ctx, msg(string(worker[:])+strconv.Itoa(i))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
