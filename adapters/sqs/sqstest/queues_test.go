package sqstest_test

import (
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

func optionsWithLimit(n int) *sqstest.Options { return &sqstest.Options{InFlightLimit: n} }

func TestQueue_CreateFindList(t *testing.T) {
	inBubble(t, nil, map[string]string{"VisibilityTimeout": "40"}, func(x *fixture) {
		create := func(name string, attrs map[string]string) error {
			_, err := x.c.CreateQueue(x.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attrs})
			return err
		}
		x.ok(create("q", map[string]string{"VisibilityTimeout": "40"})) // the same again
		err := create("q", map[string]string{"VisibilityTimeout": "41"})
		if !errors.As(err, new(*types.QueueNameExists)) {
			x.Fatalf("got %v", err)
		}
		x.fails(create("a.b", nil), "InvalidParameterValue", "alphanumeric")
		x.fails(create("x.fifo", nil), "InvalidParameterValue", "")
		x.fails(create("x", map[string]string{"FifoQueue": "true"}), "InvalidParameterValue", "")
		x.fails(create("x", map[string]string{"Nope": "1"}), "InvalidAttributeName", "Nope")
		x.fails(create("x", map[string]string{"VisibilityTimeout": "43201"}), "InvalidAttributeValue", "VisibilityTimeout")
		x.ok(create("q2", nil))
		x.ok(create("other", nil))

		got, err := x.c.GetQueueUrl(x.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
		x.ok(err)
		if *got.QueueUrl != x.url || x.url != sqstest.InProcessURL+"/000000000000/q" {
			x.Fatalf("url %s", *got.QueueUrl)
		}
		_, err = x.c.GetQueueUrl(x.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
		if !errors.As(err, new(*types.QueueDoesNotExist)) {
			x.Fatalf("got %v", err)
		}
		var names []string
		pages := sqs.NewListQueuesPaginator(x.c, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("q"), MaxResults: aws.Int32(1)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(x.Context())
			x.ok(err)
			for _, u := range page.QueueUrls {
				names = append(names, u[strings.LastIndex(u, "/")+1:])
			}
		}
		if fmt.Sprint(names) != "[q q2]" {
			x.Fatalf("listed %v", names)
		}
	})
}

func TestQueue_Attributes(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		out, err := x.c.GetQueueAttributes(x.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: &x.url, AttributeNames: []types.QueueAttributeName{"All"},
		})
		x.ok(err)
		for k, want := range map[string]string{
			"VisibilityTimeout": "30", "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0",
			"MessageRetentionPeriod": "345600", "MaximumMessageSize": "1048576",
			"QueueArn": "arn:aws:sqs:us-east-1:000000000000:q", "ApproximateNumberOfMessages": "0",
		} {
			if out.Attributes[k] != want {
				x.Errorf("%s is %q, want %q", k, out.Attributes[k], want)
			}
		}
		if _, ok := out.Attributes["FifoQueue"]; ok {
			x.Error("a standard queue has the attribute FifoQueue")
		}
		x.send("a", "b", "c")
		x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})
		_, err = x.c.SetQueueAttributes(x.Context(), &sqs.SetQueueAttributesInput{
			QueueUrl: &x.url, Attributes: map[string]string{"VisibilityTimeout": "7"},
		})
		x.ok(err)
		if v := x.attribute(x.url, "VisibilityTimeout"); v != "7" {
			x.Errorf("visibility timeout %s", v)
		}
		if a, b := x.attribute(x.url, "ApproximateNumberOfMessages"), x.attribute(x.url, "ApproximateNumberOfMessagesNotVisible"); a != "2" || b != "1" {
			x.Errorf("numbers %s and %s", a, b)
		}
		_, err = x.c.GetQueueAttributes(x.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: &x.url, AttributeNames: []types.QueueAttributeName{"Nope"},
		})
		x.fails(err, "InvalidAttributeName", "Nope")
	})
}

func TestQueue_DeleteEndsPollsAndHandles(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		time.AfterFunc(2*time.Second, func() {
			_, _ = x.c.DeleteQueue(x.Context(), &sqs.DeleteQueueInput{QueueUrl: &x.url})
			_, _ = x.c.CreateQueue(x.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")}) // at once, unless Cooldowns
		})
		_, err := x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: &x.url, WaitTimeSeconds: 20})
		if !errors.As(err, new(*types.QueueDoesNotExist)) {
			x.Fatalf("got %v", err)
		}
		after(time.Second) // the queue is there again
		if err := x.delete(m); !errors.As(err, new(*types.ReceiptHandleIsInvalid)) {
			x.Fatalf("got %v: the handle is of another queue of that name", err)
		}
		_, err = x.c.DeleteQueue(x.Context(), &sqs.DeleteQueueInput{QueueUrl: &x.url})
		x.ok(err)
		x.fails(x.delete(m), "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
	})
}

func TestQueue_Cooldowns(t *testing.T) {
	inBubble(t, &sqstest.Options{Cooldowns: true}, nil, func(x *fixture) {
		purge := func() error {
			_, err := x.c.PurgeQueue(x.Context(), &sqs.PurgeQueueInput{QueueUrl: &x.url})
			return err
		}
		x.ok(purge())
		after(59 * time.Second)
		if err := purge(); !errors.As(err, new(*types.PurgeQueueInProgress)) {
			x.Fatalf("got %v", err)
		}
		after(time.Second)
		x.ok(purge())
		_, err := x.c.DeleteQueue(x.Context(), &sqs.DeleteQueueInput{QueueUrl: &x.url})
		x.ok(err)
		_, err = x.c.CreateQueue(x.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
		if !errors.As(err, new(*types.QueueDeletedRecently)) {
			x.Fatalf("got %v", err)
		}
		after(time.Minute)
		x.create("q", nil)
	})
}

func TestQueue_Tags(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		_, err := x.c.TagQueue(x.Context(), &sqs.TagQueueInput{QueueUrl: &x.url, Tags: map[string]string{"a": "1", "b": "2"}})
		x.ok(err)
		_, err = x.c.UntagQueue(x.Context(), &sqs.UntagQueueInput{QueueUrl: &x.url, TagKeys: []string{"a"}})
		x.ok(err)
		out, err := x.c.ListQueueTags(x.Context(), &sqs.ListQueueTagsInput{QueueUrl: &x.url})
		x.ok(err)
		if fmt.Sprint(out.Tags) != "map[b:2]" {
			x.Fatalf("tags %v", out.Tags)
		}
	})
}

func TestErrors_WithoutTheQueryHeader(t *testing.T) {
	inBubble(t, &sqstest.Options{OmitQueryErrors: true}, nil, func(x *fixture) {
		_, err := x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: &x.url, MaxNumberOfMessages: 11})
		x.fails(err, "InvalidParameterValueException", "Must be between 1 and 10")
		_, err = x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("none")})
		x.fails(err, "QueueDoesNotExist", "")
	})
}

func TestReceive_Ranges(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		for _, in := range []sqs.ReceiveMessageInput{
			{MaxNumberOfMessages: 11}, {MaxNumberOfMessages: -1}, {WaitTimeSeconds: 21}, {VisibilityTimeout: 43201},
		} {
			in.QueueUrl = &x.url
			_, err := x.c.ReceiveMessage(x.Context(), &in)
			x.fails(err, "InvalidParameterValue", "if provided")
		}
	})
}
