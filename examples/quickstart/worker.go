package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/sqlitestore"
)

// hold is the visibility timeout of the plain worker, and visibility timeout
// and lease of the protected one. It is short so that the demo is.
const hold = 3 * time.Second

// worker consumes one queue, with secondrun or without. It runs in a goroutine
// of the demo, or in a process of its own where one is to be killed.
type worker struct {
	sqs   string // endpoint
	queue string // URL
	db    string // path of the SQLite file; empty means without secondrun
	shop  string // URL of the shop
	slow  time.Duration
}

// workerProcess is the main function of a worker process.
func workerProcess(args []string) error {
	var w worker
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.StringVar(&w.sqs, "sqs", "", "SQS endpoint")
	f.StringVar(&w.queue, "queue", "", "queue URL")
	f.StringVar(&w.db, "db", "", "SQLite file; empty means without secondrun")
	f.StringVar(&w.shop, "shop", "", "URL of the shop")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return w.run(ctx)
}

func (w *worker) client() *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(w.sqs), Region: "us-east-1",
		RetryMaxAttempts: 1, // the demo's outage is shorter than the SDK is patient
		Credentials:      credentials.NewStaticCredentialsProvider("demo", "demo", ""),
	})
}

func (w *worker) run(ctx context.Context) error {
	if w.db == "" {
		return w.runPlain(ctx)
	}
	st, err := sqlitestore.Open(ctx, w.db, nil)
	if err != nil {
		return err
	}
	defer st.Close() //nolint:errcheck // nothing is left to write
	s := &shop{url: w.shop, mode: with}
	g, err := secondrun.New("checkout", st, &secondrun.Options{
		Lease:   hold,
		Backoff: secondrun.Backoff{Base: 500 * time.Millisecond},
		OnEvent: func(_ context.Context, e secondrun.Event) {
			if e.Kind == secondrun.EventSuppressed {
				s.suppressed()
			}
		},
	})
	if err != nil {
		return err
	}
	c, err := sqsadapter.NewConsumer(w.client(), w.queue, protected(g, s, w.slow), &sqsadapter.Options{
		DeadLetter: sqsadapter.Discard, Visibility: hold, Wait: time.Second, SettleTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// runPlain is the loop that everybody writes first: receive, handle, delete.
func (w *worker) runPlain(ctx context.Context) error {
	client, s := w.client(), &shop{url: w.shop, mode: without}
	for ctx.Err() == nil {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &w.queue, WaitTimeSeconds: 1})
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		for _, m := range out.Messages {
			if plain(ctx, []byte(aws.ToString(m.Body)), s, w.slow) != nil {
				continue // comes back after the visibility timeout
			}
			_, _ = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &w.queue, ReceiptHandle: m.ReceiptHandle})
		}
	}
	return nil
}
