package sqsadapter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

func TestConsumer_DuplicatesRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sqstest.NewServer(nil)
		url, err := srv.CreateQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := srv.Client()
		g, err := secondrun.New("billing", seeded.Correct(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		h := secondrun.Wrap(g, keyfn.Template("order:{id}"), func(ctx context.Context, m *sqsadapter.Message) error {
			n := runs.Add(1)
			time.Sleep(5 * time.Minute) // far beyond the visibility timeout
			if n == 1 {
				return secondrun.Transient(errors.New("once more"))
			}
			return ctx.Err()
		})
		for range 3 {
			if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(`{"id":"o-1"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := sqsadapter.NewConsumer(client, url, h, &sqsadapter.Options{
			DeadLetter: sqsadapter.Discard,
			OnEvent:    func(_ context.Context, e sqsadapter.Event) { t.Log(time.Now().Format("15:04:05"), e.Kind, e.Count, e.Text, e.Err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if runs.Load() != 2 {
			t.Errorf("runs = %d, want 2", runs.Load())
		}
	})
}
