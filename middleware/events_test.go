package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// kinds is what was reported, without the calls of the store.
func (e *events) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, ev := range e.all {
		if ev.Kind != secondrun.EventStoreCall {
			all = append(all, ev.Kind.String())
		}
	}
	e.all = nil
	return strings.Join(all, " ")
}

// Every kind of event, exactly where it belongs.
func TestEvents(t *testing.T) {
	seen := map[string]bool{}
	check := func(f *fixture, want string) {
		f.Helper()
		got := f.events.kinds()
		is(f, "events", got, want)
		for k := range strings.FieldsSeq(got) {
			seen[k] = true
		}
	}
	bubble(t, nil, func(f *fixture) {
		ctx := f.Context()
		run := func(key string, handle func(context.Context, msg) error) {
			process(f.g, handle).Process(ctx, delivery(key))
		}
		run("a", nothing)
		check(f, "verdict run settled")
		run("a", nothing)
		check(f, "verdict suppressed")
		run("b", func(context.Context, msg) error { return errBad })
		check(f, "verdict run settled")
		run("b", nothing)
		check(f, "verdict suppressed")
		run("c", func(ctx context.Context, _ msg) error { return secondrun.OnceFunc(ctx, "x", ok) })
		check(f, "verdict verdict effect-succeeded run settled")
		run("d", func(ctx context.Context, _ msg) error {
			_ = secondrun.OnceFunc(ctx, "x", ok)
			return secondrun.OnceFunc(ctx, "x", ok)
		})
		check(f, "verdict verdict effect-succeeded verdict effect-replayed run settled")
		run("e", func(ctx context.Context, _ msg) error {
			_, err := f.faults.Forget(ctx, f.record("e").ID, "test")
			return err
		})
		check(f, "verdict run settled recreated")
		_, _ = secondrun.Do(ctx, f.g, "f", func(context.Context) (chan int, error) { return nil, nil })
		check(f, "verdict run settled result-omitted")
		secondrun.Wrap(f.g, keyOf(""), nothing).Processor().Process(ctx, delivery("g"))
		check(f, "key-error")
		secondrun.Wrap(f.g, func(keyfn.Message) (string, error) { return "", keyfn.ErrSkip }, nothing).Processor().Process(ctx, delivery("g"))
		check(f, "skipped")
		a := process(f.g, nothing).Claim(ctx, []secondrun.Delivery{delivery("h")})[0]
		a.Lose(nil)
		a.Run(ctx)
		check(f, "verdict hold-lost run settled")
		run("i", func(ctx context.Context, _ msg) error {
			_, err := f.faults.ForceRelease(ctx, f.record("i").ID, "test")
			<-ctx.Done()
			time.Sleep(time.Millisecond) // the cancellation comes first, then its event
			return err
		})
		check(f, "verdict lease-lost run settled")
		f.faults.on(only("renew", fault{item: func(store.ID) error { return errCut }}, 2))
		run("j", func(context.Context, msg) error { time.Sleep(lease / 2); return nil })
		check(f, "verdict renew-failed run settled")
		f.faults.on(only("claim", fault{after: errCut}, f.faults.count("claim")+1))
		run("k", nothing)
		check(f, "verdict run settled")
		f.faults.on(only("settle", fault{before: store.ErrPermanent}))
		run("l", nothing)
		check(f, "verdict run unrecorded")
		f.faults.down(errCut)
		run("m", nothing)
		check(f, "store-down")
		f.faults.down(nil)
		isError(f, f.g.WaitHealthy(ctx), nil)
		check(f, "store-up")
	})
	bubble(t, &secondrun.Options{Mode: secondrun.Observe, FailOpen: true}, func(f *fixture) {
		p := process(f.g, nothing)
		p.Process(f.Context(), delivery("a"))
		check(f, "verdict run settled")
		p.Process(f.Context(), delivery("a"))
		check(f, "verdict would-suppress run")
		f.faults.down(store.ErrPermanent)
		p.Process(f.Context(), delivery("b"))
		check(f, "fail-open run")
	})
	for k := secondrun.EventKind(1); k.String() != "none"; k++ {
		if !seen[k.String()] && k != secondrun.EventStoreCall {
			t.Errorf("%v was never seen", k)
		}
	}
}

func TestEventsDescribe(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error { time.Sleep(time.Second); return errBad })
		p.Process(f.Context(), delivery("a"))
		e := f.events.of(secondrun.EventVerdict)[0]
		is(f, "scope", e.Scope, "test")
		is(f, "verdict", e.Verdict, store.Granted)
		is(f, "starts", e.Starts, 1)
		is(f, "hash", e.KeyHash(), store.ID{Scope: "test", Key: "a"}.KeyHash())
		e = f.events.of(secondrun.EventRun)[0]
		is(f, "duration", e.Duration, time.Second)
		isError(f, e.Err, errBad)
		e = f.events.of(secondrun.EventSettled)[0]
		is(f, "kept", e.Kept, store.Fail)
		is(f, "code", e.Code, store.OK)
		e = f.events.of(secondrun.EventStoreCall)[0]
		is(f, "op", e.Op, "claim")
		is(f, "batch", e.Batch, 1)
	})
}

// Secrets, one for each place that a sender or a handler controls.
const (
	canaryKey     = "canary-in-key"
	canaryPayload = "canary-in-payload"
	canaryResult  = "canary-in-result"
	canaryError   = "canary-in-error"
)

