package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// rounds of the measured work and of its floor take turns, so that whatever else
// the machine does hits both. The metric x-floor is the throughput in terms of
// the floor's: 1 is as fast as bare Redis commands through the same client.
const rounds = 10

// server-x-floor is the same with the CPU time of the server.
func against(b *testing.B, c *redis.Client, workers int, floor, work func(i int)) {
	b.Helper()
	spread := func(from, to int, f func(int)) time.Duration {
		begin := time.Now()
		var next atomic.Int64
		next.Store(int64(from))
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for i := int(next.Add(1) - 1); i < to; i = int(next.Add(1) - 1) {
					f(i)
				}
			})
		}
		wg.Wait()
		return time.Since(begin)
	}
	var floors, works time.Duration
	var floorCPU, workCPU float64
	for r := range rounds {
		from, to := b.N*r/rounds, b.N*(r+1)/rounds
		start := serverCPU(b, c)
		floors += spread(from, to, floor)
		middle := serverCPU(b, c)
		works += spread(from, to, work)
		floorCPU, workCPU = floorCPU+middle-start, workCPU+serverCPU(b, c)-middle
	}
	b.ReportMetric(floorCPU/workCPU, "server-x-floor")
	b.ReportMetric(workCPU*1e6/float64(b.N), "server-µs/op")
	b.ReportMetric(floors.Seconds()/works.Seconds(), "x-floor")
	b.ReportMetric(float64(works.Nanoseconds())/float64(b.N), "work-ns/op")
	b.ReportMetric(float64(floors.Nanoseconds())/float64(b.N), "floor-ns/op")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

// serverCPU is the CPU time of the server so far, in seconds.
func serverCPU(b *testing.B, c *redis.Client) (sum float64) {
	info := c.Info(ctx, "cpu").Val()
	for _, m := range regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		must(b, err)
		sum += n
	}
	return sum
}

var result = []byte(strings.Repeat("r", 64))

func benchRequest(i int, run string) store.ClaimRequest {
	return store.ClaimRequest{
		ID: store.ID{Scope: "bench", Key: fmt.Sprint(run, i)}, Token: store.NewToken(),
		Lease: time.Minute, Retention: time.Hour, Holder: "host-1234",
	}
}

func must(b testing.TB, err error) {
	if err != nil {
		b.Error(err)
	}
}

var ctx = context.Background()

// BenchmarkFresh: a claim and a settlement against SET NX PX and SET PX.
func BenchmarkFresh(b *testing.B) {
	c := standalone(b)
	s := open(b, c, nil)
	for _, workers := range []int{1, 8, 32} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			run := fmt.Sprint(time.Now().UnixNano(), "-")
			against(b, c, workers, pair(b, c, run), func(i int) { single(b, s, benchRequest(i, run)) })
		})
	}
}

// pair is what people write by hand: no fence, no token, no lease.
func pair(b *testing.B, c *redis.Client, run string) func(int) {
	return func(i int) {
		key := fmt.Sprint("floor:", run, i)
		must(b, c.SetNX(ctx, key, "running", time.Hour).Err())
		must(b, c.Set(ctx, key, result, time.Hour).Err())
	}
}

func single(b testing.TB, s *redisstore.Store, r store.ClaimRequest) {
	out, err := s.Claim(ctx, []store.ClaimRequest{r})
	if err != nil || out[0].Verdict != store.Granted {
		b.Errorf("not granted: %v", err)
		return
	}
	st, err := s.Settle(ctx, []store.Settlement{{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: result, Retention: time.Hour}})
	if err != nil || st[0].Code != store.OK {
		b.Errorf("%+v, %v", st, err)
	}
}

// BenchmarkDuplicate: a claim of a succeeded record against SET NX GET.
func BenchmarkDuplicate(b *testing.B) {
	c := standalone(b)
	s := open(b, c, nil)
	const keys = 1000
	run := fmt.Sprint(time.Now().UnixNano(), "-")
	for i := range keys {
		single(b, s, benchRequest(i, run))
		must(b, c.Set(ctx, fmt.Sprint("floor:", i), result, time.Hour).Err())
	}
	for _, workers := range []int{1, 8, 32} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			against(b, c, workers, func(i int) {
				a := redis.SetArgs{Mode: "NX", Get: true, TTL: time.Hour}
				must(b, c.SetArgs(ctx, fmt.Sprint("floor:", i%keys), "running", a).Err())
			}, func(i int) {
				out, err := s.Claim(ctx, []store.ClaimRequest{benchRequest(i%keys, run)})
				if err != nil || out[0].Verdict != store.Done {
					b.Errorf("not done: %v", err)
				}
			})
		})
	}
}

