package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
)

const extend = "ChangeMessageVisibilityBatch"

// ending is when and why a handler's context ended.
type ending struct {
	after time.Duration
	cause error
}

// A handler far longer than the visibility timeout runs once: the message is
// held from the receive on, as are nine others that wait beside it.
func TestHold_LongHandlersRunOnce(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
		r.start(sleeps(25 * time.Minute))
		r.start(sleeps(25 * time.Minute)) // has free slots all the time
		r.sleep(time.Hour)
		r.settled(10)
		if n := r.srv.Queue(r.url).Counts().Received; n != 10 {
			r.t.Errorf("%d deliveries of 10 messages", n)
		}
	})
}

// Ten held messages are one batch call a beat, about every third of the
// timeout.
func TestHold_BeatsAreBatched(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
		r.start(sleeps(10 * time.Minute))
		r.sleep(11 * time.Minute)
		r.settled(10)
		if n := r.srv.CallCount(extend); n < 60 || n > 80 {
			r.t.Errorf("%d extensions of ten messages in 10 minutes, want one every 9 to 10 s", n)
		}
	})
}

// B03: an extension that is refused for good cancels the handler; the dead
// handle is not used, and the outcome is recorded.
func TestB03_HoldLostForGood(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(extend, sqstest.Times(1, sqstest.Fault{
			Code: "ReceiptHandleIsInvalid", FailEntries: func(int, string) bool { return true },
		}))
		r.send("k")
		var cause error
		r.start(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil // finished all the same
		})
		r.sleep(20 * time.Second)
		if !errors.Is(cause, secondrun.ErrHoldLost) {
			r.t.Errorf("cause = %v, want ErrHoldLost", cause)
		}
		if n := r.srv.CallCount("DeleteMessageBatch"); n != 0 {
			r.t.Errorf("the dead handle was used for %d deletes", n)
		}
		r.sleep(time.Minute) // the next delivery is answered from the record
		r.settled(1)
	})
}

func TestB03_GoOnWithoutHold(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.GoOnWithoutHold = true
		r.srv.Fault(extend, sqstest.Times(1, sqstest.Fault{
			Code: "MessageNotInflight", FailEntries: func(int, string) bool { return true },
		}))
		r.send("k")
		r.start(sleeps(2 * time.Minute))
		r.sleep(10 * time.Minute)
		r.settled(1)
	})
}

// B03: transient errors of extensions change nothing.
func TestB03_TransientExtensionErrors(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		n := 0
		r.srv.Fault(extend, func(sqstest.Call) *sqstest.Fault {
			if n++; n%2 == 0 {
				return nil
			}
			return &sqstest.Fault{Code: "RequestThrottled", FailEntries: func(int, string) bool { return true }}
		})
		r.send("k")
		r.start(sleeps(10 * time.Minute))
		r.sleep(11 * time.Minute)
		r.settled(1)
	})
}

// B03, Z16: when extensions hang, the handler is cancelled before the
// visibility timeout has passed.
func TestB03_HungExtensions(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(extend, sqstest.Times(1000, sqstest.Fault{Delay: time.Hour}))
		r.send("k")
		start := time.Now()
		ends := make(chan ending, 10)
		r.start(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ends <- ending{time.Since(start), context.Cause(ctx)}
			return ctx.Err()
		})
		end := <-ends
		after, cause := end.after, end.cause
		if !errors.Is(cause, secondrun.ErrHoldLost) || after >= 30*time.Second || after < 20*time.Second {
			r.t.Errorf("cancelled after %v with %v, want ErrHoldLost within the 30s", after, cause)
		}
	})
}

// The default MaxRuntime lies below the 12 hours.
func TestB04_MaxRuntimeComesFirst(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		r.send("k")
		var cause error
		r.start(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		r.sleep(12 * time.Hour)
		if !errors.Is(cause, secondrun.ErrMaxRuntime) || errors.Is(cause, sqsadapter.ErrVisibilityLimit) {
			r.t.Errorf("cause = %v, want ErrMaxRuntime", cause)
		}
	})
}

// No message is received that has no free handler: SQS counts receives.
func TestReceive_OnlyForFreeSlots(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.Concurrency = 3
		for i := range 20 {
			r.send(fmt.Sprint(i))
		}
		r.start(sleeps(time.Second))
		for range 9 {
			r.sleep(700 * time.Millisecond)
			if n := r.srv.Queue(r.url).Counts().InFlight; n > 3 {
				r.t.Fatalf("%d messages in flight, 3 slots", n)
			}
		}
		r.sleep(time.Minute)
		r.settled(20)
		if n := r.srv.Queue(r.url).Counts().Received; n != 20 {
			r.t.Errorf("%d receives of 20 messages", n)
		}
	})
}
