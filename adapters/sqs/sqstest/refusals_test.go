package sqstest_test

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

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func TestSend_AttributeRules(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		number := types.MessageAttributeValue{DataType: aws.String("Number"), StringValue: aws.String("1")}
		for name, c := range map[string]struct {
			attr string
			v    types.MessageAttributeValue
			ok   bool
		}{
			"custom type":     {"a", types.MessageAttributeValue{DataType: aws.String("String.uuid"), StringValue: aws.String("v")}, true},
			"dots inside":     {"a.b.c", number, true},
			"unknown type":    {"a", types.MessageAttributeValue{DataType: aws.String("Text"), StringValue: aws.String("v")}, false},
			"empty string":    {"a", stringAttr(""), false},
			"empty binary":    {"a", types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte{}}, false},
			"reserved prefix": {"AWS.x", number, false},
			"reserved too":    {"amazon.x", number, false},
			"leading dot":     {".a", number, false},
			"doubled dot":     {"a..b", number, false},
			"space":           {"a b", number, false},
			"257 characters":  {strings.Repeat("a", 257), number, false},
		} {
			_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
				QueueUrl: &x.url, MessageBody: aws.String("b"), MessageAttributes: map[string]types.MessageAttributeValue{c.attr: c.v},
			})
			if c.ok {
				x.ok(err)
			} else if err == nil {
				x.Errorf("%s: accepted", name)
			} else {
				x.fails(err, "InvalidParameterValue", "")
			}
		}
	})
}

func TestFIFO_Ids(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		for _, bad := range []string{"a b", "é", strings.Repeat("a", 129)} {
			_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
				QueueUrl: &x.url, MessageBody: aws.String("b"), MessageGroupId: &bad,
			})
			x.fails(err, "InvalidParameterValue", "MessageGroupId")
			_, err = x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
				QueueUrl: &x.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"), MessageDeduplicationId: &bad,
			})
			x.fails(err, "InvalidParameterValue", "MessageDeduplicationId")
			_, err = x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: &x.url, ReceiveRequestAttemptId: &bad})
			x.fails(err, "InvalidParameterValue", "ReceiveRequestAttemptId")
		}
		sendFIFO(x, "b", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "d")
	})
}

// The window stays exact while it grows and is cleaned.
func TestFIFO_ManyDeduplicationIds(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		send := func(n int) (accepted int) {
			before := x.srv.Queue(x.url).Counts().Sent
			for i := range n {
				sendFIFO(x, "b", "g", fmt.Sprint("d", i))
			}
			return x.srv.Queue(x.url).Counts().Sent - before
		}
		if a, b := send(1500), send(1500); a != 1500 || b != 0 {
			x.Fatalf("accepted %d, then %d", a, b)
		}
		after(5 * time.Minute)
		if n := send(1500); n != 1500 {
			x.Fatalf("accepted %d after the window", n)
		}
	})
}

func TestDeadLetter_AllowByQueue(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		allow := fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":[%q]}`, x.arn(x.url))
		dlq := x.create("dlq", map[string]string{"RedriveAllowPolicy": allow})
		other := x.create("other", nil)
		set := func(url string) error {
			_, err := x.c.SetQueueAttributes(x.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{
				"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":3}`, x.arn(dlq)),
			}})
			return err
		}
		x.ok(set(x.url))
		x.fails(set(other), "InvalidParameterValue", "RedrivePolicy")
		_, err := x.c.SetQueueAttributes(x.Context(), &sqs.SetQueueAttributesInput{
			QueueUrl: &dlq, Attributes: map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"byQueue"}`},
		})
		x.fails(err, "InvalidParameterValue", "RedriveAllowPolicy")
	})
}

func TestDeadLetter_DeletedTargetIsIgnored(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq := x.withDLQ(1, nil)
		_, err := x.c.DeleteQueue(x.Context(), &sqs.DeleteQueueInput{QueueUrl: &dlq})
		x.ok(err)
		x.send("a")
		for range 3 {
			x.one()
			after(30 * time.Second)
		}
	})
}

