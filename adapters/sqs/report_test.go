package sqsadapter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// asking notes what receives ask for.
type asking struct {
	*sqs.Client
	in *sqs.ReceiveMessageInput
}

func (a *asking) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	a.in = in
	return a.Client.ReceiveMessage(ctx, in, o...)
}

// Rule 1: every receive asks for its visibility timeout, and for all attributes,
// whatever the queue's settings.
func TestReceive_AsksForEverything(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		a := &asking{Client: r.sdk}
		r.client = a
		r.opt.Visibility = 45 * time.Second
		r.start(succeeds)
		r.sleep(time.Second)
		if in := a.in; in.VisibilityTimeout != 45 || in.WaitTimeSeconds != 20 || in.MaxNumberOfMessages != 10 ||
			in.MessageAttributeNames[0] != "All" || in.MessageSystemAttributeNames[0] != "All" || in.ReceiveRequestAttemptId != nil {
			r.t.Errorf("%+v", in)
		}
	})
}

// Rule 7, reports 3 and 21: two deliveries of one message at a time, in one
// process. Each is settled with a handle of its own, and the message is gone in
// the end, although the older handle is outdated. Where SQS says that it is, the
// first run is cancelled, unless it may go on under its lease.
func TestTwoDeliveriesOfOneMessage(t *testing.T) {
	for _, goOn := range []bool{false, true} {
		everyPolicy(t, func(r *rig) {
			r.opt.GoOnWithoutHold = goOn
			r.send("k")
			completed := 0
			r.start(func(ctx context.Context, key string) error {
				err := sleeps(20*time.Second)(ctx, key)
				if err == nil {
					completed++
				}
				return err
			})
			r.sleep(time.Second)
			r.must(r.srv.Redeliver(r.url, r.srv.Queue(r.url).Messages()[0].ID))
			r.sleep(5 * time.Minute)
			r.settled(1 + r.cancelled())
			if completed != 1 || goOn && r.cancelled() != 0 {
				r.t.Errorf("%d completed, %d cancelled", completed, r.cancelled())
			}
		})
	}
}

// cancelled counts the runs that were cut short.
func (r *rig) cancelled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if errors.Is(e.Err, secondrun.ErrHoldLost) || errors.Is(e.Err, secondrun.ErrLeaseLost) {
			n++
		}
	}
	return n
}

// Rule 10, report 22: a failing dependency is not hammered, and a backoff of
// nothing is a second.
func TestBackoff_IsASecondAtLeast(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.guard = r.newGuard(&secondrun.Options{Backoff: secondrun.Backoff{Base: time.Millisecond, Max: time.Millisecond}, MaxFailures: 1000})
		r.send("k")
		r.start(func(context.Context, string) error { return secondrun.Transient(errors.New("sick")) })
		r.sleep(10500 * time.Millisecond)
		if n := len(r.started()); n > 11 || n < 5 {
			r.t.Errorf("%d runs in 10 s", n)
		}
	})
}

// Report 23: a beat that is in flight when the handler fails does not overwrite
// the backoff.
func TestBackoff_IsNotOverwritten(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(extend, sqstest.Times(1, sqstest.Fault{Delay: 4 * time.Second}))
		r.send("k")
		var at []time.Time
		r.start(func(ctx context.Context, key string) error {
			at = append(at, time.Now())
			if len(at) > 1 {
				return nil
			}
			_ = sleeps(11*time.Second)(ctx, key) // returns during the first beat
			return secondrun.RetryAfter(errors.New("later"), 2*time.Minute)
		})
		r.sleep(5 * time.Minute)
		r.settled(2)
		if d := at[1].Sub(at[0]); d < 2*time.Minute || d > 3*time.Minute {
			r.t.Errorf("the second run came after %v, want the backoff", d)
		}
	})
}

// Report 17: a receive that shutdown interrupts may have taken a message. It is
// not lost: it comes back after one visibility timeout.
func TestStop_AbandonedPoll(t *testing.T) {
	for _, stale := range []sqstest.Stale{sqstest.StaleNoop, sqstest.StaleApply, sqstest.StaleError} {
		inBubble(t, &sqstest.Options{Stale: stale, AbandonedPolls: true}, "", nil, func(r *rig) {
			stop := r.start(succeeds)
			r.sleep(time.Second)
			stop()
			r.send("k") // goes to the poll that nobody waits for
			synctest.Wait()
			defer r.start(succeeds)()
			r.sleep(20 * time.Second)
			if len(r.started()) != 0 {
				r.t.Skip("the message did not go there")
			}
			r.sleep(time.Minute)
			r.settled(1)
		})
	}
}

// Report 25: a standard queue under everything at once: random order, short
// receives, redeliveries of deleted messages, errors of every operation. Every
// key runs once.
func TestEverythingAtOnce(t *testing.T) {
	for name, stale := range map[string]sqstest.Stale{"noop": sqstest.StaleNoop, "apply": sqstest.StaleApply, "error": sqstest.StaleError} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &sqstest.Options{Stale: stale, Shuffle: true, ShortReceives: true, RedeliverDeleted: 0.2}, "", nil, func(r *rig) {
				r.t.Logf("seed %d", r.srv.Seed())
				r.client = r.srv.Client(func(o *sqs.Options) { o.RetryMaxAttempts = 1 })
				r.srv.Fault("", func(c sqstest.Call) *sqstest.Fault {
					switch {
					case c.Op == "SendMessage" || c.Op == "GetQueueAttributes":
						return nil
					case c.N%7 == 3:
						return &sqstest.Fault{DropReply: true}
					case c.N%7 == 5:
						return &sqstest.Fault{Code: "InternalError", FailEntries: func(i int, _ string) bool { return i%2 == 0 }}
					}
					return nil
				})
				keys := map[string]bool{}
				for i := range 200 {
					key := string(rune('a'+i%20)) + string(rune('a'+i/20%8))
					keys[key] = true
					_, err := r.sdk.SendMessage(r.t.Context(), sending(r.url, key))
					r.must(err)
				}
				r.start(sleeps(12 * time.Second))
				other := r.start(sleeps(12 * time.Second))
				defer other()
				r.sleep(3 * time.Hour)
				seen := map[string]int{}
				for _, key := range r.started() {
					seen[key]++
				}
				for key := range keys {
					if rec, _ := r.record(key); rec.Starts != seen[key] || seen[key] < 1 {
						r.t.Errorf("%s: %d runs, %d starts in the record", key, seen[key], rec.Starts)
					}
				}
				lost := r.count(sqsadapter.EventLeft)
				if n := len(r.started()); n > len(keys)+lost {
					r.t.Errorf("%d runs of %d keys, %d holds lost", n, len(keys), lost)
				}
				if c := r.srv.Queue(r.url).Counts(); c.Visible+c.InFlight != 0 || r.deadCount() != 0 {
					r.t.Errorf("left: %+v, %d dead letters", c, r.deadCount())
				}
			})
		})
	}
}

func sending(url, key string) *sqs.SendMessageInput {
	body := `{"id":"` + key + `"}`
	return &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
}
