package oteltest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

// queue is a queue with a consumer of its messages.
type queue struct {
	*rig
	srv    *sqstest.Server
	client *sqs.Client
	url    string
}

func consuming(t *testing.T, change func(*secondrun.Options), h func(context.Context, *sqsadapter.Message) error, f func(q *queue)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, recording: record(t), st: &spy{Store: memstore.New(nil)}}
		r.opt = secondrun.Options{Lease: lease, Telemetry: &r.tel, OnEvent: secondrun.LogEvents(r.logger())}
		if change != nil {
			change(&r.opt)
		}
		r.g = r.guard("billing")
		srv := sqstest.NewServer(nil)
		dead, err := srv.CreateQueue("dead", nil)
		if err != nil {
			t.Fatal(err)
		}
		url, err := srv.CreateQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		q := &queue{r, srv, srv.Client(), url}
		c, err := sqsadapter.NewConsumer(q.client, url, secondrun.Wrap(r.g, func(m keyfn.Message) (string, error) {
			id, err := keyfn.JSON("id")(m)
			return canaryKey + id, err
		}, h), &sqsadapter.Options{DeadLetter: sqsadapter.To(dead), OnEvent: sqsadapter.LogEvents(r.logger())})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		f(q)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.noCanaries(r.st)
	})
}

