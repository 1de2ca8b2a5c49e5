package sqsadapter

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/pgstore"
	"github.com/secondrun/secondrun/store/redisstore"
)

// BenchmarkConsumer sends b.N messages through the consumer, and as many
// through the same consumer without the middleware: the same pollers, slots,
// holds and batched deletes, but neither keys nor claims nor records. It reports
// messages per second of both, and their ratio in percent.
func BenchmarkConsumer(b *testing.B) {
	for _, took := range []time.Duration{0, 5 * time.Millisecond} {
		benchStore(b, took, "memory", func(testing.TB) store.Store { return memstore.New(nil) })
		benchStore(b, took, "postgres", func(tb testing.TB) store.Store {
			dsn := testenv.Get(tb, testenv.PostgresVar)
			if err := pgstore.Migrate(tb.Context(), dsn, nil); err != nil {
				tb.Fatal(err)
			}
			st, err := pgstore.Open(tb.Context(), dsn, nil)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(st.Close)
			return st
		})
		benchStore(b, took, "redis", func(tb testing.TB) store.Store {
			client := redis.NewClient(&redis.Options{Addr: testenv.Get(tb, testenv.RedisVar), ContextTimeoutEnabled: true})
			tb.Cleanup(func() { _ = client.Close() })
			st, err := redisstore.New(tb.Context(), client, nil)
			if err != nil {
				tb.Fatal(err)
			}
			return st
		})
	}
}

func benchStore(b *testing.B, took time.Duration, name string, open func(testing.TB) store.Store) {
	b.Run(fmt.Sprintf("handler %v/%s", took, name), func(b *testing.B) {
		st := open(b)
		handle := func() {
			if took > 0 {
				time.Sleep(took)
			}
		}
		const rounds = 4 // alternating, so that a machine that slows down slows both
		var with, without time.Duration
		b.ReportAllocs()
		for range rounds {
			without += consumeAll(b, nil, (b.N+rounds-1)/rounds, handle)
			with += consumeAll(b, st, (b.N+rounds-1)/rounds, handle)
		}
		n := float64((b.N + rounds - 1) / rounds * rounds)
		b.ReportMetric(n/without.Seconds(), "without/s")
		b.ReportMetric(n/with.Seconds(), "with/s")
		b.ReportMetric(100*without.Seconds()/with.Seconds(), "%ofwithout")
		b.ReportMetric(0, "ns/op") // of both together, which means nothing
	})
}

// With a store that takes no time the middleware makes nobody wait: messages are
// done as fast as without, to nine tenths.
func TestThroughput_NoAddedWaiting(t *testing.T) {
	for _, took := range []time.Duration{0, 5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			handle := func() { time.Sleep(took) }
			without := consumeAll(t, nil, 1000, handle)
			with := consumeAll(t, memstore.New(nil), 1000, handle)
			if 9*with > 10*without {
				t.Errorf("handler %v: %v for 1000 messages, %v without", took, with, without)
			}
			t.Logf("handler %v: %v, %v without", took, with, without)
		})
	}
}

// consumeAll returns how long n messages take, without a store without the
// middleware.
func consumeAll(b testing.TB, st store.Store, n int, handle func()) time.Duration {
	srv := sqstest.NewServer(&sqstest.Options{KeepDeleted: -1, KeepCalls: -1})
	url, err := srv.CreateQueue("bench", nil)
	if err != nil {
		b.Fatal(err)
	}
	client := srv.Client()
	for i := 0; i < n; i += maxBatch {
		in := &sqs.SendMessageBatchInput{QueueUrl: &url}
		for j := i; j < min(n, i+maxBatch); j++ {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
				Id: aws.String(fmt.Sprint(j)), MessageBody: aws.String(fmt.Sprintf(`{"id":"%d"}`, j)),
			})
		}
		if _, err := client.SendMessageBatch(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	c := benchConsumer(b, st, client, url, handle, func() {
		if done.Add(1) == int64(n) {
			cancel()
		}
	})
	start := time.Now()
	if st != nil {
		err = c.Run(ctx)
	} else {
		err = c.runWithout(ctx, handle)
	}
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func benchConsumer(b testing.TB, st store.Store, client Client, url string, handle, deleted func()) *Consumer {
	if st == nil {
		st = memstore.New(nil)
	}
	g, err := secondrun.New("bench-"+rand.Text(), st, &secondrun.Options{Telemetry: &secondrun.Telemetry{Off: true}})
	if err != nil {
		b.Fatal(err)
	}
	h := secondrun.Wrap(g, keyfn.JSON("id"), func(context.Context, *Message) error { handle(); return nil })
	c, err := NewConsumer(client, url, h, &Options{
		Concurrency: 20, DeadLetter: Discard,
		OnEvent: func(_ context.Context, e Event) {
			if e.Kind == EventDeleted {
				deleted()
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// runWithout is Run without the middleware: the floor.
func (c *Consumer) runWithout(ctx context.Context, handle func()) error {
	var pollers, held sync.WaitGroup
	for range c.c.opt.Pollers {
		pollers.Go(func() {
			for n := c.acquire(ctx); n > 0; n = c.acquire(ctx) {
				msgs, _ := c.receive(ctx, n)
				release(c.slots, n-len(msgs))
				release(c.room, n-len(msgs))
				for _, it := range c.c.take(msgs, time.Now(), func() { release(c.slots, 1) }) {
					held.Go(func() {
						defer release(c.room, 1)
						handle()
						it.free() // as with the middleware
						c.c.remove(context.Background(), it, Event{Kind: EventDeleted})
					})
				}
			}
		})
	}
	pollers.Wait()
	held.Wait()
	return nil
}