// spill looks for canaries in every string of v, wherever it is, but not below
// the fields that may hold them.
func spill(v reflect.Value, path string, found *[]string) {
	switch v.Kind() {
	case reflect.String:
		if strings.Contains(v.String(), "canary") {
			*found = append(*found, path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "ID" && name != "Err" {
				spill(v.Field(i), path+"."+name, found)
			}
		}
	}
}

func TestS08_S18_CanariesStayWhereTheyBelong(t *testing.T) {
	for _, how := range []string{"result", "huge result", "bad result", "terminal", "transient", "panic", "status", "joined", "body", "probe"} {
		t.Run(how, func(t *testing.T) {
			opt := &secondrun.Options{MaxResult: 100, MaxCrashes: 1, MaxFailures: 2}
			bubble(t, opt, func(f *fixture) {
				key := canaryKey + how
				if how == "probe" {
					dies(f, opt, key, "")
					dies(f, opt, key, "") // and is exhausted
				}
				h := secondrun.WrapResult(f.g, keyOf(key), func(ctx context.Context, _ msg) (any, error) {
					if _, err := secondrun.Once(ctx, "x", func(context.Context) (string, error) { return canaryResult, nil }); err != nil {
						return nil, err
					}
					return misbehave(how)
				})
				for range 3 {
					func() {
						defer func() { _ = recover() }()
						d := h.Processor().Process(f.Context(), secondrun.Delivery{Message: msg(canaryPayload), ID: "d"})
						var known *secondrun.FailedError
						if errors.As(d.Err, &known) && strings.Contains(d.Err.Error(), "canary") {
							f.Errorf("replayed failure: %v", d.Err)
						}
					}()
					time.Sleep(time.Hour)
				}
				if how == "huge result" || how == "bad result" {
					is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 1)
				}
				var found []string
				for _, e := range f.events.all {
					spill(reflect.ValueOf(e), e.Kind.String(), &found)
				}
				if len(found) > 0 {
					f.Errorf("canaries in %v", slices.Compact(found))
				}
				r := f.record(key)
				if r.State == store.StateFailed && strings.Contains(string(r.Payload), "canary") {
					f.Errorf("stored failure: %q", r.Payload)
				}
			})
		})
	}
	token := store.NewToken()
	is(t, "token", fmt.Sprintf("%v %+v %#v %s", token, token, token, token), "token token token token")
}

func misbehave(how string) (any, error) {
	text := canaryError + canaryPayload
	switch how {
	case "result":
		return canaryResult, nil
	case "huge result":
		return strings.Repeat(canaryResult, 100), nil
	case "bad result":
		return map[string]any{canaryResult: make(chan int)}, nil
	case "terminal":
		return canaryResult, secondrun.Terminal(fmt.Errorf("%s: %w", text, errBad))
	case "transient":
		return nil, secondrun.Transient(errors.New(text))
	case "panic":
		panic(text)
	case "status":
		return nil, fmt.Errorf("%s: %w", text, statusError(503))
	case "joined":
		return nil, errors.Join(errors.New(text), secondrun.Transient(errors.New(text)))
	}
	return nil, errors.New(text)
}

func TestRedactErrorDecidesWhatIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		redact func(error) string
		want   string
	}{
		"default":     {nil, "*errors.errorString"},
		"own":         {func(err error) string { return "why: " + err.Error() }, "why: no such customer"},
		"panics":      {func(error) string { panic("redact") }, "RedactError panicked"},
		"too long":    {func(error) string { return strings.Repeat("é", 4000) }, strings.Repeat("é", 2048)},
		"not text":    {func(error) string { return "a\xffb" }, "a\uFFFDb"},
		"cut in half": {func(error) string { return "a" + strings.Repeat("é", 4000) }, "a" + strings.Repeat("é", 2047)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &secondrun.Options{RedactError: test.redact}, func(f *fixture) {
				process(f.g, func(context.Context, msg) error { return secondrun.Terminal(errBad) }).Process(f.Context(), delivery("a"))
				d := process(f.g, nothing).Process(f.Context(), delivery("a"))
				var failed *secondrun.FailedError
				if !errors.As(d.Err, &failed) || failed.Text != test.want {
					f.Errorf("%v", d.Err)
				}
			})
		})
	}
}

func TestErrorsDescribeThemselves(t *testing.T) {
	for want, err := range map[string]error{
		"secondrun: key is busy for 1.5s":                                                 &secondrun.BusyError{After: 1500 * time.Millisecond},
		"secondrun: outcome unknown, parked: find out what happened, then reopen the key": &secondrun.FailedError{Failure: store.FailedParked, Text: "outcome unknown"},
		"secondrun: budget is used up: too many failures or crashes":                      &secondrun.FailedError{Failure: store.FailedExhausted},
		`secondrun: budget is used up, last failure: "*mail.Error"`:                       &secondrun.FailedError{Failure: store.FailedExhausted, Text: "*mail.Error"},
		`secondrun: key has failed (terminal): "x\n"`:                                     &secondrun.FailedError{Failure: store.FailedTerminal, Text: "x\n"},
		"secondrun: no key: no such customer":                                             &secondrun.KeyError{Err: errBad},
		"secondrun: succeeded before, result not available: 9 bytes":                      &secondrun.ResultError{Reason: "9 bytes"},
		"secondrun: succeeded before, result not decodable: connection cut":               &secondrun.ResultError{Err: errCut},
	} {
		is(t, "text", err.Error(), want)
	}
	isError(t, &secondrun.KeyError{Err: errBad}, errBad)
	isError(t, &secondrun.ResultError{Err: errBad}, errBad)
	is(t, "busy is failed", errors.Is(&secondrun.BusyError{}, secondrun.ErrFailed), false)
	is(t, "terminal is parked", errors.Is(&secondrun.FailedError{Failure: store.FailedTerminal}, secondrun.ErrParked), false)
}