func (q *queue) send(id string, attributes map[string]string) {
	q.Helper()
	in := &sqs.SendMessageInput{
		QueueUrl: &q.url, MessageBody: aws.String(`{"id":"` + id + `","secret":"` + canaryPayload + `"}`),
		MessageAttributes: map[string]types.MessageAttributeValue{},
	}
	for name, v := range attributes {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	if _, err := q.client.SendMessage(q.Context(), in); err != nil {
		q.Fatal(err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

func (q *queue) conventions(s tracetest.SpanStub, kind trace.SpanKind, op, opType string) {
	q.Helper()
	q.has(s, map[string]string{
		"messaging.system": "aws_sqs", "messaging.destination.name": "orders", "server.address": "sqstest.invalid",
		"messaging.operation.name": op, "messaging.operation.type": opType,
	})
	if s.SpanKind != kind {
		q.Errorf("kind of %s is %v", s.Name, s.SpanKind)
	}
}

func TestSQSSpans(t *testing.T) {
	consuming(t, nil, func(context.Context, *sqsadapter.Message) error { return nil }, func(q *queue) {
		q.send("1", map[string]string{"traceparent": producer, "baggage": "tenant=" + canaryTenant})
		receive, process, ack := q.last("receive orders"), q.last("process orders"), q.last("ack orders")
		q.conventions(receive, trace.SpanKindClient, "receive", "receive")
		q.conventions(process, trace.SpanKindConsumer, "process", "process")
		q.conventions(ack, trace.SpanKindClient, "ack", "settle")
		q.has(receive, map[string]string{"messaging.batch.message_count": "1"})
		q.has(process, map[string]string{"secondrun.settled": "deleted"})
		for _, s := range []tracetest.SpanStub{receive, process} {
			q.linked(s, "message", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
		}
		claim := q.last(claimSpan)
		if claim.Parent.SpanID() != process.SpanContext.SpanID() || ack.Parent.SpanID() != process.SpanContext.SpanID() || len(claim.Links) != 0 {
			q.Error("claim and settlement are not below the message's span")
		}
		if process.EndTime.Before(ack.EndTime) || process.EndTime.Before(q.last(runSpan).EndTime) {
			q.Error("the message's span ends before it is settled")
		}
		q.counted(1, "secondrun.hold.ratio", "hold=broker")
		q.counted(1, "secondrun.sqs.messages", "result=received")
		q.counted(1, "secondrun.sqs.messages", "result=deleted", "messaging.destination.name=orders")

		q.send("1", nil) // a duplicate: the copy leads to the original
		q.linked(q.last(claimSpan), "replay", claim.SpanContext.TraceID().String(), claim.SpanContext.SpanID().String())
		q.counted(1, "secondrun.suppressed", "verdict=done")
	})
}

func TestSQSMessageAsParent(t *testing.T) {
	consuming(t, func(o *secondrun.Options) { o.Telemetry.MessageParent = true },
		func(context.Context, *sqsadapter.Message) error { return nil }, func(q *queue) {
			q.send("1", map[string]string{"traceparent": producer})
			process := q.last("process orders")
			if process.Parent.SpanID().String() != "00f067aa0ba902b7" || len(process.Links) != 0 {
				q.Errorf("parent %v, links %v", process.Parent, process.Links)
			}
			q.send("2", nil) // without one it is a root
			if q.last("process orders").Parent.IsValid() {
				q.Error("a parent out of nothing")
			}
		})
}

func TestSQSDeadLettersAndDeferrals(t *testing.T) {
	consuming(t, nil, func(_ context.Context, m *sqsadapter.Message) error {
		if strings.Contains(string(m.Body()), `"bad"`) {
			return errCanary
		}
		return secondrun.RetryAfter(errCanary, time.Minute)
	}, func(q *queue) {
		q.send("bad", nil)
		process := q.last("process orders")
		q.has(process, map[string]string{"secondrun.settled": "dead-lettered", "error.type": "dead-lettered"})
		q.status(process.Status.Code, codes.Error, "the message")
		q.conventions(q.last("dead_letter orders"), trace.SpanKindClient, "dead_letter", "settle")
		q.counted(1, "secondrun.sqs.messages", "result=dead-lettered")
		q.send("later", nil)
		q.has(q.last("process orders"), map[string]string{"secondrun.settled": "deferred"})
		q.conventions(q.last("nack orders"), trace.SpanKindClient, "nack", "settle")
		q.counted(1, "secondrun.sqs.messages", "result=deferred")
		if !strings.Contains(q.logged(), "event=dead-lettered") {
			q.Errorf("no line about the dead letter: %s", q.logged())
		}
	})
}

func TestSQSCallsThatFail(t *testing.T) {
	consuming(t, nil, func(context.Context, *sqsadapter.Message) error { return nil }, func(q *queue) {
		q.srv.Fault("ReceiveMessage", sqstest.Times(20, sqstest.Fault{Code: "OverLimit", Message: canaryError}))
		time.Sleep(time.Minute)
		receive := q.last("receive orders")
		q.has(receive, map[string]string{"error.type": "OverLimit"})
		q.status(receive.Status.Code, codes.Error, "the receive")
		time.Sleep(10 * time.Minute)
		q.srv.Fault("DeleteMessageBatch", func(sqstest.Call) *sqstest.Fault {
			return &sqstest.Fault{Code: "ReceiptHandleIsInvalid", Message: canaryError, FailEntries: func(int, string) bool { return true }}
		})
		q.send("1", nil)
		time.Sleep(20 * time.Second)
		process, ack := q.named("process orders")[0], q.named("ack orders")[0]
		q.has(ack, map[string]string{"error.type": "ReceiptHandleIsInvalid"})
		q.has(process, map[string]string{"secondrun.settled": "settle-failed", "error.type": "settle-failed"})
		if q.metric("secondrun.sqs.messages", "result=settle-failed") == 0 {
			q.Error("failed settlements are not counted")
		}
		if !strings.Contains(q.logged(), "event=poll-failed") || !strings.Contains(q.logged(), "error_type=ReceiptHandleIsInvalid") {
			q.Errorf("log: %s", q.logged())
		}
	})
}

func TestXRayHeader(t *testing.T) {
	m := sqsadapter.NewMessage("q", types.Message{
		Attributes:        map[string]string{"AWSTraceHeader": "Root=1-2"},
		MessageAttributes: map[string]types.MessageAttributeValue{"traceparent": {StringValue: aws.String(producer)}},
	})
	for name, want := range map[string]string{"X-Amzn-Trace-Id": "Root=1-2", "x-amzn-trace-id": "Root=1-2", "traceparent": producer, "b3": ""} {
		if got := m.TraceHeader(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}
