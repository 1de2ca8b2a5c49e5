package sqslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqslambda"
	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	standardARN = "arn:aws:sqs:eu-west-1:111122223333:purchases"
	fifoARN     = standardARN + ".fifo"
)

// rig is a function, and the ledger of what its handler did.
type rig struct {
	t       *testing.T
	st      *memstore.Store
	mu      sync.Mutex
	effects map[string]int
	runs    []string
	fail    map[string]error
	slow    time.Duration
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, st: memstore.New(nil), effects: map[string]int{}, fail: map[string]error{}}
}

func (r *rig) function(opt *sqslambda.Options) *sqslambda.Handler {
	r.t.Helper()
	g, err := secondrun.New("purchases", r.st, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := sqslambda.New(secondrun.Wrap(g, keyfn.JSON("detail.purchaseId"), r.handle), opt)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) handle(ctx context.Context, m *sqsadapter.Message) error {
	key, err := keyfn.JSON("detail.purchaseId")(m)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.runs = append(r.runs, key)
	err = r.fail[key]
	r.mu.Unlock()
	select {
	case <-time.After(r.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil {
		r.mu.Lock()
		r.effects[key]++
		r.mu.Unlock()
	}
	return err
}

// event is a batch of EventBridge events; each record is "message id:purchase
// id" or "message id:purchase id:group".
func event(arn string, records ...string) events.SQSEvent {
	var e events.SQSEvent
	for _, text := range records {
		var id, key, group string
		parts := append(strings.Split(text, ":"), "")
		id, key, group = parts[0], parts[1], parts[2]
		body, _ := json.Marshal(map[string]any{"id": "event-" + id, "detail": map[string]any{"purchaseId": key}})
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: id, Body: string(body), EventSourceARN: arn, Attributes: map[string]string{"MessageGroupId": group},
		})
	}
	return e
}

func failures(t *testing.T, h *sqslambda.Handler, ctx context.Context, e events.SQSEvent) []string {
	t.Helper()
	res, err := h.Handle(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, f := range res.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

func (r *rig) wants(effects map[string]int) {
	r.t.Helper()
	if fmt.Sprint(r.effects) != fmt.Sprint(effects) {
		r.t.Errorf("effects %v, want %v", r.effects, effects)
	}
}

// U23: one bad message does not bring its neighbours back.
func TestU23_PartialBatch(t *testing.T) {
	batch := event(standardARN, "m1:p-1", "m2:p-2", "m3:p-3", "m4:p-1", "m5:p-4")
	for _, concurrency := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("a and c, concurrency %d", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.slow = time.Second
				r.fail["p-2"] = secondrun.Transient(errors.New("again"))
				r.fail["p-4"] = errors.New("no such purchase")
				var dead []string
				h := r.function(&sqslambda.Options{Concurrency: concurrency, DeadLetter: func(_ context.Context, m *sqsadapter.Message, d secondrun.Decision) error {
					dead = append(dead, *m.Raw.MessageId)
					return nil
				}})
				if got := failures(t, h, t.Context(), batch); !slices.Equal(got, []string{"m2"}) {
					t.Errorf("failures %v, want m2 alone", got)
				}
				r.wants(map[string]int{"p-1": 1, "p-3": 1})
				if !slices.Equal(dead, []string{"m5"}) {
					t.Errorf("dead letters %v", dead)
				}
			})
		})
	}
	t.Run("b, the whole batch comes back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.fail["p-2"] = secondrun.RetryAfter(errors.New("again"), time.Second)
			h := r.function(nil)
			failures(t, h, t.Context(), batch)
			delete(r.fail, "p-2")
			time.Sleep(time.Minute)
			before := len(r.runs)
			if got := failures(t, h, t.Context(), batch); len(got) != 0 {
				t.Errorf("failures %v", got)
			}
			if again := r.runs[before:]; !slices.Equal(again, []string{"p-2"}) {
				t.Errorf("the second time %v ran, want p-2 alone", again)
			}
		})
	})
}

