package sqstest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// withDLQ gives the fixture's queue a dead-letter queue after n receives and
// returns that queue's URL.
func (x *fixture) withDLQ(n int, attrs map[string]string) string {
	x.Helper()
	dlq := x.create("dlq", attrs)
	_, err := x.c.SetQueueAttributes(x.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: &x.url, Attributes: map[string]string{
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"%d"}`, x.arn(dlq), n),
		},
	})
	x.ok(err)
	return dlq
}

func (x *fixture) from(url string) []types.Message {
	x.Helper()
	return x.receiveWith(sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10})
}

func TestDeadLetter_MovesOnTheNextReceive(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq := x.withDLQ(1, nil)
		id := x.send("a")[0]
		x.one()
		after(60 * time.Second)
		x.bodiesAre(x.from(dlq)) // time alone does not move it
		x.bodiesAre(x.receive())
		got := x.from(dlq)
		x.bodiesAre(got, "a")
		m := got[0]
		if *m.MessageId != id {
			x.Fatal("the move changed the id")
		}
		if n := m.Attributes["ApproximateReceiveCount"]; n != "2" {
			x.Fatalf("count %s in the dead-letter queue, want 2: it counts across queues", n)
		}
		if m.Attributes["DeadLetterQueueSourceArn"] != x.arn(x.url) {
			x.Fatalf("attributes %v", m.Attributes)
		}
	})
}

func TestDeadLetter_KeepsItsAge(t *testing.T) {
	inBubble(t, nil, map[string]string{"MessageRetentionPeriod": "3600"}, func(x *fixture) {
		dlq := x.withDLQ(1, map[string]string{"MessageRetentionPeriod": "7200"})
		x.send("a")
		after(time.Minute)
		x.sendTo(dlq, "younger")
		sent := x.one().Attributes["SentTimestamp"]
		after(2940 * time.Second)
		x.receive()
		if m := x.from(dlq)[1]; m.Attributes["SentTimestamp"] != sent {
			x.Fatal("the move renewed the enqueue time")
		}
		after(4200*time.Second - time.Second)
		if n := x.srv.Queue(dlq).Counts(); n.Visible+n.InFlight != 2 {
			x.Fatalf("gone early: %+v", n)
		}
		after(time.Second)
		if n := x.srv.Queue(dlq).Counts(); n.Visible != 1 || n.Expired != 1 {
			x.Fatalf("kept too long: %+v", n)
		}
	})
}

func TestDeadLetter_FIFO(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		dlq := x.withDLQ(1, fifo)
		id := x.send("g:1", "g:2")[0]
		first := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})[0]
		after(31 * time.Second)
		x.bodiesAre(x.receive(), "g:2") // the head leaves, the group goes on
		m := x.from(dlq)[0]
		if *m.MessageId != id || m.Attributes["MessageDeduplicationId"] != id || m.Attributes["MessageGroupId"] != "g" {
			x.Fatalf("attributes %v", m.Attributes)
		}
		if m.Attributes["SentTimestamp"] == first.Attributes["SentTimestamp"] {
			x.Fatal("a FIFO dead-letter queue renews the enqueue time")
		}
	})
}

func TestDeadLetter_PolicyIsChecked(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq := x.create("dlq", nil)
		closed := x.create("closed", map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"denyAll"}`})
		other := x.create("other", fifo)
		for name, policy := range map[string]string{
			"not JSON":      "x",
			"missing queue": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:none","maxReceiveCount":1}`,
			"count 0":       fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":0}`, x.arn(dlq)),
			"count 1001":    fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1001}`, x.arn(dlq)),
			"other kind":    fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, x.arn(other)),
			"not allowed":   fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, x.arn(closed)),
		} {
			_, err := x.c.SetQueueAttributes(x.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &x.url, Attributes: map[string]string{"RedrivePolicy": policy},
			})
			if err == nil {
				x.Fatalf("%s: accepted", name)
			}
			x.fails(err, "InvalidParameterValue", "RedrivePolicy")
		}
	})
}

func TestDeadLetter_ListSources(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq := x.withDLQ(1, nil)
		out, err := x.c.ListDeadLetterSourceQueues(x.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dlq})
		x.ok(err)
		if len(out.QueueUrls) != 1 || out.QueueUrls[0] != x.url {
			x.Fatalf("got %v", out.QueueUrls)
		}
	})
}

// deadLetters moves messages into a dead-letter queue the way they get there.
func (x *fixture) deadLetters(bodies ...string) (dlq string, ids []string) {
	x.Helper()
	dlq = x.withDLQ(1, nil)
	ids = x.send(bodies...)
	x.receive()
	after(31 * time.Second)
	x.bodiesAre(x.receive())
	return dlq, ids
}

func (x *fixture) move(dlq string, rate int32) string {
	x.Helper()
	in := &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(x.arn(dlq))}
	if rate > 0 {
		in.MaxNumberOfMessagesPerSecond = &rate
	}
	out, err := x.c.StartMessageMoveTask(x.Context(), in)
	x.ok(err)
	return *out.TaskHandle
}

func (x *fixture) task(dlq string) types.ListMessageMoveTasksResultEntry {
	x.Helper()
	out, err := x.c.ListMessageMoveTasks(x.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(x.arn(dlq))})
	x.ok(err)
	if len(out.Results) != 1 {
		x.Fatalf("tasks %+v", out.Results)
	}
	return out.Results[0]
}

func TestMoveTask_MakesNewMessages(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq, ids := x.deadLetters("a")
		after(time.Hour)
		x.move(dlq, 0)
		m := x.one()
		if *m.MessageId == ids[0] {
			x.Fatal("the redriven message kept its id")
		}
		if m.Attributes["ApproximateReceiveCount"] != "1" || m.Attributes["DeadLetterQueueSourceArn"] != "" {
			x.Fatalf("attributes %v", m.Attributes)
		}
		if want := fmt.Sprint(time.Now().UnixMilli()); m.Attributes["SentTimestamp"] != want {
			x.Fatalf("sent %s, want now, %s", m.Attributes["SentTimestamp"], want)
		}
		if s := x.task(dlq); *s.Status != "COMPLETED" || s.ApproximateNumberOfMessagesMoved != 1 {
			x.Fatalf("task %+v", s)
		}
	})
}

func TestMoveTask_CopyWithoutSourceNeedsADestination(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq := x.withDLQ(1, nil)
		x.sendTo(dlq, "copied by a consumer")
		x.move(dlq, 0)
		if s := x.task(dlq); *s.Status != "FAILED" || *s.FailureReason != "CouldNotDetermineMessageSource" {
			x.Fatalf("task %+v", s)
		}
		_, err := x.c.StartMessageMoveTask(x.Context(), &sqs.StartMessageMoveTaskInput{
			SourceArn: aws.String(x.arn(dlq)), DestinationArn: aws.String(x.arn(x.url)),
		})
		x.ok(err)
		x.bodiesAre(x.receive(), "copied by a consumer")
	})
}

func TestMoveTask_RateAndCancel(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq, _ := x.deadLetters("a", "b", "c", "d", "e")
		handle := x.move(dlq, 2)
		x.bodiesAre(x.receive(), "a", "b")
		_, err := x.c.StartMessageMoveTask(x.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(x.arn(dlq))})
		x.fails(err, "InvalidParameterValue", "Only one active task")
		start := time.Now()
		// A poller waits for the task's next second.
		x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20, MaxNumberOfMessages: 10}), "c", "d")
		if d := time.Since(start); d != time.Second {
			x.Fatalf("waited %v", d)
		}
		out, err := x.c.CancelMessageMoveTask(x.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
		x.ok(err)
		if out.ApproximateNumberOfMessagesMoved != 4 {
			x.Fatalf("moved %d", out.ApproximateNumberOfMessagesMoved)
		}
		after(time.Minute)
		x.bodiesAre(x.from(dlq), "e")
		if s := x.task(dlq); *s.Status != "CANCELLED" {
			x.Fatalf("task %+v", s)
		}
	})
}

func TestMoveTask_Refusals(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		start := func(arn string) error {
			_, err := x.c.StartMessageMoveTask(x.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: &arn})
			return err
		}
		x.fails(start(x.arn(x.url)), "InvalidParameterValue", "must be configured as a Dead Letter Queue")
		if err := start("arn:aws:sqs:us-east-1:000000000000:none"); !errors.As(err, new(*types.ResourceNotFoundException)) {
			x.Fatalf("got %v", err)
		}
	})
}
