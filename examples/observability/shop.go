package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

// order is a message.
type order struct {
	ID   string `json:"id"`
	Work string `json:"work"`
}

// shop is a queue of orders, its producer and its consumer.
type shop struct {
	tracer trace.Tracer
	srv    *sqstest.Server
	client *sqs.Client
	url    string
	store  store.Store
	guard  *secondrun.Guard
	stop   func()
}

func newShop(ctx context.Context, tel *secondrun.Telemetry) (*shop, error) {
	s := &shop{srv: sqstest.NewServer(nil), store: memstore.New(nil), tracer: noop.Tracer{}}
	if tel.TracerProvider != nil {
		s.tracer = tel.TracerProvider.Tracer("producer")
	}
	s.client = s.srv.Client()
	dead, err := s.srv.CreateQueue("orders-dead", nil)
	if err != nil {
		return nil, err
	}
	if s.url, err = s.srv.CreateQueue("orders", nil); err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s.guard, err = secondrun.New("orders", s.store, &secondrun.Options{Telemetry: tel, OnEvent: secondrun.LogEvents(logger)})
	if err != nil {
		return nil, err
	}
	h := secondrun.WrapJSON(s.guard, keyfn.Template("order:{id}:fulfil"), fulfil)
	c, err := sqsadapter.NewConsumer(s.client, s.url, h, &sqsadapter.Options{
		DeadLetter: sqsadapter.To(dead), Wait: time.Second, Visibility: 3 * time.Second, OnEvent: sqsadapter.LogEvents(logger),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.stop = func() {
		cancel()
		<-done
	}
	return s, nil
}

// fulfil is the handler.
func fulfil(ctx context.Context, o order) error {
	switch o.Work {
	case "impossible":
		return secondrun.Terminal(fmt.Errorf("out of stock"))
	case "later":
		return secondrun.RetryAfter(fmt.Errorf("the warehouse does not answer"), time.Hour)
	case "slow":
		time.Sleep(1500 * time.Millisecond)
	}
	return secondrun.OnceFunc(ctx, "charge", func(context.Context) error { return nil })
}

// order sends an order, with the trace context of the sender.
func (s *shop) order(ctx context.Context, id string) error { return s.send(ctx, order{ID: id}) }

func (s *shop) send(ctx context.Context, o order) error {
	ctx, span := s.tracer.Start(ctx, "send orders", trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	in := &sqs.SendMessageInput{QueueUrl: &s.url, MessageBody: aws.String(string(body)), MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, v := range headers {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	_, err = s.client.SendMessage(ctx, in)
	return err
}

// idle waits until the queue is empty.
func (s *shop) idle(ctx context.Context) error {
	for {
		if c := s.srv.Queue(s.url).Counts(); c.Visible+c.InFlight == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