// BenchmarkBatch: what a busy Guard does, calls of 64 items from two goroutines,
// against the same items one by one from 128 workers (own) and the pair from 50
// (pair). An operation is 64 messages.
func BenchmarkBatch(b *testing.B) {
	c := redis.NewClient(&redis.Options{Addr: standalone(b).Options().Addr, ContextTimeoutEnabled: true, PoolSize: 50})
	b.Cleanup(func() { _ = c.Close() })
	s := open(b, c, nil)
	const size = 64
	many := func(workers int, f func(int)) func(int) {
		return func(i int) {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for n := next.Add(1); n <= size; n = next.Add(1) {
						f(i*size + int(n))
					}
				})
			}
			wg.Wait()
		}
	}
	batch := func(run string) func(int) {
		return func(i int) {
			reqs := make([]store.ClaimRequest, size)
			settlements := make([]store.Settlement, size)
			for n := range reqs {
				reqs[n] = benchRequest(i*size+n, run)
				settlements[n] = store.Settlement{ID: reqs[n].ID, Token: reqs[n].Token, Kind: store.Succeed, Payload: result, Retention: time.Hour}
			}
			_, err := s.Claim(ctx, reqs)
			must(b, err)
			_, err = s.Settle(ctx, settlements)
			must(b, err)
		}
	}
	run := func() string { return fmt.Sprint(time.Now().UnixNano(), "-") }
	b.Run("own", func(b *testing.B) {
		r := run()
		against(b, c, 2, many(64, func(i int) { single(b, s, benchRequest(i, r+"single")) }), batch(r))
	})
	b.Run("pair", func(b *testing.B) {
		r := run()
		against(b, c, 2, many(25, pair(b, c, r)), batch(r))
	})
}

// TestMemory: a record takes at most 0.9 of what it takes as a hash with a
// field for everything.
func TestMemory(t *testing.T) {
	c := standalone(t)
	s := open(t, c, nil)
	r := request(t)
	const width = 44 - len("secondrun:{billing:}")
	r.ID = store.ID{Scope: "billing", Key: fmt.Sprintf("%0*d", width, time.Now().UnixNano()%1e12)}
	single(t, s, r)
	key := "secondrun:{" + r.ID.Scope + ":" + r.ID.Key + "}"
	hash := strings.Replace(key, "secondrun", "hashhhhhh", 1)
	fields := []any{
		"token", string(r.Token[:]), "state", "succeeded", "fence", 1, "starts", 1, "failures", 0, "crashes", 0,
		"expires", time.Now().UnixMicro(), "holder", r.Holder, "trace", r.Trace, "delivery", r.Delivery, "result", result,
	}
	must(t, c.HSet(ctx, hash, fields...).Err())
	must(t, c.Expire(ctx, hash, time.Hour).Err())
	small := hash + "2"
	must(t, c.HSet(ctx, small, "token", string(r.Token[:]), "state", "succeeded", "fence", 1, "result", result).Err())
	must(t, c.Expire(ctx, small, time.Hour).Err())
	own, full, least := c.MemoryUsage(ctx, key).Val(), c.MemoryUsage(ctx, hash).Val(), c.MemoryUsage(ctx, small).Val()
	t.Logf("record with trace %d bytes, hash of the same fields %d (%.2f), hash of four fields without trace %d", own, full, float64(own)/float64(full), least)
	if float64(own) > 0.9*float64(full) {
		t.Errorf("record %d bytes, hash %d", own, full)
	}
	r.Trace, r.Delivery, r.Holder, r.Token = "", "", "host-1234", store.NewToken()
	r.ID.Key = fmt.Sprintf("%0*d", width, time.Now().UnixNano()%1e12+1)
	single(t, s, r)
	bare := c.MemoryUsage(ctx, "secondrun:{"+r.ID.Scope+":"+r.ID.Key+"}").Val()
	t.Logf("record without trace %d bytes (%.2f of four fields)", bare, float64(bare)/float64(least))
}

// BenchmarkStats counts a scope of 100,000 records on a server of its own: keys
// of others are walked too.
func BenchmarkStats(b *testing.B) {
	const records, step = 100_000, 250
	s := open(b, dial(b, startServer(b).addr), nil)
	scope := fmt.Sprint("stats", time.Now().UnixNano())
	for i := 0; i < records; i += step {
		var all []store.Settlement
		for j := i; j < i+step; j++ {
			all = append(all, store.Settlement{
				ID: store.ID{Scope: scope, Key: fmt.Sprint(j)}, Token: store.NewToken(),
				Kind: store.Succeed, Payload: result, Retention: time.Hour,
			})
		}
		if _, err := s.Settle(ctx, all); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if got, err := s.Stats(ctx, scope); err != nil || got.Succeeded < records {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*records), "µs/record")
}
