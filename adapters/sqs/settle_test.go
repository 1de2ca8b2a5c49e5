package sqsadapter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

const remove = "DeleteMessageBatch"

func succeeds(context.Context, string) error { return nil }

// B01, B02: a key that is held elsewhere makes the message wait for the rest of
// the lease. It is not deleted, and it is no failure.
func TestB01_BusyWaitsForTheLease(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.busyElsewhere("k", 4*time.Minute)
		r.send("k")
		r.start(succeeds)
		r.sleep(time.Minute)
		if len(r.started()) != 0 || r.srv.CallCount(remove) != 0 {
			r.t.Errorf("runs %v, deletes %d while the key was held", r.started(), r.srv.CallCount(remove))
		}
		if n := r.srv.Queue(r.url).Counts().Received; n > 4 {
			r.t.Errorf("%d receives in a minute of a message that waits for a lease of 30s", n)
		}
		r.sleep(5 * time.Minute)
		r.settled(0) // done elsewhere
	})
}

// U11, B06: whatever happens to deletes, each later delivery is deleted with its
// own handle, without a run, and never becomes a failure.
func TestU11_LostDeletes(t *testing.T) {
	faults := map[string]sqstest.Fault{
		"request lost": {DropRequest: true},
		"reply lost":   {DropReply: true},
		"refused":      {Code: "ReceiptHandleIsInvalid"},
		"entry fails":  {FailEntries: func(int, string) bool { return true }},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			everyPolicy(t, func(r *rig) {
				until := time.Now().Add(70 * time.Second)
				r.srv.Fault(remove, func(sqstest.Call) *sqstest.Fault {
					if time.Now().After(until) {
						return nil
					}
					return &fault
				})
				r.send("k")
				r.start(succeeds)
				time.Sleep(5 * time.Minute)
				r.settled(1)
				if r.deadCount() != 0 {
					r.t.Error("dead-lettered")
				}
			})
		})
	}
}

// C09: SQS may deliver again after a successful delete.
func TestC09_RedeliveredAfterDelete(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		r.start(succeeds)
		r.sleep(time.Second)
		r.must(r.srv.Redeliver(r.url, r.srv.Queue(r.url).Messages()[0].ID))
		r.sleep(time.Minute)
		r.settled(1)
	})
}

// H05: a transient failure comes back after the backoff; H06: a terminal one is
// copied to the dead-letter queue with its key and reason, and deleted.
func TestH05H06_Failures(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{QueueUrl: &r.url, MessageBody: aws.String(`{"id":"k"}`)})
		r.must(err)
		n := 0
		r.start(func(context.Context, string) error {
			if n++; n == 1 {
				return secondrun.Transient(errors.New("try again"))
			}
			return errors.New("secret detail")
		})
		r.sleep(time.Minute)
		r.settled(2)
		dead := r.srv.Queue(r.dead).Messages()
		if len(dead) != 1 {
			r.t.Fatalf("%d messages in the dead-letter queue", len(dead))
		}
		a := dead[0].Attributes
		if a[sqsadapter.AttributeKey] != "k" || a[sqsadapter.AttributeReason] != "failed" || a[sqsadapter.AttributeSource] != r.url {
			r.t.Errorf("attributes of the dead letter: %v", a)
		}
	})
}

// C12: when the copy cannot be made, the message is kept and the copy made
// later, without another run.
func TestC12_CopyFails(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		until := time.Now().Add(80 * time.Second)
		r.srv.Fault("SendMessage", func(sqstest.Call) *sqstest.Fault {
			if time.Now().After(until) {
				return nil
			}
			return &sqstest.Fault{Code: "InternalError"}
		})
		r.start(func(context.Context, string) error { return errors.New("no") })
		r.sleep(5 * time.Minute)
		r.settled(1)
		if r.deadCount() != 1 {
			r.t.Errorf("%d messages in the dead-letter queue, want 1", r.deadCount())
		}
	})
}

// K01: a message without a key is dead-lettered, not deleted and not run.
func TestK01_NoKey(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		for _, body := range []string{`{}`, `not JSON`, `{"id":""}`} {
			_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{QueueUrl: &r.url, MessageBody: &body})
			r.must(err)
		}
		r.start(succeeds)
		r.sleep(time.Minute)
		r.settled(0)
		if r.deadCount() != 3 {
			r.t.Errorf("%d of 3 messages in the dead-letter queue", r.deadCount())
		}
		for _, m := range r.srv.Queue(r.dead).Messages() {
			if m.Attributes[sqsadapter.AttributeReason] != "no key" {
				r.t.Errorf("reason = %q", m.Attributes[sqsadapter.AttributeReason])
			}
		}
	})
}

