package sqstest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// worker stands for your consumer: it handles one message and deletes it if
// the handler succeeds.
func worker(ctx context.Context, client *sqs.Client, url string, handle func(body string) error) error {
	out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
	if err != nil {
		return err
	}
	for _, m := range out.Messages {
		if handle(*m.Body) != nil {
			continue // it comes back after the visibility timeout
		}
		if _, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
			return err
		}
	}
	return nil
}

// The server stands in for SQS: give its client to the consumer and look
// inside afterwards.
func Example() {
	ctx := context.Background()
	srv := sqstest.NewServer(nil)
	url, err := srv.CreateQueue("orders", nil)
	if err != nil {
		panic(err)
	}
	client := srv.Client()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("order 1")}); err != nil {
		panic(err)
	}

	err = worker(ctx, client, url, func(body string) error {
		fmt.Println("handled", body)
		return nil
	})

	n := srv.Queue(url).Counts()
	fmt.Println("error:", err)
	fmt.Println("deleted:", n.Deleted, "left:", n.Visible+n.InFlight)
	fmt.Println("receives:", srv.CallCount("ReceiveMessage"))
	// Output:
	// handled order 1
	// error: <nil>
	// deleted: 1 left: 0
	// receives: 1
}

// A handler that outlives the visibility timeout loses its message: here the
// second worker gets it. In fake time the two minutes take no time.
func TestSlowHandlerRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sqstest.NewServer(nil)
		url, _ := srv.CreateQueue("orders", nil) // visibility timeout 30 s
		client := srv.Client()
		client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("order 1")})

		var runs atomic.Int32
		slow := func(string) error {
			runs.Add(1)
			time.Sleep(2 * time.Minute)
			return nil
		}
		go worker(t.Context(), client, url, slow)
		time.Sleep(31 * time.Second)
		go worker(t.Context(), client, url, slow)
		time.Sleep(5 * time.Minute)

		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

// The reply to a delete is lost. The message is gone, but the worker does not
// know.
func ExampleServer_Fault() {
	ctx := context.Background()
	srv := sqstest.NewServer(nil)
	url, _ := srv.CreateQueue("orders", nil)
	client := srv.Client(func(o *sqs.Options) { o.RetryMaxAttempts = 1 })
	client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("order 1")})

	srv.Fault("DeleteMessage", sqstest.Times(1, sqstest.Fault{DropReply: true}))
	err := worker(ctx, client, url, func(string) error { return nil })

	fmt.Println("worker sees an error:", err != nil)
	fmt.Println("deleted:", srv.Queue(url).Counts().Deleted)
	// Output:
	// worker sees an error: true
	// deleted: 1
}

// A deleted message comes back, as SQS may do in rare cases.
func ExampleServer_Redeliver() {
	ctx := context.Background()
	srv := sqstest.NewServer(nil)
	url, _ := srv.CreateQueue("orders", nil)
	client := srv.Client()
	sent, _ := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("order 1")})

	handle := func(body string) error {
		fmt.Println("handled", body)
		return nil
	}
	worker(ctx, client, url, handle)
	srv.Redeliver(url, *sent.MessageId)
	worker(ctx, client, url, handle)
	// Output:
	// handled order 1
	// handled order 1
}
