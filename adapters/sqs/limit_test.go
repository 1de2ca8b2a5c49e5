package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/testenv"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// B04, rule 8, U07 (iii): a message is held for twelve hours, whatever the
// visibility timeout; SQS is never asked for more than it allows, and would
// refuse it. The handler is cancelled before, with a cause of its own, and what
// it returns is settled with a handle that still works.
func TestB04_TwelveHoursOfHeartbeats(t *testing.T) {
	shortest := time.Duration(testenv.Size(30, 3)) * time.Second // 3 s are 43,000 extensions
	for _, visibility := range []time.Duration{shortest, time.Hour, 7 * time.Hour, 12 * time.Hour} {
		for name, stale := range map[string]sqstest.Stale{"noop": sqstest.StaleNoop, "apply": sqstest.StaleApply, "error": sqstest.StaleError} {
			if visibility == shortest && stale != sqstest.StaleError && !testenv.Soak() {
				continue // many extensions, and the longer ones run under each
			}
			t.Run(fmt.Sprint(visibility, " ", name), func(t *testing.T) {
				inBubble(t, &sqstest.Options{Stale: stale}, "", &secondrun.Options{MaxRuntime: 48 * time.Hour}, func(r *rig) {
					r.opt.Visibility = visibility
					r.send("k")
					start := time.Now()
					ends := make(chan ending, 1)
					r.start(func(ctx context.Context, _ string) error {
						<-ctx.Done()
						ends <- ending{time.Since(start), context.Cause(ctx)}
						time.Sleep(10 * time.Second) // takes its leave
						return nil
					})
					end := <-ends
					if !errors.Is(end.cause, sqsadapter.ErrVisibilityLimit) || end.after != 12*time.Hour-time.Minute {
						r.t.Errorf("cancelled after %v with %v", end.after, end.cause)
					}
					handle := r.srv.Queue(r.url).Messages()[0].ReceiptHandle
					_, err := r.sdk.ChangeMessageVisibility(r.t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &r.url, ReceiptHandle: &handle, VisibilityTimeout: 61})
					if err == nil {
						r.t.Error("SQS would have let it be held for longer than twelve hours")
					}
					r.sleep(time.Minute)
					for _, c := range r.srv.Calls(extend) {
						if c.Code != "" {
							r.t.Fatalf("an extension at %v was refused: %s", c.At.Sub(start), c.Code)
						}
					}
					r.settled(1)
					if n := r.srv.Queue(r.url).Counts().Received; n != 1 {
						r.t.Errorf("%d deliveries", n)
					}
				})
			})
		}
	}
}

// A refusal because of the twelve hours, should our clock and that of SQS
// differ, is told apart from a lost hold: the handle is used to the end.
func TestB04_RefusedByTheLimit(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(extend, func(sqstest.Call) *sqstest.Fault {
			return &sqstest.Fault{
				Code:    "InvalidParameterValue",
				Message: "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]", FailEntries: func(int, string) bool { return true },
			}
		})
		r.send("k")
		var cause error
		r.start(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		r.sleep(time.Minute)
		if !errors.Is(cause, sqsadapter.ErrVisibilityLimit) {
			r.t.Errorf("cause %v", cause)
		}
		r.settled(1)
		if n := r.srv.CallCount(remove); n != 1 {
			r.t.Errorf("%d deletes", n)
		}
	})
}

// strict refuses a whole batch for one entry that it does not like, as no SQS
// does, but servers that are only like it.
type strict struct {
	*sqs.Client
	toxic atomic.Value // string
}

var errToxic = &types.ReceiptHandleIsInvalid{Message: aws.String("toxic")}

func (s *strict) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	for _, e := range in.Entries {
		if *e.ReceiptHandle == s.toxic.Load() {
			return nil, errToxic
		}
	}
	return s.Client.ChangeMessageVisibilityBatch(ctx, in, o...)
}

// One entry that gets a whole batch refused costs its neighbours neither their
// holds nor their settlement.
func TestBatch_RefusedAsAWhole(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		inBubble(t, nil, suffix, nil, func(r *rig) {
			s := &strict{Client: r.sdk}
			r.client = s
			lost := 0
			for i := range 10 {
				if suffix == "" {
					r.send(fmt.Sprint(i))
				} else {
					r.sendFIFO(fmt.Sprint("g", i), fmt.Sprint(i))
				}
			}
			r.start(func(ctx context.Context, key string) error {
				err := sleeps(time.Minute)(ctx, key)
				if errors.Is(err, secondrun.ErrHoldLost) {
					r.mu.Lock()
					lost++
					r.mu.Unlock()
				}
				return err
			})
			r.sleep(time.Second)
			s.toxic.Store(r.srv.Queue(r.url).Messages()[4].ReceiptHandle)
			r.sleep(10 * time.Minute)
			r.settled(11)
			if lost != 1 {
				r.t.Errorf("%d holds were lost, want 1", lost)
			}
		})
	}
}

// U07 (i), (ii): ten messages of a batch, each by itself: an extension that fails
// once changes nothing; one that fails for good cancels that handler alone.
func TestU07_OneOfTenIsLost(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		failed := false
		r.srv.Fault(extend, func(c sqstest.Call) *sqstest.Fault {
			if failed {
				return nil
			}
			failed = true
			return &sqstest.Fault{Code: "ReceiptHandleIsInvalid", FailEntries: func(i int, _ string) bool { return i == 3 }}
		})
		for i := range 10 {
			r.send(fmt.Sprint(i))
		}
		cancelled := 0
		r.start(func(ctx context.Context, key string) error {
			err := sleeps(25*time.Second)(ctx, key)
			if err != nil {
				r.mu.Lock()
				cancelled++
				r.mu.Unlock()
			}
			return err
		})
		r.sleep(5 * time.Minute)
		r.settled(11)
		if cancelled != 1 {
			r.t.Errorf("%d handlers were cancelled, want 1", cancelled)
		}
	})
}

// Rule 5, report 12: a refusal that comes when the handler has returned is not a
// lost hold; the message is deleted.
func TestSettle_RefusalAfterReturn(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(extend, sqstest.Times(1, sqstest.Fault{
			Delay: 4 * time.Second, Code: "InvalidParameterValue", FailEntries: func(int, string) bool { return true },
		}))
		r.send("k")
		r.start(sleeps(11 * time.Second)) // returns during the first beat
		r.sleep(20 * time.Second)
		r.settled(1)
		if r.count(sqsadapter.EventDeleted) != 1 || r.count(sqsadapter.EventLeft) != 0 {
			r.t.Errorf("%d deleted, %d left", r.count(sqsadapter.EventDeleted), r.count(sqsadapter.EventLeft))
		}
	})
}
