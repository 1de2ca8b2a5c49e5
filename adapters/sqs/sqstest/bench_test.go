package sqstest_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// One message sent, received and deleted: three calls of the SDK, whose own
// work is the larger part.
func BenchmarkSendReceiveDelete(b *testing.B) {
	srv := sqstest.NewServer(nil)
	url, err := srv.CreateQueue("q", nil)
	if err != nil {
		b.Fatal(err)
	}
	c, ctx := srv.Client(), b.Context()
	for b.Loop() {
		if _, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("m")}); err != nil {
			b.Fatal(err)
		}
		out, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url})
		if err != nil || len(out.Messages) != 1 {
			b.Fatal(out, err)
		}
		if _, err := c.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: out.Messages[0].ReceiptHandle}); err != nil {
			b.Fatal(err)
		}
	}
}
