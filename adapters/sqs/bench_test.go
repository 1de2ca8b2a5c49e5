package sqsadapter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

// BenchmarkConsumer sends b.N messages through the consumer, and as many
// through the same consumer without the middleware: the same pollers, slots,
// holds and batched deletes, but neither keys nor claims nor records. It reports
// messages per second of both, and their ratio in percent.
func BenchmarkConsumer(b *testing.B) {
	for _, took := range []time.Duration{0, 5 * time.Millisecond} {
		b.Run(fmt.Sprint("handler ", took), func(b *testing.B) {
			handle := func() {
				if took > 0 {
					time.Sleep(took)
				}
			}
			const rounds = 4 // alternating, so that a machine that slows down slows both
			var with, without time.Duration
			b.ReportAllocs()
			for range rounds {
				without += consumeAll(b, (b.N+rounds-1)/rounds, handle, false)
				with += consumeAll(b, (b.N+rounds-1)/rounds, handle, true)
			}
			n := float64((b.N + rounds - 1) / rounds * rounds)
			b.ReportMetric(n/without.Seconds(), "without/s")
			b.ReportMetric(n/with.Seconds(), "with/s")
			b.ReportMetric(100*without.Seconds()/with.Seconds(), "%ofwithout")
			b.ReportMetric(0, "ns/op") // of both together, which means nothing
		})
	}
}

// consumeAll returns how long n messages take.
func consumeAll(b *testing.B, n int, handle func(), guarded bool) time.Duration {
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
	c := benchConsumer(b, client, url, handle, func() {
		if done.Add(1) == int64(n) {
			cancel()
		}
	})
	start := time.Now()
	if guarded {
		err = c.Run(ctx)
	} else {
		err = c.runWithout(ctx, handle)
	}
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func benchConsumer(b *testing.B, client Client, url string, handle, deleted func()) *Consumer {
	g, err := secondrun.New("bench", memstore.New(nil), &secondrun.Options{Telemetry: &secondrun.Telemetry{Off: true}})
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
				c.release(n - len(msgs))
				for _, it := range c.c.take(msgs, time.Now()) {
					held.Go(func() {
						defer c.release(1)
						handle()
						c.c.remove(context.Background(), it, EventDeleted, nil)
					})
				}
			}
		})
	}
	pollers.Wait()
	held.Wait()
	return nil
}