// With Redrive the message comes back, without a run, until the policy moves
// it.
func TestDeadLetter_Redrive(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.DeadLetter = sqsadapter.DeadLetter{}
		r.send("k")
		r.start(func(context.Context, string) error { return errors.New("no") })
		r.sleep(10 * time.Minute)
		r.settled(1)
		if r.deadCount() != 1 {
			r.t.Errorf("%d messages in the dead-letter queue, want 1", r.deadCount())
		}
	})
}

func TestDeadLetter_Discard(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.DeadLetter = sqsadapter.Discard
		r.send("k")
		r.start(func(context.Context, string) error { return errors.New("no") })
		r.sleep(time.Minute)
		r.settled(1)
		if rec, ok := r.record("k"); !ok || rec.Failure != store.FailedTerminal {
			r.t.Errorf("record = %+v, %v", rec, ok)
		}
	})
}

// B07, B08: a redrive is a new message. A key that succeeded is acknowledged, a
// key that failed runs again with a new budget.
func TestB07B08_Redrive(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		broken := true
		stop := r.start(func(_ context.Context, key string) error {
			if key == "bad" && broken {
				return errors.New("no such customer")
			}
			return nil
		})
		r.send("good", "bad")
		r.sleep(time.Minute)
		stop()
		broken = false
		_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{QueueUrl: &r.dead, MessageBody: aws.String(`{"id":"good"}`)})
		r.must(err)
		_, err = r.sdk.StartMessageMoveTask(r.t.Context(), &sqs.StartMessageMoveTaskInput{
			SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:dead"), DestinationArn: aws.String("arn:aws:sqs:us-east-1:000000000000:work"),
		})
		r.must(err)
		defer r.start(func(context.Context, string) error { return nil })()
		r.sleep(time.Minute)
		r.settled(3) // good, bad, bad
		if rec, _ := r.record("bad"); rec.State != store.StateSucceeded {
			r.t.Errorf("the replayed key is %v", rec.State)
		}
	})
}

// A consumer must know what becomes of its dead letters before it starts.
func TestStart_Refusals(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		plain := r.create("plain", nil)
		run := func(url string, opt *sqsadapter.Options) error {
			c, err := sqsadapter.NewConsumer(r.client, url, r.handler(r.guard, succeeds), opt)
			r.must(err)
			return c.Run(r.t.Context())
		}
		if err := run(plain, nil); !errors.Is(err, sqsadapter.ErrNoDeadLetter) {
			r.t.Errorf("no decision: %v", err)
		}
		if err := run(plain, &sqsadapter.Options{DeadLetter: sqsadapter.Redrive}); !errors.Is(err, sqsadapter.ErrNoDeadLetter) {
			r.t.Errorf("redrive without a policy: %v", err)
		} else if text := err.Error(); !strings.Contains(text, "add one, or use To(url) or Discard") || strings.Contains(text, "Redrive") {
			r.t.Errorf("redrive without a policy: %v", err)
		}
		if err := run(plain+"-missing", nil); err == nil {
			r.t.Error("a missing queue is no error")
		}
		for _, opt := range []sqsadapter.Options{
			{Visibility: time.Second},
			{Visibility: 13 * time.Hour},
			{Visibility: 3500 * time.Millisecond},
			{Wait: time.Minute},
			{Concurrency: -1},
			{Grace: -1},
		} {
			if _, err := sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, succeeds), &opt); err == nil {
				r.t.Errorf("options %+v are no error", opt)
			}
		}
	})
}

// H01: a panic is settled first; with OnPanic the consumer goes on.
func TestH01_Panic(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		panics := 0
		r.opt.OnPanic = func(*sqsadapter.Message, any, []byte) { panics++ }
		r.send("k")
		n := 0
		r.start(func(context.Context, string) error {
			if n++; n == 1 {
				panic("boom")
			}
			return nil
		})
		r.sleep(time.Minute)
		r.settled(2)
		if rec, _ := r.record("k"); panics != 1 || rec.Failures != 1 || rec.Crashes != 0 {
			r.t.Errorf("%d panics reported, record %+v", panics, rec)
		}
	})
}

// U08: many copies become due at once; one runs, the others wait and are then
// answered.
func TestU08_ManyCopies(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.Concurrency = 8
		r.start(sleeps(34 * time.Second))
		for range 20 {
			r.send("k")
		}
		r.sleep(20 * time.Second)
		for range 20 {
			r.send("k")
		}
		r.sleep(10 * time.Minute)
		r.settled(1)
		if r.deadCount() != 0 {
			r.t.Errorf("%d copies were dead-lettered", r.deadCount())
		}
	})
}
