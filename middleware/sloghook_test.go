package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
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
		secondrun.EventSuppressed: "DEBUG", secondrun.EventEffectReplayed: "DEBUG",
		secondrun.EventWouldSuppress: "INFO", secondrun.EventRun: "INFO", secondrun.EventResultOmitted: "INFO", secondrun.EventStoreUp: "INFO",
		secondrun.EventLeaseLost: "WARN", secondrun.EventHoldLost: "WARN", secondrun.EventUnrecorded: "WARN",
		secondrun.EventRecreated: "WARN", secondrun.EventFailOpen: "WARN", secondrun.EventKeyError: "WARN", secondrun.EventStoreDown: "WARN",
	}
	for kind := secondrun.EventKind(1); kind.String() != "none"; kind++ {
		var out strings.Builder
		hook := secondrun.LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		hook(t.Context(), secondrun.Event{
			Kind: kind, Scope: "s", ID: store.ID{Scope: "s", Key: "canary\nkey", Effect: "canary effect"}, Kept: store.Succeed,
			Class: secondrun.ClassTerminal, Reason: "70000 bytes, limit 65536", Err: errors.New("canary error"),
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

// TestLogEventsSayEnough looks at whole lines.
func TestLogEventsSayEnough(t *testing.T) {
	noKey := func(key keyfn.Func) error {
		_, err := key(keyfn.NewMessage([]byte(`{"id":null,"canary":1}`), nil))
		return err
	}
	own := keyfn.From(func(struct{ Canary int }) (string, error) { return "", errors.New("canary") })
	effect := store.ID{Scope: "s", Key: "k", Effect: "e"}
	for _, test := range []struct {
		e    secondrun.Event
		want string // empty for a line that is not written
	}{
		{
			secondrun.Event{Kind: secondrun.EventKeyError, Err: noKey(keyfn.JSON("id"))},
			`level=WARN msg="secondrun key-error" scope=s error_type=*keyfn.Error reason="keyfn: JSON \"id\": null"`,
		},
		{
			secondrun.Event{Kind: secondrun.EventKeyError, Err: fmt.Errorf("canary: %w", noKey(keyfn.Header("canary-free")))},
			`level=WARN msg="secondrun key-error" scope=s error_type=*keyfn.Error reason="keyfn: Header \"canary-free\": missing"`,
		},
		{
			secondrun.Event{Kind: secondrun.EventKeyError, Err: noKey(own)},
			`level=WARN msg="secondrun key-error" scope=s error_type=*keyfn.Error reason="keyfn: From: *errors.errorString"`,
		},
		{
			secondrun.Event{Kind: secondrun.EventKeyError, Err: errors.New("canary")},
			`level=WARN msg="secondrun key-error" scope=s error_type=*errors.errorString`,
		},
		{
			secondrun.Event{Kind: secondrun.EventRun, Class: secondrun.ClassTerminal, Err: secondrun.Terminal(errors.New("canary"))},
			`level=INFO msg="secondrun run" scope=s class=terminal error_type=*errors.errorString`,
		},
		{secondrun.Event{Kind: secondrun.EventRun}, ""},
		{secondrun.Event{Kind: secondrun.EventRun, Err: &secondrun.BusyError{}}, ""}, // given back
		{
			secondrun.Event{Kind: secondrun.EventSuppressed, Verdict: store.Failed, Failure: store.FailedParked},
			`level=WARN msg="secondrun suppressed" scope=s verdict=failed failure=parked`,
		},
		{
			secondrun.Event{Kind: secondrun.EventSuppressed, Verdict: store.Exhausted, Failure: store.FailedExhausted},
			`level=WARN msg="secondrun suppressed" scope=s verdict=exhausted failure=exhausted`,
		},
		{
			secondrun.Event{Kind: secondrun.EventSuppressed, Verdict: store.Failed, Failure: store.FailedTerminal},
			`level=DEBUG msg="secondrun suppressed" scope=s verdict=failed failure=terminal`,
		},
		{
			secondrun.Event{Kind: secondrun.EventWouldSuppress, Verdict: store.Done},
			`level=INFO msg="secondrun would-suppress" scope=s verdict=done`,
		},
		{
			secondrun.Event{Kind: secondrun.EventSettled, Kept: store.Park},
			`level=WARN msg="secondrun settled" scope=s outcome=park`,
		},
		{
			secondrun.Event{Kind: secondrun.EventVerdict, ID: effect, Verdict: store.Failed, Failure: store.FailedParked},
			`level=WARN msg="secondrun verdict" scope=s key_hash=` + effect.KeyHash() + ` effect=true verdict=failed failure=parked`,
		},
		{secondrun.Event{Kind: secondrun.EventVerdict, Verdict: store.Failed, Failure: store.FailedParked}, ""}, // suppressed says it
		{
			secondrun.Event{Kind: secondrun.EventStoreDown, Err: fmt.Errorf("canary: %w", sqlError("42501"))},
			`level=WARN msg="secondrun store-down" scope=s error_type=secondrun_test.sqlError sqlstate=42501`,
		},
		{
			secondrun.Event{Kind: secondrun.EventStoreDown, Err: sqlError("a b c")},
			`level=WARN msg="secondrun store-down" scope=s error_type=secondrun_test.sqlError`,
		},
		{
			secondrun.Event{Kind: secondrun.EventStoreDown, Err: redisError("NOPERM canary")},
			`level=WARN msg="secondrun store-down" scope=s error_type=secondrun_test.redisError redis_error=NOPERM`,
		},
		{
			secondrun.Event{Kind: secondrun.EventStoreDown, Err: redisError("canary")},
			`level=WARN msg="secondrun store-down" scope=s error_type=secondrun_test.redisError`,
		},
	} {
		var out strings.Builder
		test.e.Scope = "s"
		secondrun.LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))(t.Context(), test.e)
		_, line, _ := strings.Cut(strings.TrimSpace(out.String()), " ") // without the time
		is(t, "line", line, test.want)
	}
}

// TestLogOfAWholeLife: a key that is empty, a handler that fails, a key that is
// parked.
func TestLogOfAWholeLife(t *testing.T) {
	var out strings.Builder
	st := memstore.New(nil)
	g, err := secondrun.New("s", st, &secondrun.Options{
		Takeover: secondrun.Takeover{Park: true},
		OnEvent:  secondrun.LogEvents(slog.New(slog.NewTextHandler(&out, nil))),
	})
	if err != nil {
		t.Fatal(err)
	}
	isError(t, secondrun.DoFunc(t.Context(), g, "", ok), secondrun.ErrKey)
	isError(t, secondrun.DoFunc(t.Context(), g, "a", func(context.Context) error { return errBad }), errBad)
	died(st, store.ID{Scope: "s", Key: "b"})
	isError(t, secondrun.DoFunc(t.Context(), g, "b", ok), secondrun.ErrParked)
	for _, want := range []string{`reason="key is empty"`, "class=terminal error_type=*errors.errorString", "verdict=failed failure=parked"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in:\n%s", want, out.String())
		}
	}
	is(t, "lines", strings.Count(out.String(), "\n"), 3)
}
