package sqsadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// A handler of 25 minutes and 150 duplicates of its message: none of them uses
// up a maxReceiveCount of 10.
func TestB05_ReceiveBudget(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"10"}`)
		r.opt.DeadLetter = sqsadapter.Redrive
		r.opt.Concurrency = 20
		r.send("k")
		r.start(sleeps(25 * time.Minute))
		r.sleep(time.Second)
		r.send(slices.Repeat([]string{"k"}, 150)...)
		r.sleep(2 * time.Hour)
		r.settled(1)
		if r.deadCount() != 0 {
			r.t.Errorf("%d of 150 duplicates in the dead-letter queue", r.deadCount())
		}
		most := 0
		for _, m := range r.srv.Queue(r.url).Messages() {
			most = max(most, m.Receives)
		}
		r.t.Logf("at most %d receives of a duplicate", most)
	})
}

func (r *rig) setPolicy(policy string) {
	_, err := r.sdk.SetQueueAttributes(r.t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: &r.url, Attributes: map[string]string{"RedrivePolicy": policy},
	})
	r.must(err)
}

func (r *rig) warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, e := range r.events {
		if e.Kind == sqsadapter.EventWarning {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// B16, B05: a combination of settings that does not fit is explained in one
// sentence each; one that fits is not.
func TestB16_Warnings(t *testing.T) {
	cases := map[string]struct {
		opt        secondrun.Options
		visibility time.Duration
		policy     string
		want       string
	}{
		"fits":              {},
		"short retention":   {opt: secondrun.Options{Retention: 5 * 24 * time.Hour}, want: "records are kept for 120h0m0s"},
		"small budget":      {policy: `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}`, want: "maxReceiveCount is 3"},
		"lease outlives it": {visibility: 10 * time.Second, want: "is shorter than the lease"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, "", &c.opt, func(r *rig) {
				if c.policy != "" {
					r.setPolicy(c.policy)
				}
				r.opt.Visibility = c.visibility
				r.start(succeeds)
				r.sleep(time.Second)
				got := r.warnings()
				if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
					r.t.Errorf("warnings %q, want one with %q", got, c.want)
				}
			})
		})
	}
}

// The ratio of the handlers' p99 to the visibility timeout is measured, and a
// bad one is warned of once.
func TestHoldRatio(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		r.opt.Concurrency = 50
		for i := range 400 {
			r.send(fmt.Sprint(i))
		}
		c, err := sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, sleeps(15*time.Second)), &r.opt)
		r.must(err)
		if c.HoldRatio() != 0 {
			r.t.Error("a ratio before anything has run")
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
		defer cancel()
		r.must(c.Run(ctx))
		if got := c.HoldRatio(); got < 0.5 || got > 0.65 {
			r.t.Errorf("ratio %v of 15s to 30s, want 0.5 and at most a quarter more", got)
		}
		if got := r.warnings(); len(got) != 1 || !strings.Contains(got[0], "p99") {
			r.t.Errorf("warnings %q", got)
		}
	})
}

// Who may not read the queue's attributes must say what becomes of dead letters,
// and is told that nothing is checked.
func TestStart_MayNotRead(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		r.srv.Fault("GetQueueAttributes", func(sqstest.Call) *sqstest.Fault { return &sqstest.Fault{Code: "AccessDenied"} })
		c, err := sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, succeeds), nil)
		r.must(err)
		if err := c.Run(r.t.Context()); err == nil {
			r.t.Error("started without a way for dead letters")
		}
		h, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, succeeds), &r.opt)
		r.must(err)
		r.must(h.Handle(r.t.Context()))
		r.send("k")
		r.start(succeeds)
		r.sleep(time.Second)
		r.settled(1)
		if got := r.warnings(); len(got) != 2 || !strings.Contains(got[0], "cannot be read") {
			r.t.Errorf("warnings %q, want one of the handler and one of the consumer", got)
		}
	})
}

// A server that does not answer at the start is no reason to wait for ever.
func TestStart_Hangs(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		r.srv.Fault("GetQueueAttributes", func(sqstest.Call) *sqstest.Fault { return &sqstest.Fault{Delay: time.Hour} })
		start := time.Now()
		_, err := sqsadapter.NewHandler(r.t.Context(), r.client, r.url, r.handler(r.guard, succeeds), nil)
		if d := time.Since(start); err == nil || d > time.Minute {
			r.t.Errorf("%v after %v", err, d)
		}
	})
}

// The longest way back counts: of the queue that failures are copied to, and of
// the one to which the redrive policy moves.
func TestB16_BothDeadLetterQueues(t *testing.T) {
	for name, days := range map[string]int{"copies": 14, "policy": 14, "neither": 1} {
		inBubble(t, nil, "", &secondrun.Options{Retention: 10 * 24 * time.Hour}, func(r *rig) {
			keeps := func(days int) map[string]string {
				return map[string]string{"MessageRetentionPeriod": fmt.Sprint(days * 24 * 60 * 60)}
			}
			r.create("other", keeps(map[bool]int{true: days, false: 1}[name == "policy"]))
			copies := r.create("copies", keeps(map[bool]int{true: days, false: 1}[name == "copies"]))
			r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:other","maxReceiveCount":"20"}`)
			r.opt.DeadLetter = sqsadapter.To(copies)
			r.start(succeeds)
			r.sleep(time.Second)
			if got := r.warnings(); (len(got) == 1) != (days == 14) {
				r.t.Errorf("%s: warnings %q", name, got)
			}
		})
	}
}

// FIFO queues need a larger budget, and are told so.
func TestB16_FIFOBudget(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead.fifo","maxReceiveCount":"8"}`)
		r.start(succeeds)
		r.sleep(time.Second)
		if got := r.warnings(); len(got) != 1 || !strings.Contains(got[0], "FIFO") {
			r.t.Errorf("warnings %q", got)
		}
	})
}