func TestMoveTask_FIFO(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		dlq := x.withDLQ(1, fifo)
		ids := x.send("g:1", "g:2")
		x.receive()
		after(31 * time.Second)
		x.bodiesAre(x.receive())
		x.move(dlq, 0)
		got := x.receive()
		x.bodiesAre(got, "g:1", "g:2")
		if *got[0].MessageId == ids[0] || got[0].Attributes["MessageGroupId"] != "g" || got[0].Attributes["SequenceNumber"] == "" {
			x.Fatalf("received %+v", got[0])
		}
	})
}

func TestMoveTask_QueueIsDeletedMeanwhile(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq, _ := x.deadLetters("a", "b")
		x.move(dlq, 1)
		x.create("keeper", map[string]string{
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":3}`, x.arn(dlq)),
		})
		_, err := x.c.DeleteQueue(x.Context(), &sqs.DeleteQueueInput{QueueUrl: &x.url})
		x.ok(err)
		after(time.Second)
		if s := x.task(dlq); *s.Status != "FAILED" || *s.FailureReason != "AWS.SimpleQueueService.NonExistentQueue" {
			x.Fatalf("task %+v", s)
		}
	})
}

func TestMoveTask_MoreRefusals(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		dlq, _ := x.deadLetters("a")
		fifoURL := x.create("f", fifo)
		start := func(dst string, rate *int32) error {
			_, err := x.c.StartMessageMoveTask(x.Context(), &sqs.StartMessageMoveTaskInput{
				SourceArn: aws.String(x.arn(dlq)), DestinationArn: &dst, MaxNumberOfMessagesPerSecond: rate,
			})
			return err
		}
		x.fails(start(x.arn(dlq), nil), "InvalidParameterValue", "cannot be the same")
		x.fails(start(x.arn(fifoURL), nil), "InvalidParameterValue", "same type")
		x.fails(start(x.arn(x.url), aws.Int32(501)), "InvalidParameterValue", "MaxNumberOfMessagesPerSecond")
		x.fails(start("arn:aws:sqs:us-east-1:000000000000:none", nil), "ResourceNotFoundException", "DestinationArn")
		handle := x.move(dlq, 0)
		_, err := x.c.CancelMessageMoveTask(x.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
		x.fails(err, "AWS.SimpleQueueService.UnsupportedOperation", "active")
		_, err = x.c.CancelMessageMoveTask(x.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("none")})
		x.fails(err, "ResourceNotFoundException", "")
		_, err = x.c.ListMessageMoveTasks(x.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(x.arn(dlq)), MaxResults: aws.Int32(11)})
		x.fails(err, "InvalidParameterValue", "MaxResults")
	})
}

func TestRedeliver_RefusesFIFO(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		if err := x.srv.Redeliver(x.url, x.send("a")[0]); err == nil {
			x.Fatal("a FIFO queue delivered twice")
		}
		if err := x.srv.Redeliver("none", "id"); !errors.As(err, new(*sqstest.Error)) {
			x.Fatalf("got %v", err)
		}
	})
}

func TestCreateQueue_Helper(t *testing.T) {
	srv := sqstest.NewServer(nil)
	if url, err := srv.CreateQueue("a.fifo", nil); err != nil || url != sqstest.InProcessURL+"/000000000000/a.fifo" {
		t.Fatal(url, err)
	}
	_, err := srv.CreateQueue("a b", nil)
	var e *sqstest.Error
	if !errors.As(err, &e) || e.Code != "InvalidParameterValue" {
		t.Fatalf("got %v", err)
	}
	if q := srv.Queues(); len(q) != 1 || q[0] != "a.fifo" {
		t.Fatalf("queues %v", q)
	}
}

func TestFault_CallerGivesUpDuringDelay(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.srv.Fault("SendMessage", func(sqstest.Call) *sqstest.Fault { return &sqstest.Fault{Delay: time.Hour} })
		ctx, cancel := context.WithTimeout(x.Context(), time.Second)
		defer cancel()
		_, err := x.c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: aws.String("a")})
		if !errors.Is(err, context.DeadlineExceeded) || x.srv.Queue("q").Counts().Sent != 0 {
			x.Fatalf("got %v", err)
		}
		if c := x.srv.Calls("SendMessage")[0]; c.Code != "dropped" || !c.Done {
			x.Fatalf("logged %+v", c)
		}
	})
}
