package sqslambda_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqslambda"
	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func (r *rig) claimed(key string) bool {
	_, ok, err := r.st.Get(r.t.Context(), store.ID{Scope: "purchases", Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	return ok
}

// What the function has not come to is not claimed: a message that kills the
// function five times does not use up the crashes of those behind it.
func TestClaimedWhenTheirTurnComes(t *testing.T) {
	for concurrency, want := range map[int][]string{1: {"p-1"}, 2: {"p-1", "p-2"}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.slow = 10 * time.Second
			done := make(chan struct{})
			go func() {
				defer close(done)
				failures(t, r.function(&sqslambda.Options{Concurrency: concurrency}), t.Context(), event(standardARN, "m1:p-1", "m2:p-2", "m3:p-3"))
			}()
			time.Sleep(time.Second)
			var got []string
			for _, key := range []string{"p-1", "p-2", "p-3"} {
				if r.claimed(key) {
					got = append(got, key)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("concurrency %d: %v are claimed, want %v", concurrency, got, want)
			}
			<-done
			r.wants(map[string]int{"p-1": 1, "p-2": 1, "p-3": 1})
		})
	}
}

// A key that is held elsewhere is tried again when the rest is done, and then
// reported; on a FIFO queue with all behind it.
func TestBusyKeys(t *testing.T) {
	for arn, want := range map[string][]string{standardARN: {"m1"}, fifoARN: {"m1", "m2"}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			g, err := secondrun.New("purchases", r.st, nil)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere := make(chan error)
			go func() {
				elsewhere <- secondrun.DoFunc(t.Context(), g, "p-1", func(context.Context) error { time.Sleep(20 * time.Second); return nil })
			}()
			synctest.Wait()
			r.slow = time.Second
			if got := failures(t, r.function(nil), t.Context(), event(arn, "m1:p-1:g", "m2:p-2:g", "m3:p-3:h")); !slices.Equal(got, want) {
				t.Errorf("failures %v, want %v", got, want)
			}
			r.slow = 30 * time.Second // long enough for it to be done
			if got := failures(t, r.function(nil), t.Context(), event(arn, "m1:p-1:g", "m4:p-4:h")); len(got) != 0 {
				t.Errorf("failures %v, although the key was done when the rest was", got)
			}
			if err := <-elsewhere; err != nil {
				t.Error(err)
			}
		})
	}
}

// A panic, or a runtime.Goexit, of one handler is a failure of its message
// alone, whatever the concurrency.
func TestHandlerExits(t *testing.T) {
	for concurrency := 1; concurrency <= 3; concurrency++ {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New(nil)
			g, err := secondrun.New("purchases", st, nil)
			if err != nil {
				t.Fatal(err)
			}
			wrapped := secondrun.Wrap(g, keyfn.JSON("detail.purchaseId"), func(_ context.Context, m *sqsadapter.Message) error {
				switch id := *m.Raw.MessageId; id {
				case "m1", "m2", "m3":
					runtime.Goexit()
				case "m5":
					panic(id)
				}
				return nil
			})
			var panics []string
			h, err := sqslambda.New(wrapped, &sqslambda.Options{
				Concurrency: concurrency,
				OnPanic:     func(_ *sqsadapter.Message, v any, _ []byte) { panics = append(panics, v.(string)) },
			})
			if err != nil {
				t.Fatal(err)
			}
			got := failures(t, h, t.Context(), event(standardARN, "m1:p-1", "m2:p-2", "m3:p-3", "m4:p-4", "m5:p-5", "m6:p-6"))
			if !slices.Equal(got, []string{"m1", "m2", "m3", "m5"}) || !slices.Equal(panics, []string{"m5"}) {
				t.Errorf("concurrency %d: failures %v, panics %v", concurrency, got, panics)
			}
		})
	}
}

// U01, and the envelopes of others: a view serves key and handler, a message in
// which there is nothing is done with, one that cannot be opened is no failure
// of its neighbours.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := secondrun.New("uploads", memstore.New(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		var bodies []string
		wrapped := secondrun.Wrap(g, awskey.S3(), func(_ context.Context, m *sqsadapter.Message) error {
			bodies = append(bodies, string(m.Body()))
			return nil
		})
		var dead []string
		h, err := sqslambda.New(wrapped, &sqslambda.Options{
			View: func(m keyfn.Message) (keyfn.Message, error) {
				if strings.HasPrefix(string(m.Body()), "busy") {
					return nil, secondrun.Transient(errors.New("503"))
				}
				return awskey.SNS(m)
			},
			DeadLetter: func(_ context.Context, m *sqsadapter.Message, d secondrun.Decision) error {
				dead = append(dead, *m.Raw.MessageId)
				if !errors.Is(d.Err, keyfn.ErrBatch) {
					t.Errorf("dead letter: %v", d.Err)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		const record = `{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"inbox"},"object":{"key":"a.jpg","eTag":"e1","sequencer":"01"}}}`
		one := `{"Records":[` + record + `]}`
		sns := func(message string) string {
			return fmt.Sprintf(`{"Type":"Notification","MessageId":"x","TopicArn":"arn:aws:sns:eu-west-1:1:t","Message":%q}`, message)
		}
		var e events.SQSEvent
		for i, body := range []string{one, sns(one), sns(`{"Event":"s3:TestEvent"}`), `{"Records":[` + record + `,` + record + `]}`, "busy"} {
			e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprint("m", i), Body: body, EventSourceARN: standardARN})
		}
		if got := failures(t, h, t.Context(), e); !slices.Equal(got, []string{"m4"}) {
			t.Errorf("failures %v, want m4", got)
		}
		if !slices.Equal(bodies, []string{one}) || !slices.Equal(dead, []string{"m3"}) {
			t.Errorf("the handler saw %q, dead letters %v", bodies, dead)
		}
	})
}

// A deadline that is nearer than the reserve starts nothing and claims nothing.
func TestNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got := failures(t, r.function(nil), ctx, event(standardARN, "m1:p-1", "m2:p-2")); !slices.Equal(got, []string{"m1", "m2"}) {
			t.Errorf("failures %v", got)
		}
		if len(r.runs) != 0 || r.claimed("p-1") {
			t.Error("something was started")
		}
	})
}

// Every id of the answer came with the event, whatever goes wrong, and none
// twice.
func TestNoUnknownIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := event(fifoARN)
		for i := range 30 {
			e.Records = append(e.Records, event(fifoARN, fmt.Sprintf("m%d:p-%d:g%d", i, i%11, i%4)).Records...)
			if i%3 == 0 {
				r.fail[fmt.Sprint("p-", i)] = secondrun.Transient(errors.New("again"))
			}
		}
		for _, concurrency := range []int{1, 3, 30} {
			got := failures(t, r.function(&sqslambda.Options{Concurrency: concurrency}), t.Context(), e)
			seen := map[string]bool{}
			for _, id := range got {
				known := slices.ContainsFunc(e.Records, func(m events.SQSMessage) bool { return m.MessageId == id })
				if !known || seen[id] {
					t.Errorf("answer %v", got)
				}
				seen[id] = true
			}
		}
	})
}
