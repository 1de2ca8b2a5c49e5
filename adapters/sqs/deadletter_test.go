package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func fails(context.Context, string) error { return errors.New("no") }

// SQS allows ten attributes: those of the message come first, then reason, key
// and source, as far as there is room.
func TestDeadLetter_TenAttributes(t *testing.T) {
	for own := 7; own <= 10; own++ {
		everyPolicy(t, func(r *rig) {
			attrs := map[string]string{}
			for i := range own {
				attrs[fmt.Sprint("a", i)] = "v"
			}
			r.sendBody(`{"id":"k"}`, attrs)
			r.start(fails)
			r.sleep(time.Minute)
			r.settled(1)
			got := r.srv.Queue(r.dead).Messages()[0].Attributes
			for i, name := range []string{sqsadapter.AttributeReason, sqsadapter.AttributeKey, sqsadapter.AttributeSource} {
				if _, ok := got[name]; ok != (own+i < 10) {
					r.t.Errorf("%d attributes of the message: %s is there: %v", own, name, ok)
				}
			}
			if len(got) != 10 {
				r.t.Errorf("%d attributes of 10", len(got))
			}
		})
	}
}

// A message that has no room for more is copied as it is.
func TestDeadLetter_FullSize(t *testing.T) {
	const most = 1 << 20
	body := `{"id":"k","pad":"` + strings.Repeat("x", most-19) + `"}`
	everyPolicy(t, func(r *rig) {
		r.sendBody(body, nil)
		r.start(fails)
		r.sleep(time.Minute)
		r.settled(1)
		got := r.srv.Queue(r.dead).Messages()
		if len(got) != 1 || got[0].Body != body || len(got[0].Attributes) != 0 {
			r.t.Fatalf("%d letters", len(got))
		}
	})
}

// A message that does not fit into the dead-letter queue at all stays, and is
// not run again; the redrive policy moves it.
func TestDeadLetter_DoesNotFit(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		small := r.create("small", map[string]string{"MaximumMessageSize": "1024"})
		r.opt.DeadLetter = sqsadapter.To(small)
		r.sendBody(`{"id":"k","pad":"`+strings.Repeat("x", 2000)+`"}`, nil)
		r.start(fails)
		r.sleep(time.Hour)
		r.settled(1)
		if n := r.count(sqsadapter.EventSettleFailed); r.deadCount() != 1 || n == 0 {
			r.t.Errorf("%d moved by the policy, %d failures told", r.deadCount(), n)
		}
	})
}

// The trace that AWS hands on stays with the copy.
func TestDeadLetter_Trace(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		const header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
		_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{
			QueueUrl: &r.url, MessageBody: aws.String(`{"id":"k"}`),
			MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String(header)},
			},
		})
		r.must(err)
		stop := r.start(fails)
		r.sleep(time.Minute)
		stop()
		out, err := r.client.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &r.dead, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		r.must(err)
		if got := out.Messages[0].Attributes["AWSTraceHeader"]; got != header {
			r.t.Errorf("trace header %q", got)
		}
	})
}

// Rule 13: the original is deleted only after the copy is confirmed; a copy
// whose confirmation is lost is made again, and the original is not lost.
func TestDeadLetter_Order(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.send("k")
		r.srv.Fault("SendMessage", sqstest.Times(4, sqstest.Fault{DropReply: true}))
		r.srv.Fault(remove, func(sqstest.Call) *sqstest.Fault {
			if r.deadCount() == 0 {
				r.t.Error("deleted before it was copied")
			}
			return nil
		})
		r.start(fails)
		r.sleep(10 * time.Minute)
		r.settled(1)
		for _, m := range r.srv.Queue(r.dead).Messages() {
			if m.Attributes[sqsadapter.AttributeKey] != "k" {
				r.t.Errorf("a double without its key: %v", m.Attributes)
			}
		}
	})
}

// B07, B08 by the console: what the redrive policy moved goes back to its source
// without being told where that is. What succeeded meanwhile is acknowledged.
func TestRedrive_Console(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"3"}`)
		r.opt.DeadLetter = sqsadapter.Redrive
		broken := true
		r.start(func(_ context.Context, key string) error {
			if key == "bad" && broken {
				return errors.New("no such customer")
			}
			return nil
		})
		r.send("good", "bad")
		r.sleep(5 * time.Minute)
		if r.deadCount() != 1 {
			r.t.Fatalf("%d dead letters", r.deadCount())
		}
		broken = false
		for range 2 { // and somebody pressed the button twice
			_, err := r.sdk.StartMessageMoveTask(r.t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:dead")})
			r.must(err)
			r.sleep(5 * time.Minute)
		}
		r.send("bad", "good")
		r.sleep(time.Minute)
		r.settled(3) // good, bad, bad
		if r.deadCount() != 0 {
			r.t.Errorf("%d dead letters after the redrive", r.deadCount())
		}
	})
}

// A long handler elsewhere can lose its message to the dead-letter queue while
// it works: the copy is acknowledged when it is replayed.
func TestRedrive_OfDoneMessage(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.setPolicy(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"1"}`)
		r.busyElsewhere("k", 10*time.Minute)
		r.send("k")
		r.start(succeeds)
		r.sleep(15 * time.Minute)
		if r.deadCount() != 1 {
			r.t.Fatalf("%d dead letters", r.deadCount())
		}
		_, err := r.sdk.StartMessageMoveTask(r.t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:dead")})
		r.must(err)
		r.sleep(5 * time.Minute)
		r.settled(0)
	})
}
