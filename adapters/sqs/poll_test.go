package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

const receive = "ReceiveMessage"

// No error of a receive ends the consumer; it asks again, and not at once.
func TestPoll_Errors(t *testing.T) {
	for name, fault := range map[string]sqstest.Fault{
		"throttled":        {Code: "RequestThrottled"},
		"over the limit":   {Code: "OverLimit"},
		"server error":     {Code: "InternalError"},
		"access denied":    {Code: "AccessDenied"},
		"expired":          {Code: "ExpiredToken"},
		"queue is missing": {Code: "AWS.SimpleQueueService.NonExistentQueue"},
		"request lost":     {DropRequest: true},
		"hangs":            {Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			everyPolicy(t, func(r *rig) {
				away := time.Now().Add(3 * time.Minute)
				r.srv.Fault(receive, func(sqstest.Call) *sqstest.Fault {
					if time.Now().After(away) {
						return nil
					}
					return &fault
				})
				r.send("k")
				r.start(succeeds)
				r.sleep(3 * time.Minute)
				if n := r.srv.CallCount(receive); n > 60 {
					r.t.Errorf("%d receives in three minutes", n)
				}
				r.sleep(time.Minute)
				r.settled(1)
				if r.count(sqsadapter.EventPollFailed) == 0 {
					r.t.Error("nobody was told")
				}
			})
		})
	}
}

// A reply that is lost takes its messages with it, for a visibility timeout.
func TestPoll_ReplyLost(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(receive, sqstest.Times(1, sqstest.Fault{DropReply: true}))
		r.send("1", "2", "3")
		r.start(succeeds)
		r.sleep(2 * time.Minute)
		r.settled(3)
	})
}

// On a FIFO queue the attempt id brings them back at once.
func TestPoll_ReplyLostFIFO(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.client = r.srv.Client(func(o *sqs.Options) { o.RetryMaxAttempts = 1 })
		r.srv.Fault(receive, sqstest.Times(3, sqstest.Fault{DropReply: true}))
		r.sendFIFO("g", "1", "2", "3")
		r.start(succeeds)
		r.sleep(10 * time.Second) // below the visibility timeout
		r.settled(3)
	})
}

// generous hands out more than it was asked for.
type generous struct{ *sqs.Client }

func (g generous) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	more := *in
	more.MaxNumberOfMessages = 10
	return g.Client.ReceiveMessage(ctx, &more, o...)
}

// A wrapped client that hands out too many messages costs no slots.
func TestPoll_MoreThanAsked(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.client = generous{r.sdk}
		r.opt.Concurrency = 2
		for i := range 12 {
			r.send(fmt.Sprint(i))
		}
		r.start(sleeps(time.Second))
		r.sleep(10 * time.Minute)
		r.settled(12)
	})
}

// slowStore takes its time for claims.
type slowStore struct {
	store.Store
	d time.Duration
}

func (s slowStore) Claim(ctx context.Context, q []store.ClaimRequest) ([]store.Claim, error) {
	time.Sleep(s.d)
	return s.Store.Claim(ctx, q)
}

// Rule 12: what has not started when the consumer stops is given back at once,
// also when its claim was under way, or its receive.
func TestStop_DuringClaimAndReceive(t *testing.T) {
	for name, at := range map[string]time.Duration{"claim": 3 * time.Second, "receive": time.Second} {
		t.Run(name, func(t *testing.T) {
			everyPolicy(t, func(r *rig) {
				inner := r.st
				r.st = slowStore{inner, 2 * time.Second}
				r.guard = r.newGuard(nil)
				r.client = uncancelled{r.sdk}
				r.srv.Fault(receive, sqstest.Times(1, sqstest.Fault{DelayReply: 2 * time.Second}))
				r.send("1", "2", "3")
				stop := r.start(succeeds)
				r.sleep(at)
				stop()
				synctest.Wait()
				if c := r.srv.Queue(r.url).Counts(); len(r.started()) != 0 || c.Visible != 3 {
					r.t.Errorf("started %v, %+v", r.started(), c)
				}
				r.st = inner
				if rec, ok := r.record("1"); ok && rec.State != store.StateReleased {
					r.t.Errorf("left behind: %+v", rec)
				}
			})
		})
	}
}

