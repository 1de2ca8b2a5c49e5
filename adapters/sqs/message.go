package sqsadapter

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.opentelemetry.io/otel/trace"

	"github.com/secondrun/secondrun/keyfn"
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
	view keyfn.Message // answers Body and Header, if there is one
	span trace.Span    // of its processing; nil unless traced
}

// NewMessage returns the message for a delivery that was received from the
// queue, for tests of handlers and for loops that do not use [Handler].
func NewMessage(queueURL string, raw types.Message) *Message {
	return &Message{Raw: raw, QueueURL: queueURL, body: []byte(aws.ToString(raw.Body))}
}

// View returns a copy of the message whose Body and Header answer from what the
// view finds in it; Raw stays. It is what [Options.View] does, for tests of
// handlers. A panic of the view is an error.
func (m *Message) View(v keyfn.View) (seen *Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			seen, err = nil, fmt.Errorf("sqs: the view panicked (%T)", p)
		}
	}()
	inner, err := v(m)
	if err != nil {
		return nil, err
	}
	if inner == nil {
		return nil, errors.New("sqs: the view returned no message")
	}
	c := *m // the view may refer to m
	c.view = inner
	return &c, nil
}

// Body returns the body, as Options.View sees it. It must not be changed.
func (m *Message) Body() []byte {
	if m.view != nil {
		return m.view.Body()
	}
	return m.body
}

// Header returns the message attribute of that name, nil when there is none. A
// binary attribute is returned as its bytes. With Options.View it is what the
// view answers.
func (m *Message) Header(name string) []string {
	if m.view != nil {
		return m.view.Header(name)
	}
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
	n, _ := strconv.Atoi(m.system(types.MessageSystemAttributeNameApproximateReceiveCount))
	return n
}

// Group is the message group, empty when there is none. On a standard queue
// (fair queues) it implies no order.
func (m *Message) Group() string { return m.system(types.MessageSystemAttributeNameMessageGroupId) }

func (m *Message) system(name types.MessageSystemAttributeName) string {
	return m.Raw.Attributes[string(name)]
}

func (m *Message) id() string     { return aws.ToString(m.Raw.MessageId) }
func (m *Message) handle() string { return aws.ToString(m.Raw.ReceiptHandle) }
