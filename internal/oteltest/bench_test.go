package oteltest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/redisstore"
)

// discard is an exporter that does what every exporter does first: it reads.
type discard struct{ spans int }

func (d *discard) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		d.spans += len(s.Attributes())
	}
	return nil
}

func (*discard) Shutdown(context.Context) error { return nil }

// BenchmarkTelemetry compares a fresh message without telemetry, with what it
// costs in a program that has configured nothing, and with an SDK that records
// and exports every span.
func BenchmarkTelemetry(b *testing.B) {
	for name, open := range map[string]func(*testing.B) store.Store{
		"memstore": func(*testing.B) store.Store { return memstore.New(nil) },
		"redis":    openRedis,
	} {
		b.Run(name+"/off", func(b *testing.B) { handle1(b, open(b), &secondrun.Telemetry{Off: true}) })
		b.Run(name+"/unconfigured", func(b *testing.B) { handle1(b, open(b), nil) })
		b.Run(name+"/sdk", func(b *testing.B) {
			spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&discard{}))
			b.Cleanup(func() { _ = spans.Shutdown(context.Background()) })
			handle1(b, open(b), &secondrun.Telemetry{
				TracerProvider: spans, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			})
		})
	}
}

// BenchmarkTelemetryRatio takes turns between handlers that differ in telemetry
// only, so that what else the machine does falls on all of them alike, and
// reports the quotients of the medians.
func BenchmarkTelemetryRatio(b *testing.B) {
	for name, open := range map[string]func(*testing.B) store.Store{
		"memstore": func(*testing.B) store.Store { return memstore.New(nil) },
		"redis":    openRedis,
	} {
		b.Run(name, func(b *testing.B) {
			spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&discard{}))
			b.Cleanup(func() { _ = spans.Shutdown(context.Background()) })
			settings := []*secondrun.Telemetry{{Off: true}, nil, {
				TracerProvider: spans, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			}}
			times := make([][]time.Duration, len(settings))
			handlers := make([]func(string), len(settings))
			for i, t := range settings {
				handlers[i] = handler(b, open(b), t)
			}
			run, n := runName(), 0
			for b.Loop() {
				for _, i := range rand.Perm(len(handlers)) { // who comes after whom matters
					n++
					start := time.Now()
					handlers[i](run + strconv.Itoa(n))
					times[i] = append(times[i], time.Since(start))
				}
			}
			off := median(times[0])
			b.ReportMetric(median(times[1])/off, "unconfigured/off")
			b.ReportMetric(median(times[2])/off, "sdk/off")
		})
	}
}

func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2])
}

func openRedis(b *testing.B) store.Store {
	c := redis.NewClient(&redis.Options{Addr: testenv.Get(b, testenv.RedisVar)})
	b.Cleanup(func() { _ = c.Close() })
	st, err := redisstore.New(b.Context(), c, nil)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

func handle1(b *testing.B, st store.Store, t *secondrun.Telemetry) {
	h, run, i := handler(b, st, t), runName(), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		h(run + strconv.Itoa(i))
	}
}

func handler(b *testing.B, st store.Store, t *secondrun.Telemetry) func(key string) {
	g, err := secondrun.New("bench", st, &secondrun.Options{Telemetry: t})
	if err != nil {
		b.Fatal(err)
	}
	h := secondrun.Wrap(g, func(m keyfn.Message) (string, error) { return m.(*message).key, nil },
		func(context.Context, *message) error { return nil })
	ctx := b.Context()
	return func(key string) {
		if err := h.Handle(ctx, &message{key: key}); err != nil {
			b.Fatal(err)
		}
	}
}

// runName keeps the keys of two runs apart.
func runName() string { return strconv.FormatInt(time.Now().UnixNano(), 36) + "-" }