// uncancelled lets a receive finish that its context would interrupt.
type uncancelled struct{ *sqs.Client }

func (u uncancelled) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return u.Client.ReceiveMessage(context.WithoutCancel(ctx), in, o...)
}

// Rule 12: heartbeats go on while handlers use the grace.
func TestStop_HeartbeatsGoOn(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.Grace = 10 * time.Minute
		r.send("k")
		stop := r.start(sleeps(5 * time.Minute))
		r.sleep(time.Second)
		other := r.start(succeeds)
		defer other()
		stop()
		r.settled(1)
		if n := r.srv.Queue(r.url).Counts().Received; n != 1 {
			r.t.Errorf("%d deliveries", n)
		}
	})
}

// Rule 6, 9: deletes that hang, or fail, do not keep the consumer from working,
// nor Run from returning.
func TestSettle_Hangs(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.srv.Fault(remove, sqstest.Times(30, sqstest.Fault{Delay: time.Hour}))
		for i := range 100 {
			r.send(fmt.Sprint(i))
		}
		r.opt.Concurrency = 20
		r.start(succeeds)
		r.sleep(30 * time.Minute)
		r.settled(100)
	})
}

// Run that is cancelled before it began is no error.
func TestRun_CancelledBefore(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		c, err := sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, succeeds), &r.opt)
		r.must(err)
		ctx, cancel := context.WithCancel(r.t.Context())
		cancel()
		r.must(c.Run(ctx))
	})
}

