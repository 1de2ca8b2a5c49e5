package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/testenv"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/pgstore"
	"github.com/secondrun/secondrun/store/redisstore"
)

// BenchmarkCoalescing runs fresh keys through a Guard, which collects the calls
// of concurrent workers, beside workers that call the store one item at a time
// on up to 32 connections. x-singles is how many times as fast the Guard is.
//
// Each turn runs the two in slices that take turns, so that what else the
// machine does meets both.
func BenchmarkCoalescing(b *testing.B) {
	stores := map[string]func(b *testing.B) (guarded, single store.Store){
		"postgres": openPostgres,
		"redis":    openRedis,
	}
	for name, open := range stores {
		for _, workers := range []int{1, 8, 32, 128, 512} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				guarded, single := open(b)
				coalesce(b, guarded, single, workers)
			})
		}
	}
}

func coalesce(b *testing.B, guarded, single store.Store, workers int) {
	scope := "bench-" + rand.Text()
	counting := &countingStore{Store: guarded}
	g, err := secondrun.New(scope, counting, nil)
	if err != nil {
		b.Fatal(err)
	}
	var keys atomic.Int64
	nothing := func(context.Context) error { return nil }
	viaGuard := func() error {
		return secondrun.DoFunc(context.Background(), g, fmt.Sprint("g-", keys.Add(1)), nothing)
	}
	direct := func() error { return pair(single, scope, fmt.Sprint("d-", keys.Add(1))) }

	const slices = 6
	n := max(b.N/slices, workers)
	var took, floor time.Duration
	b.ResetTimer()
	for range slices {
		took += inParallel(b, workers, n, viaGuard)
		floor += inParallel(b, workers, n, direct)
	}
	b.StopTimer()
	total := float64(slices * n)
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(total/took.Seconds(), "msg/s")
	b.ReportMetric(float64(floor)/float64(took), "x-singles")
	b.ReportMetric(float64(counting.calls.Load())/total, "calls/msg")
}

// pair is a message without the middleware: a claim and a settlement.
func pair(st store.Store, scope, key string) error {
	id := store.ID{Scope: scope, Key: key}
	token := store.NewToken()
	ctx := context.Background()
	claims, err := st.Claim(ctx, []store.ClaimRequest{{ID: id, Token: token, Lease: 30 * time.Second, Retention: time.Hour}})
	if err != nil || claims[0].Verdict != store.Granted {
		return fmt.Errorf("claim: %v, %w", claims, err)
	}
	_, err = st.Settle(ctx, []store.Settlement{{ID: id, Token: token, Kind: store.Succeed, Payload: []byte{1, 1}, Retention: time.Hour}})
	return err
}

func inParallel(b *testing.B, workers, n int, f func() error) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

type countingStore struct {
	store.Store
	calls atomic.Int64
}

func (c *countingStore) Claim(ctx context.Context, q []store.ClaimRequest) ([]store.Claim, error) {
	c.calls.Add(1)
	return c.Store.Claim(ctx, q)
}

func (c *countingStore) Settle(ctx context.Context, q []store.Settlement) ([]store.Status, error) {
	c.calls.Add(1)
	return c.Store.Settle(ctx, q)
}

func (c *countingStore) Limits() store.Limits { return c.Store.(store.Limiter).Limits() }

func openPostgres(b *testing.B) (guarded, single store.Store) {
	dsn := testenv.Get(b, testenv.PostgresVar)
	if err := pgstore.Migrate(b.Context(), dsn, nil); err != nil {
		b.Fatal(err)
	}
	open := func(conns int) store.Store {
		st, err := pgstore.Open(b.Context(), dsn, &pgstore.Options{MaxConns: conns})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(st.Close)
		return st
	}
	return open(4), open(33)
}

func openRedis(b *testing.B) (guarded, single store.Store) {
	open := func(conns int) store.Store {
		client := redis.NewClient(&redis.Options{Addr: testenv.Get(b, testenv.RedisVar), PoolSize: conns})
		b.Cleanup(func() { _ = client.Close() })
		st, err := redisstore.New(b.Context(), client, nil)
		if err != nil {
			b.Fatal(err)
		}
		return st
	}
	return open(10), open(32)
}