// U23 (d): what was done before the deadline is done; the rest is reported, and
// no lease outlives the invocation.
func TestU23_Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.slow = 3 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		h := r.function(nil)
		got := failures(t, h, ctx, event(standardARN, "m1:p-1", "m2:p-2", "m3:p-3", "m4:p-4", "m5:p-5"))
		if !slices.Equal(got, []string{"m4", "m5"}) {
			t.Errorf("failures %v, want m4 and m5", got)
		}
		r.wants(map[string]int{"p-1": 1, "p-2": 1, "p-3": 1})
		if got := failures(t, h, t.Context(), event(standardARN, "m4:p-4", "m5:p-5")); len(got) != 0 {
			t.Errorf("the next invocation had to wait: %v", got)
		}
	})
}

// The lease of a claim ends with the invocation: a function that was killed
// there does not hold its keys any longer.
func TestLeaseEndsWithInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.slow = time.Hour
		deadline := time.Now().Add(100 * time.Second)
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			failures(t, r.function(nil), ctx, event(standardARN, "m1:p-1"))
		}()
		for range 98 {
			time.Sleep(time.Second)
			rec, ok, err := r.st.Get(t.Context(), store.ID{Scope: "purchases", Key: "p-1"})
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if rec.LeaseUntil.After(deadline) {
				t.Fatalf("the lease ends %v after the invocation", rec.LeaseUntil.Sub(deadline))
			}
		}
		<-done
	})
}

// FIFO: the failed message and all behind it in its group are reported, other
// groups are not.
func TestFIFO_FailedAndUnprocessed(t *testing.T) {
	for _, concurrency := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.slow = time.Second
			r.fail["a2"] = secondrun.Transient(errors.New("again"))
			h := r.function(&sqslambda.Options{Concurrency: concurrency})
			got := failures(t, h, t.Context(), event(fifoARN, "1:a1:a", "2:b1:b", "3:a2:a", "4:a3:a", "5:b2:b", "6:a4:a"))
			if !slices.Equal(got, []string{"3", "4", "6"}) {
				t.Errorf("concurrency %d: failures %v, want 3, 4 and 6", concurrency, got)
			}
			if slices.Contains(r.runs, "a3") {
				t.Error("a message ran before the one it follows")
			}
			delete(r.fail, "a2")
			time.Sleep(time.Minute)
			if got := failures(t, h, t.Context(), event(fifoARN, "3:a2:a", "4:a3:a", "6:a4:a")); len(got) != 0 {
				t.Errorf("failures %v", got)
			}
		})
	}
}

// Without DeadLetter a terminal failure is left to the redrive policy: reported
// each time, run once.
func TestTerminal_Redrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fail["p-1"] = errors.New("no")
		h := r.function(nil)
		for range 3 {
			if got := failures(t, h, t.Context(), event(standardARN, "m1:p-1")); !slices.Equal(got, []string{"m1"}) {
				t.Errorf("failures %v", got)
			}
		}
		if len(r.runs) != 1 {
			t.Errorf("%d runs", len(r.runs))
		}
	})
}

// The answers have the shape that Lambda reads: an empty list is success.
func TestResponseShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.function(nil)
		res, err := h.Handle(t.Context(), event(standardARN, "m1:p-1"))
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := json.Marshal(res); string(text) != `{"batchItemFailures":[]}` {
			t.Errorf("no failures: %s", text)
		}
		r.fail["p-2"] = secondrun.Transient(errors.New("again"))
		res, _ = h.Handle(t.Context(), event(standardARN, "m2:p-2"))
		if text, _ := json.Marshal(res); string(text) != `{"batchItemFailures":[{"itemIdentifier":"m2"}]}` {
			t.Errorf("one failure: %s", text)
		}
	})
}

func TestNew_Refusals(t *testing.T) {
	g, err := secondrun.New("s", memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := secondrun.Wrap(g, keyfn.JSON("id"), func(context.Context, keyfn.Message) error { return nil })
	for _, opt := range []sqslambda.Options{{Concurrency: -1}, {Reserve: -1}} {
		if _, err := sqslambda.New(h, &opt); err == nil {
			t.Errorf("%+v is no error", opt)
		}
	}
	if _, err := sqslambda.New(nil, nil); err == nil {
		t.Error("nil is no error")
	}
}