// Rule 10: a message that the queue is about to give up is warned of.
func TestReceiveBudget_Warning(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"6"}`)
		r.send("k")
		r.start(func(context.Context, string) error { return secondrun.Transient(errors.New("again")) })
		r.sleep(10 * time.Minute)
		if got := r.warnings(); len(got) != 1 || r.deadCount() != 1 {
			r.t.Errorf("warnings %q, %d dead letters", got, r.deadCount())
		}
	})
}

// A panic of one handler, or its runtime.Goexit, is settled, and its slot is
// free again.
func TestSlots_SurviveExits(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		inBubble(t, nil, suffix, nil, func(r *rig) {
			r.opt.Concurrency = 2
			r.opt.OnPanic = func(*sqsadapter.Message, any, []byte) {}
			seen := map[string]bool{}
			r.start(func(_ context.Context, key string) error {
				r.mu.Lock()
				first := !seen[key]
				seen[key] = true
				r.mu.Unlock()
				if first {
					exit(key)
				}
				return nil
			})
			for i := range 10 {
				if suffix == "" {
					r.send(fmt.Sprint(i))
				} else {
					r.sendFIFO(fmt.Sprint("g", i%3), fmt.Sprint(i))
				}
			}
			r.sleep(10 * time.Minute)
			r.settled(20)
		})
	}
}

// exit panics, or ends its goroutine.
func exit(key string) {
	if key[len(key)-1]%2 == 0 {
		panic("boom")
	}
	runtime.Goexit()
}

// A handler for own loops takes the queue's visibility timeout for what its
// receives get, and refuses one that cannot be extended in time.
func TestHandler_QueuesVisibility(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		short := r.create("short", map[string]string{"VisibilityTimeout": "2"})
		if _, err := sqsadapter.NewHandler(r.t.Context(), r.client, short, r.handler(r.guard, succeeds), &r.opt); err == nil {
			r.t.Error("a visibility timeout of 2 s is no error")
		}
		_, err := r.sdk.SetQueueAttributes(r.t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &r.url, Attributes: map[string]string{"VisibilityTimeout": "6"}})
		r.must(err)
		h, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, sleeps(time.Minute)), &r.opt)
		r.must(err)
		if h.HoldRatio() != 0 {
			r.t.Error("a ratio before anything has run")
		}
		r.send("k")
		out, err := r.client.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &r.url})
		r.must(err)
		defer r.start(succeeds)() // would get the message if it were not held
		r.must(h.Handle(r.t.Context(), out.Messages...))
		r.settled(1)
		if h.HoldRatio() < 10 {
			r.t.Errorf("ratio %v of a minute to 6 s", h.HoldRatio())
		}
	})
}

// What a handler for own loops was given when its context had ended is given
// back unclaimed.
func TestHandler_Cancelled(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("1", "2")
		h, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, succeeds), &r.opt)
		r.must(err)
		out, err := r.client.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &r.url, MaxNumberOfMessages: 10, VisibilityTimeout: 30})
		r.must(err)
		ctx, cancel := context.WithCancel(r.t.Context())
		cancel()
		if err := h.Handle(ctx, out.Messages...); err == nil {
			r.t.Error("nobody was told")
		}
		if c := r.srv.Queue(r.url).Counts(); c.Visible != 2 || len(r.started()) != 0 {
			r.t.Errorf("%+v, started %v", c, r.started())
		}
		if _, ok := r.record("1"); ok {
			r.t.Error("claimed")
		}
	})
}

// More than a receive can return, handed over at once.
func TestHandler_ManyMessages(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		inBubble(t, nil, suffix, nil, func(r *rig) {
			r.opt.Visibility = 30 * time.Second
			for i := range 25 {
				if suffix == "" {
					r.send(fmt.Sprint(i))
				} else {
					r.sendFIFO(fmt.Sprint("g", i/10), fmt.Sprintf("%02d", i))
				}
			}
			h, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, sleeps(20*time.Second)), &r.opt)
			r.must(err)
			in := &sqs.ReceiveMessageInput{
				QueueUrl: &r.url, MaxNumberOfMessages: 10, VisibilityTimeout: 30, WaitTimeSeconds: 1,
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
			}
			var all []types.Message
			for range 3 {
				out, err := r.client.ReceiveMessage(r.t.Context(), in)
				r.must(err)
				all = append(all, out.Messages...)
			}
			r.must(h.Handle(r.t.Context(), all...))
			r.settled(len(all))
			if len(all) != 25 {
				r.t.Errorf("%d messages", len(all))
			}
		})
	}
}

// The settings of queues that no consumer can work with.
func TestStart_Addresses(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		h := r.handler(r.guard, succeeds)
		arn := "arn:aws:sqs:us-east-1:000000000000:work"
		for name, c := range map[string]struct {
			client sqsadapter.Client
			url    string
			opt    sqsadapter.Options
		}{
			"no client":              {nil, r.url, r.opt},
			"no queue":               {r.client, "", r.opt},
			"an ARN":                 {r.client, arn, r.opt},
			"dead letters to itself": {r.client, r.url, sqsadapter.Options{DeadLetter: sqsadapter.To(r.url)}},
			"dead letters nowhere":   {r.client, r.url, sqsadapter.Options{DeadLetter: sqsadapter.To("")}},
			"dead letters to an ARN": {r.client, r.url, sqsadapter.Options{DeadLetter: sqsadapter.To(arn)}},
		} {
			if _, err := sqsadapter.NewConsumer(c.client, c.url, h, &c.opt); err == nil {
				r.t.Errorf("%s is no error", name)
			}
		}
		c, err := sqsadapter.NewConsumer(r.client, r.url, h, &sqsadapter.Options{DeadLetter: sqsadapter.To(r.dead + "-missing")})
		r.must(err)
		if err := c.Run(r.t.Context()); err == nil {
			r.t.Error("a missing dead-letter queue is no error")
		}
		if _, err := sqsadapter.NewConsumer(r.client, r.url, nil, nil); err == nil {
			r.t.Error("no handler is no error")
		}
	})
}
