package sqsadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	secondrun "github.com/secondrun/secondrun/middleware"
)

const payload = `{"event":"order.paid","orderId":"ord-88213","amount":4200}`

// wrapped is payload as SNS wraps it; n tells publications apart.
func wrapped(n int, message string) string {
	body, _ := json.Marshal(map[string]any{
		"Type": "Notification", "MessageId": fmt.Sprintf("5b1c9f0e-%04d", n), "TopicArn": "arn:aws:sns:eu-west-1:111122223333:orders",
		"Message": message, "Timestamp": fmt.Sprintf("2026-09-14T10:15:%02d.606Z", n), "Signature": fmt.Sprint("AAAA", n),
		"MessageAttributes": map[string]any{"event_id": map[string]string{"Type": "String", "Value": "ev-70001"}},
	})
	return string(body)
}

func (r *rig) sendBody(body string, attrs map[string]string) {
	r.t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &r.url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, value := range attrs {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
	}
	_, err := r.client.SendMessage(r.t.Context(), in)
	r.must(err)
}

// consume starts a consumer with any key function, and collects the bodies that
// handlers saw.
func (r *rig) consume(key keyfn.Func, f func(m *sqsadapter.Message) error) *[]string {
	r.t.Helper()
	bodies := &[]string{}
	h := secondrun.Wrap(r.guard, key, func(_ context.Context, m *sqsadapter.Message) error {
		r.mu.Lock()
		*bodies = append(*bodies, string(m.Body()))
		r.runs = append(r.runs, "")
		r.mu.Unlock()
		return f(m)
	})
	r.run(h)
	return bodies
}

func fine(*sqsadapter.Message) error { return nil }

func (r *rig) deadReasons() (reasons []string) {
	for _, m := range r.srv.Queue(r.dead).Messages() {
		reasons = append(reasons, m.Attributes[sqsadapter.AttributeReason])
	}
	slices.Sort(reasons)
	return reasons
}

// U01 A, A2, B: the event wrapped by SNS, published again, and delivered raw is
// one event by a key of its body and by a key of an attribute; the handler sees
// the same payload.
func TestU01_WrappedAndRaw(t *testing.T) {
	for name, key := range map[string]keyfn.Func{"body": keyfn.Template("{event}:{orderId}"), "attribute": keyfn.Header("event_id")} {
		for first := range 3 {
			t.Run(fmt.Sprintf("%s, first %d", name, first), func(t *testing.T) {
				everyPolicy(t, func(r *rig) {
					r.opt.View = awskey.SNS
					sends := []func(){
						func() { r.sendBody(wrapped(1, payload), nil) },
						func() { r.sendBody(wrapped(2, payload), nil) },
						func() { r.sendBody(payload, map[string]string{"event_id": "ev-70001"}) },
					}
					bodies := r.consume(key, fine)
					for i := range sends {
						sends[(first+i)%3]()
						r.sleep(time.Second)
					}
					r.sleep(time.Minute)
					r.settled(1)
					if !slices.Equal(*bodies, []string{payload}) {
						r.t.Errorf("the handler saw %q", *bodies)
					}
				})
			})
		}
	}
}

// U01 D, E, F: what only looks like an envelope is not opened; what is in one
// and has no key is dead-lettered as it came.
func TestU01_Lookalikes(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.View = awskey.SNS
		lookalike := `{"Type":"Notification","Message":"hello","orderId":"ord-1"}`
		r.sendBody(lookalike, nil)
		r.sendBody(wrapped(1, "plain text"), nil)
		r.sendBody(wrapped(2, ""), nil)
		bodies := r.consume(keyfn.JSON("orderId"), fine)
		r.sleep(time.Minute)
		r.settled(1)
		if !slices.Equal(*bodies, []string{lookalike}) {
			r.t.Errorf("the handler saw %q", *bodies)
		}
		if got := r.deadReasons(); !slices.Equal(got, []string{"no key", "no key"}) {
			r.t.Errorf("dead letters: %q", got)
		}
		for _, m := range r.srv.Queue(r.dead).Messages() {
			if !strings.Contains(m.Body, "TopicArn") {
				r.t.Errorf("the copy lost its envelope: %s", m.Body)
			}
		}
	})
}

