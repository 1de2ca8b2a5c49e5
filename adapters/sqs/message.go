package sqsadapter

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.opentelemetry.io/otel/trace"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// Message is one delivery of an SQS message. It implements the message that
// key functions read: Body is the body, Header a message attribute.
type Message struct {
	// Raw is the message as it was received. It must not be changed. Its
	// MessageId and ReceiptHandle change with redrives and deliveries: they
	// are no keys.
	Raw types.Message
	// QueueURL is the queue it was received from.
	QueueURL string

	body []byte
	span trace.Span // of its processing; nil unless traced
}

// NewMessage returns the message for a delivery that was received from the
// queue, for tests of handlers and for loops that do not use [Handler].
func NewMessage(queueURL string, raw types.Message) *Message {
	return &Message{Raw: raw, QueueURL: queueURL, body: []byte(aws.ToString(raw.Body))}
}

// Body returns the body. It must not be changed.
func (m *Message) Body() []byte { return m.body }

// Header returns the message attribute of that name, nil when there is none. A
// binary attribute is returned as its bytes.
func (m *Message) Header(name string) []string {
	v, ok := m.Raw.MessageAttributes[name]
	switch {
	case !ok:
		return nil
	case v.StringValue != nil:
		return []string{*v.StringValue}
	case v.BinaryValue != nil:
		return []string{string(v.BinaryValue)}
	}
	return nil
}

// ReceiveCount is the number of times SQS has handed out the message, over all
// queues it was in; it counts receives, not runs. Zero means unknown.
func (m *Message) ReceiveCount() int {
	n, _ := strconv.Atoi(m.Raw.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	return n
}

// Group is the message group, empty when there is none. On a standard queue
// (fair queues) it implies no order.
func (m *Message) Group() string {
	return m.Raw.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
}

func (m *Message) id() string     { return aws.ToString(m.Raw.MessageId) }
func (m *Message) handle() string { return aws.ToString(m.Raw.ReceiptHandle) }

func (m *Message) delivery() secondrun.Delivery {
	return secondrun.Delivery{Message: m, ID: m.id()}
}
