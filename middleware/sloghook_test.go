package secondrun_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func ExampleLogEvents() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	g, err := secondrun.New("billing", memstore.New(nil), &secondrun.Options{OnEvent: secondrun.LogEvents(logger)})
	if err != nil {
		panic(err)
	}
	for range 2 {
		_ = secondrun.DoFunc(context.Background(), g, "invoice:inv_8841:capture", func(context.Context) error { return nil })
	}
	// Output:
	// level=DEBUG msg="secondrun suppressed" scope=billing key_hash=b012a112 verdict=done
}

// TestLogEvents looks at the level of every kind of event, and for anything
// that a sender or a handler chose.
func TestLogEvents(t *testing.T) {
	levels := map[secondrun.EventKind]string{
		secondrun.EventSuppressed: "DEBUG", secondrun.EventWouldSuppress: "DEBUG", secondrun.EventEffectReplayed: "DEBUG",
		secondrun.EventResultOmitted: "INFO", secondrun.EventStoreUp: "INFO",
		secondrun.EventLeaseLost: "WARN", secondrun.EventHoldLost: "WARN", secondrun.EventUnrecorded: "WARN",
		secondrun.EventRecreated: "WARN", secondrun.EventFailOpen: "WARN", secondrun.EventKeyError: "WARN", secondrun.EventStoreDown: "WARN",
	}
	for kind := secondrun.EventKind(1); kind.String() != "none"; kind++ {
		var out strings.Builder
		hook := secondrun.LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		hook(t.Context(), secondrun.Event{
			Kind: kind, Scope: "s", ID: store.ID{Scope: "s", Key: "canary\nkey", Effect: "canary effect"}, Kept: store.Succeed,
			Reason: "70000 bytes, limit 65536", Err: errors.New("canary error"),
		})
		switch line, want := out.String(), levels[kind]; {
		case want == "" && line != "":
			t.Errorf("%v is written: %s", kind, line)
		case want != "" && (!strings.Contains(line, "level="+want) || !strings.Contains(line, "secondrun "+kind.String()) || !strings.Contains(line, "key_hash=")):
			t.Errorf("%v: %q, want level %s", kind, line, want)
		case strings.Contains(line, "canary"):
			t.Errorf("%v leaks: %s", kind, line)
		}
	}
	secondrun.LogEvents(nil)(t.Context(), secondrun.Event{Kind: secondrun.EventSuppressed}) // slog.Default, at debug: silent
}
