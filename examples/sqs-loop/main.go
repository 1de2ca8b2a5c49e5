// Command sqs-loop is a program that has a receive loop of its own, and keeps
// it: a Handler holds, claims, runs and settles what the loop has received.
//
//	go run ./examples/sqs-loop
//
// It uses the queue that QUEUE_URL names, or one in memory with three messages,
// two of which are the same order.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/examples/internal/demoqueue"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
}

type order struct {
	ID string `json:"id"`
}

func run(ctx context.Context, out io.Writer) error {
	queue, err := demoqueue.Open(ctx, "orders",
		demoqueue.Message{Body: `{"id":"9f3a"}`}, demoqueue.Message{Body: `{"id":"9f3a"}`}, demoqueue.Message{Body: `{"id":"9f3b"}`})
	if err != nil {
		return err
	}
	ctx, cancel := queue.Until(ctx)
	defer cancel()
	g, err := secondrun.New("shop", memstore.New(nil), nil) // in production: pgstore.Open
	if err != nil {
		return err
	}
	h := secondrun.WrapJSON(g, keyfn.Template("order:{id}:fulfil"), func(_ context.Context, in order) error {
		_, err := fmt.Fprintf(out, "fulfilled %s\n", in.ID)
		return err
	})
	return loop(ctx, queue.Client, queue.URL, h)
}

// loop is what was there before, but for the handler.
func loop(ctx context.Context, client *sqs.Client, queueURL string, wrapped secondrun.Wrapped) error {
	h, err := sqsadapter.NewHandler(ctx, client, queueURL, wrapped, &sqsadapter.Options{Visibility: 30 * time.Second})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, VisibilityTimeout: 30,
			MessageAttributeNames:       []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				log.Print(err)
				time.Sleep(time.Second)
			}
			continue
		}
		if err := h.Handle(ctx, out.Messages...); err != nil {
			log.Print(err) // all messages are settled: there is nothing else to do about it
		}
	}
	return nil
}
