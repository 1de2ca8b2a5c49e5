package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqslambda"
	"github.com/secondrun/secondrun/examples/internal/demoqueue"
)

// local does what an event source mapping does: it receives, invokes the
// function, and deletes what the function did not report.
func local(ctx context.Context, h *sqslambda.Handler) error {
	var messages []demoqueue.Message
	for i, id := range []string{"p-1", "p-2", "p-3", "p-1"} { // p-1 was sent twice
		messages = append(messages, demoqueue.Message{Body: fmt.Sprintf(
			`{"id":"6f3a-%d","detail-type":"PurchaseApproved","source":"com.example.purchases","detail":{"purchaseId":%q}}`, i, id)})
	}
	queue, err := demoqueue.Open(ctx, "purchases", messages...)
	if err != nil {
		return err
	}
	ctx, cancel := queue.Until(ctx)
	defer cancel()
	for ctx.Err() == nil {
		out, err := queue.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queue.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, VisibilityTimeout: 3, // six times the function's timeout, in production
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			break // the queue is empty
		}
		if err := invoke(ctx, queue, h, out.Messages); err != nil {
			return err
		}
	}
	return nil
}

func invoke(ctx context.Context, queue *demoqueue.Queue, h *sqslambda.Handler, received []types.Message) error {
	var event events.SQSEvent
	for _, m := range received {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: aws.ToString(m.MessageId), ReceiptHandle: aws.ToString(m.ReceiptHandle), Body: aws.ToString(m.Body),
			Attributes: m.Attributes, EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:purchases",
		})
	}
	timeout, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := h.Handle(timeout, event)
	if err != nil {
		return err
	}
	failed := map[string]bool{}
	for _, f := range answer.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	for _, m := range received {
		if failed[aws.ToString(m.MessageId)] {
			continue
		}
		_, err := queue.Client.DeleteMessage(context.WithoutCancel(ctx), &sqs.DeleteMessageInput{QueueUrl: &queue.URL, ReceiptHandle: m.ReceiptHandle})
		if err != nil {
			return err
		}
	}
	return nil
}
