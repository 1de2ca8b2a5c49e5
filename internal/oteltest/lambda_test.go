package oteltest

import (
	"context"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"go.opentelemetry.io/otel/trace"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqslambda"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

func TestLambdaSpans(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		h, err := sqslambda.New(secondrun.Wrap(r.g, func(m keyfn.Message) (string, error) {
			id, err := keyfn.JSON("id")(m)
			return canaryKey + id, err
		}, func(_ context.Context, m *sqsadapter.Message) error {
			if m.Raw.MessageId != nil && *m.Raw.MessageId == "m2" {
				return secondrun.Transient(errCanary)
			}
			return nil
		}), nil)
		if err != nil {
			r.Fatal(err)
		}
		record := func(id, key string) events.SQSMessage {
			return events.SQSMessage{
				MessageId: id, EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:orders", Body: `{"id":"` + key + `","secret":"` + canaryPayload + `"}`,
				MessageAttributes: map[string]events.SQSMessageAttribute{"traceparent": {DataType: "String", StringValue: aws.String(producer)}},
			}
		}
		ctx, invocation := r.tel.TracerProvider.Tracer("lambda").Start(r.Context(), "invocation")
		res, err := h.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{record("m1", "a"), record("m2", "b"), record("m3", "a")}})
		invocation.End()
		if err != nil || len(res.BatchItemFailures) != 1 {
			r.Fatal(res, err)
		}
		spans := r.named("process orders")
		if len(spans) != 3 {
			r.Fatalf("%d spans", len(spans))
		}
		for i, want := range []string{"deleted", "deferred", "deleted"} {
			s := spans[i]
			r.has(s, map[string]string{"secondrun.settled": want, "messaging.system": "aws_sqs", "messaging.operation.type": "process"})
			r.linked(s, "message", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
			if s.SpanKind != trace.SpanKindConsumer || s.Parent.SpanID() != invocation.SpanContext().SpanID() {
				r.Error("the span is not below the invocation's")
			}
		}
		for _, c := range r.named(claimSpan) {
			if len(c.Links) > 0 && c.Links[0].Attributes[0].Value.AsString() == "message" {
				r.Error("the claim has the link of its message")
			}
		}
		r.counted(2, "secondrun.sqs.messages", "result=deleted")
	})
}
