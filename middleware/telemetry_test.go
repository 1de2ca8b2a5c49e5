package secondrun_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestTelemetryCostsLittleUntilItIsConfigured(t *testing.T) {
	for name, key := range map[string]func(int) string{
		"fresh":     func(i int) string { return "fresh" + strconv.Itoa(i) },
		"duplicate": func(int) string { return "duplicate" },
	} {
		t.Run(name, func(t *testing.T) {
			off, on := allocations(t, true, key), allocations(t, false, key)
			t.Logf("%.1f allocations without telemetry, %.1f with", off, on)
			if on > off+0.5 { // 2 are allowed
				t.Errorf("%.1f allocations more", on-off)
			}
		})
	}
}

func ExampleTelemetry() {
	st := memstore.New(nil)
	g, err := secondrun.New("orders", st, &secondrun.Options{
		OnEvent: secondrun.LogEvents(nil), // log/slog; nil is slog.Default
		Telemetry: &secondrun.Telemetry{ // nil: the global providers
			StoreSpans: true,
		},
	})
	fmt.Println(g.Scope(), err)
	// Output: orders <nil>
}

func allocations(t *testing.T, off bool, key func(int) string) float64 {
	g, err := secondrun.New("cost", memstore.New(nil), &secondrun.Options{Telemetry: &secondrun.Telemetry{Off: off}})
	if err != nil {
		t.Fatal(err)
	}
	h := secondrun.Wrap(g, body, func(ctx context.Context, _ msg) error {
		return secondrun.OnceFunc(ctx, "effect", func(context.Context) error { return nil })
	})
	ctx, i := context.Background(), 0
	return testing.AllocsPerRun(2000, func() {
		i++
		if err := h.Handle(ctx, msg(key(i))); err != nil {
			t.Fatal(err)
		}
	})
}
