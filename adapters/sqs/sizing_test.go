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
