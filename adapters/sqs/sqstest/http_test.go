package sqstest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// overHTTP returns a client with the SDK's own transport and no retries.
func overHTTP(t *testing.T, endpoint string) *sqs.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 20}
	t.Cleanup(tr.CloseIdleConnections)
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		HTTPClient: &http.Client{Transport: tr}, RetryMaxAttempts: 1,
	})
}

func TestHTTP_SendReceiveDelete(t *testing.T) {
	srv := sqstest.NewServer(nil)
	hs := httptest.NewServer(srv)
	defer hs.Close()
	c := overHTTP(t, hs.URL)
	ctx := t.Context()
	out, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil || !strings.HasPrefix(*out.QueueUrl, hs.URL+"/") {
		t.Fatal(out, err)
	}
	if _, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: out.QueueUrl, MessageBody: aws.String("<é>")}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: out.QueueUrl, WaitTimeSeconds: 5})
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].Body != "<é>" {
		t.Fatal(got, err)
	}
	_, err = c.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: out.QueueUrl, ReceiptHandle: aws.String("x")})
	if !errors.As(err, new(*types.ReceiptHandleIsInvalid)) {
		t.Fatal(err)
	}
	resp, err := http.Get(hs.URL) //nolint:noctx // a browser's request
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

func TestHTTP_DroppedReplyBreaksTheConnection(t *testing.T) {
	srv := sqstest.NewServer(nil)
	hs := httptest.NewServer(srv)
	defer hs.Close()
	c := overHTTP(t, hs.URL)
	url, err := srv.CreateQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	srv.Fault("SendMessage", sqstest.Times(1, sqstest.Fault{DropReply: true}))
	_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("a")})
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Fatalf("got %v, want a broken connection", err)
	}
	if n := srv.Queue("q").Counts().Sent; n != 1 {
		t.Fatalf("%d sent", n)
	}
}

func TestHTTP_ListenAndServeEndsLongPolls(t *testing.T) {
	srv := sqstest.NewServer(nil)
	url, err := srv.CreateQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- srv.ListenAndServe(ctx, "", func(url string) { ready <- url }) }()
	c := overHTTP(t, <-ready)
	polled := make(chan error, 1)
	go func() {
		_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
		polled <- err
	}()
	for srv.CallCount("ReceiveMessage") == 0 {
		time.Sleep(time.Millisecond) // until the poll is there, over a real socket
	}
	start := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-polled; err == nil || time.Since(start) > 5*time.Second {
		t.Fatalf("the poll ended with %v after %v", err, time.Since(start))
	}
}

// Eight consumers drain a queue: each message is handed out once.
func TestConcurrent_EachMessageOnce(t *testing.T) {
	srv := sqstest.NewServer(&sqstest.Options{Shuffle: true, ShortReceives: true})
	url, err := srv.CreateQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := srv.Client()
	const total = 500
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for srv.Queue(url).Counts().Deleted < total {
				out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range out.Messages {
					mu.Lock()
					seen[*m.Body]++
					mu.Unlock()
					if _, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range total {
		if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	for body, n := range seen {
		if n != 1 {
			t.Errorf("message %s came %d times", body, n)
		}
	}
	if len(seen) != total {
		t.Errorf("%d different messages, want %d", len(seen), total)
	}
}
