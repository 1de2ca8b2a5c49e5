package sqstest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/leaktest"
)

// TestMain fails when a goroutine is left behind.
func TestMain(m *testing.M) { leaktest.Main(m) }

// fixture is a server with one queue, seen through the real SDK.
type fixture struct {
	*testing.T
	srv *sqstest.Server
	c   *sqs.Client
	url string
}

// inBubble runs the test in fake time with a queue of the name "q", or
// "q.fifo" if the attributes say so.
func inBubble(t *testing.T, o *sqstest.Options, attrs map[string]string, f func(x *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if o == nil {
			o = &sqstest.Options{}
		}
		if o.Seed == 0 {
			o.Seed = 1
		}
		srv := sqstest.NewServer(o)
		x := &fixture{T: t, srv: srv, c: srv.Client()}
		x.url = x.create("q", attrs)
		f(x)
	})
}

var fifo = map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}

func (x *fixture) create(name string, attrs map[string]string) string {
	x.Helper()
	if attrs["FifoQueue"] == "true" {
		name += ".fifo"
	}
	out, err := x.c.CreateQueue(x.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attrs})
	if err != nil {
		x.Fatal(err)
	}
	return *out.QueueUrl
}

func (x *fixture) arn(url string) string {
	x.Helper()
	return x.attribute(url, "QueueArn")
}

func (x *fixture) attribute(url string, name types.QueueAttributeName) string {
	x.Helper()
	out, err := x.c.GetQueueAttributes(x.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		x.Fatal(err)
	}
	return out.Attributes[string(name)]
}

// send sends bodies; on a FIFO queue to group "g", or to the part of a body
// before a colon.
func (x *fixture) send(bodies ...string) []string {
	x.Helper()
	return x.sendTo(x.url, bodies...)
}

func (x *fixture) sendTo(url string, bodies ...string) []string {
	x.Helper()
	var ids []string
	for _, b := range bodies {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(b)}
		if strings.HasSuffix(url, ".fifo") {
			in.MessageGroupId = aws.String("g")
			if g, _, ok := strings.Cut(b, ":"); ok {
				in.MessageGroupId = aws.String(g)
			}
		}
		out, err := x.c.SendMessage(x.Context(), in)
		if err != nil {
			x.Fatal(err)
		}
		ids = append(ids, *out.MessageId)
	}
	return ids
}

// receive takes what is there, up to 10, for 30 s, without waiting.
func (x *fixture) receive() []types.Message {
	x.Helper()
	return x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 10})
}

func (x *fixture) receiveWith(in sqs.ReceiveMessageInput) []types.Message {
	x.Helper()
	if in.QueueUrl == nil {
		in.QueueUrl = &x.url
	}
	in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"All"}
	in.MessageAttributeNames = []string{"All"}
	out, err := x.c.ReceiveMessage(x.Context(), &in)
	if err != nil {
		x.Fatal(err)
	}
	return out.Messages
}

// one receives exactly one message.
func (x *fixture) one() types.Message {
	x.Helper()
	got := x.receive()
	if len(got) != 1 {
		x.Fatalf("received %v, want one message", bodies(got))
	}
	return got[0]
}

func (x *fixture) delete(m types.Message) error {
	_, err := x.c.DeleteMessage(x.Context(), &sqs.DeleteMessageInput{QueueUrl: &x.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (x *fixture) extend(m types.Message, seconds int32) error {
	_, err := x.c.ChangeMessageVisibility(x.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &x.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func (x *fixture) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// fails checks the code of an error and a part of its text.
func (x *fixture) fails(err error, code, text string) {
	x.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code || !strings.Contains(api.ErrorMessage(), text) {
		x.Fatalf("got error %v, want code %s with %q", err, code, text)
	}
}

// bodiesAre checks what was received, in order.
func (x *fixture) bodiesAre(got []types.Message, want ...string) {
	x.Helper()
	if g, w := strings.Join(bodies(got), " "), strings.Join(want, " "); g != w {
		x.Fatalf("received [%s], want [%s]", g, w)
	}
}

func bodies(ms []types.Message) []string {
	var out []string
	for _, m := range ms {
		out = append(out, *m.Body)
	}
	return out
}

// after waits in fake time.
func after(d time.Duration) { time.Sleep(d) }

func canceled() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
