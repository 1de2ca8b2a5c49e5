// Package demoqueue gives the SQS examples their queue: the one that QUEUE_URL
// names, with the SDK's usual configuration, or else one in memory that has a
// few messages.
package demoqueue

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// Queue is a queue and a client for it.
type Queue struct {
	Client *sqs.Client
	URL    string
	memory *sqstest.Server // nil if the queue is a real one
}

// Message is one message of a queue in memory. Group is for FIFO queues.
type Message struct{ Body, Group string }

// Open returns the queue. The name is that of the queue in memory, which is a
// FIFO queue if it ends in ".fifo"; the messages go there only.
func Open(ctx context.Context, name string, messages ...Message) (*Queue, error) {
	if url := os.Getenv("QUEUE_URL"); url != "" {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		return &Queue{Client: sqs.NewFromConfig(cfg), URL: url}, nil
	}
	srv := sqstest.NewServer(nil)
	q := &Queue{Client: srv.Client(), memory: srv}
	base, suffix := strings.CutSuffix(name, ".fifo")
	dead, attrs := base+"-dead", map[string]string{}
	if suffix {
		dead, attrs["FifoQueue"] = dead+".fifo", "true"
	}
	if _, err := srv.CreateQueue(dead, attrs); err != nil {
		return nil, err
	}
	attrs["RedrivePolicy"] = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` + dead + `","maxReceiveCount":"20"}`
	url, err := srv.CreateQueue(name, attrs)
	if err != nil {
		return nil, err
	}
	q.URL = url
	for i, m := range messages {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &m.Body}
		if suffix {
			in.MessageGroupId, in.MessageDeduplicationId = &m.Group, deduplication(i)
		}
		if _, err := q.Client.SendMessage(ctx, in); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// deduplication lets equal bodies through: they are what the examples are about.
func deduplication(i int) *string {
	id := string(rune('a' + i))
	return &id
}

// Until returns a context that ends with ctx, and, for a queue in memory, when
// the queue has been empty for a moment.
func (q *Queue) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if q.memory == nil {
		return ctx, cancel
	}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			if c := q.memory.Queue(q.URL).Counts(); c.Visible+c.InFlight+c.Delayed == 0 {
				cancel()
			}
		}
	}()
	return ctx, cancel
}