// U01 C and S3: through SNS, one record runs; the test event is acknowledged
// without a run; several records in one message are dead-lettered, with a reason
// of their own.
func TestView_S3(t *testing.T) {
	const record = `{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"inbox"},"object":{"key":"a.jpg","eTag":"e1","sequencer":"01"}}}`
	everyPolicy(t, func(r *rig) {
		skipped := 0
		r.guard = r.newGuard(&secondrun.Options{OnEvent: func(_ context.Context, e secondrun.Event) {
			if e.Kind == secondrun.EventSkipped {
				skipped++
			}
		}})
		r.opt.View = awskey.SNS
		r.sendBody(wrapped(1, `{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026-09-14T10:15:00.000Z","Bucket":"inbox"}`), nil)
		r.sendBody(wrapped(2, `{"Records":[`+record+`]}`), nil)
		r.sendBody(`{"Records":[`+record+`]}`, nil)
		r.sendBody(`{"Records":[`+record+`,`+record+`]}`, nil)
		bodies := r.consume(awskey.S3(), fine)
		r.sleep(time.Minute)
		r.settled(1)
		if !slices.Equal(*bodies, []string{`{"Records":[` + record + `]}`}) {
			r.t.Errorf("the handler saw %q", *bodies)
		}
		if got := r.deadReasons(); !slices.Equal(got, []string{"several events in one message"}) || skipped != 1 {
			r.t.Errorf("dead letters: %q, %d skipped", got, skipped)
		}
	})
}

// EventBridge: the id of the event is new when the producer sends again; the
// detail is not.
func TestView_EventBridge(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.View = awskey.EventBridge
		for i := range 2 {
			r.sendBody(fmt.Sprintf(`{"id":"6f3a-%d","detail-type":"PurchaseApproved","source":"com.example.purchases","time":"2026-09-14T10:15:0%dZ","detail":{"purchaseId":"p-1"}}`, i, i), nil)
		}
		r.sendBody(`{"detail":"no such event"}`, nil)
		bodies := r.consume(keyfn.Template("{header:source}:{purchaseId}"), fine)
		r.sleep(time.Minute)
		r.settled(1)
		if !slices.Equal(*bodies, []string{`{"purchaseId":"p-1"}`}) || r.deadCount() != 1 {
			r.t.Errorf("the handler saw %q, %d dead letters", *bodies, r.deadCount())
		}
	})
}

// pointer is what the extended clients send in place of a large payload.
func pointer(key string) string {
	return fmt.Sprintf(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"big","s3Key":%q}]`, key)
}

type unavailable struct{}

func (unavailable) Error() string       { return "503" }
func (unavailable) HTTPStatusCode() int { return 503 }

// A pointer to a large payload is no key: it is refused, or resolved by a view,
// whose errors that pass are retried.
func TestView_LargePayload(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		everyPolicy(t, func(r *rig) {
			r.sendBody(pointer("o-1"), nil)
			r.consume(keyfn.JSON("orderId"), fine)
			r.sleep(time.Minute)
			r.settled(0)
			if got := r.deadReasons(); !slices.Equal(got, []string{"pointer to a payload"}) {
				r.t.Errorf("dead letters: %q", got)
			}
		})
	})
	t.Run("resolved", func(t *testing.T) {
		everyPolicy(t, func(r *rig) {
			calls := 0
			r.opt.View = func(m keyfn.Message) (keyfn.Message, error) {
				if calls++; calls == 1 {
					return nil, unavailable{}
				}
				return keyfn.WithBody(m, []byte(payload)), nil
			}
			r.sendBody(pointer("o-1"), nil)
			bodies := r.consume(keyfn.JSON("orderId"), fine)
			r.sleep(time.Minute)
			r.sendBody(pointer("o-2"), nil) // the producer sent again
			r.sleep(time.Minute)
			r.settled(1)
			if !slices.Equal(*bodies, []string{payload}) || r.deadCount() != 0 {
				r.t.Errorf("the handler saw %q, %d dead letters", *bodies, r.deadCount())
			}
		})
	})
}

// A view that fails for good, panics or finds nothing costs its own message
// only.
func TestView_Faults(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.View = func(m keyfn.Message) (keyfn.Message, error) {
			switch string(m.Body()) {
			case `{"id":"bad"}`:
				return nil, errors.New("access denied")
			case `{"id":"panics"}`:
				panic("secret")
			case `{"id":"nil"}`:
				return nil, nil
			}
			return m, nil
		}
		r.send("good", "bad", "panics", "nil")
		r.start(succeeds)
		r.sleep(time.Minute)
		r.settled(1)
		if r.deadCount() != 3 {
			r.t.Errorf("%d dead letters, want 3", r.deadCount())
		}
	})
}
