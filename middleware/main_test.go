package secondrun_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// msg is a message whose body is its key.
type msg string

func (m msg) Body() []byte         { return []byte(m) }
func (msg) Header(string) []string { return nil }

func body(m keyfn.Message) (string, error) { return string(m.Body()), nil }

// events records what a guard reports.
type events struct {
	mu  sync.Mutex
	all []secondrun.Event
}

func (e *events) add(_ context.Context, ev secondrun.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) of(k secondrun.EventKind) []secondrun.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var of []secondrun.Event
	for _, ev := range e.all {
		if ev.Kind == k {
			of = append(of, ev)
		}
	}
	return of
}

func (e *events) count(k secondrun.EventKind) int { return len(e.of(k)) }

// fixture is a guard on a store with faults, in a bubble.
type fixture struct {
	*testing.T
	faults *faultStore
	events events
	g      *secondrun.Guard
}

// bubble runs a test in a bubble of its own.
func bubble(t *testing.T, opt *secondrun.Options, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, faults: newFaults()}
		f.g = f.guard(opt)
		test(f)
		time.Sleep(10 * time.Second) // for calls in flight
	})
}

// guard returns another guard on the same store, as another process has one.
func (f *fixture) guard(opt *secondrun.Options) *secondrun.Guard {
	f.Helper()
	var o secondrun.Options
	if opt != nil {
		o = *opt
	}
	o.OnEvent = f.events.add
	g, err := secondrun.New("test", f.faults, &o)
	if err != nil {
		f.Fatal(err)
	}
	return g
}

// serial makes the guard a new one, on a store that takes one call at a time.
func (f *fixture) serial(opt *secondrun.Options) {
	f.Helper()
	f.faults.limits.Parallel = 1
	f.g = f.guard(opt)
}

// process returns a processor of the guard around handle.
func process(g *secondrun.Guard, handle func(context.Context, msg) error) *secondrun.Processor {
	return secondrun.Wrap(g, body, handle).Processor()
}

func (f *fixture) record(key string) store.Record {
	f.Helper()
	return f.effect(key, "")
}

func (f *fixture) effect(key, effect string) store.Record {
	f.Helper()
	r, _, err := f.faults.Get(f.Context(), store.ID{Scope: "test", Key: key, Effect: effect})
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// is fails the test unless got is want.
func is[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func isError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want %v", got, want)
	}
}

// decided fails the test unless the decision is the one.
func decided(t testing.TB, d secondrun.Decision, action secondrun.Action, ran bool, err error) {
	t.Helper()
	if d.Action != action || d.Ran != ran || !errors.Is(d.Err, err) {
		t.Errorf("decision is %v, ran %v, error %v; want %v, %v, %v", d.Action, d.Ran, d.Err, action, ran, err)
	}
}

func delivery(key string) secondrun.Delivery {
	return secondrun.Delivery{Message: msg(key), ID: "d-" + key}
}

// start claims and runs a delivery in a goroutine.
func start(ctx context.Context, p *secondrun.Processor, d secondrun.Delivery) <-chan secondrun.Decision {
	done := make(chan secondrun.Decision, 1)
	go func() { done <- p.Process(ctx, d) }()
	return done
}

// untilDone is a handler that works until its context ends.
func untilDone(ctx context.Context, _ msg) error {
	<-ctx.Done()
	return ctx.Err()
}

const lease = 30 * time.Second

type msgOf = keyfn.Message

func keyOf(key string) keyfn.Func {
	return func(keyfn.Message) (string, error) { return key, nil }
}

// fieldsOf derives text from the decoded body.
func fieldsOf[T any](text func(T) string) keyfn.Func {
	return func(m keyfn.Message) (string, error) {
		var v T
		err := json.Unmarshal(m.Body(), &v)
		return text(v), err
	}
}
