package bad

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

type sqsMessage struct {
	MessageId     string
	ReceiptHandle string
	Attempt       int
}

func (sqsMessage) Body() []byte           { return nil }
func (sqsMessage) Header(string) []string { return nil }

var (
	_ = keyfn.Header("MessageId")                        // want `transport: the broker's message id is new`
	_ = keyfn.Header("x-message-id")                     // want `transport: the broker's message id`
	_ = keyfn.AnyHeader("webhook", "X-Slack-Retry-Num")  // want `transport: the number of a retry`
	_ = keyfn.Header("X-Shopify-Webhook-Id")             // want `transport: this id names a delivery`
	_ = keyfn.Header("traceparent")                      // want `transport: a trace id`
	_ = keyfn.JSON("Records.0.messageId")                // want `transport: the broker's message id`
	_ = keyfn.JSON("request.id")                         // want `transport: the id of a request`
	_ = keyfn.JSONText("/meta/attempt")                  // want `transport: the number of an attempt`
	_ = keyfn.Template("order:{orderId}:{attempt}")      // want `transport: the number of an attempt`
	_ = keyfn.Template("order:{header:ReceiptHandle}")   // want `transport: a receipt handle`
	_ = keyfn.Template("order:{text:meta.delivery_tag}") // want `transport: a delivery tag`
	_ = keyfn.Hash(keyfn.Keep("orderId", "trace_id"))    // want `transport: a trace id`
	_ = keyfn.Func(func(m keyfn.Message) (string, error) {
		return m.(sqsMessage).MessageId, nil // want `transport: the broker's message id`
	})
	_ = keyfn.From(func(m sqsMessage) (string, error) {
		return "order:" + m.ReceiptHandle, nil // want `transport: a receipt handle`
	})
)

func byHeader(m keyfn.Message) (string, error) {
	return m.Header("Message-ID")[0], nil // want `transport: the broker's message id`
}

func named(m sqsMessage) (string, error) {
	return helper(m), nil
}

func helper(m sqsMessage) string {
	return string(rune(m.Attempt)) // want `transport: the number of an attempt`
}

var _ = keyfn.From(named)

func do(ctx context.Context, g *secondrun.Guard, m sqsMessage) error {
	return g.Do(ctx, "order:"+m.MessageId, nil) // want `transport: the broker's message id`
}

func effectNames(ctx context.Context, to []string, m sqsMessage) {
	for i := range to {
		_ = secondrun.OnceFunc(ctx, fmt.Sprint("mail:", i), nil) // want `transport: a position in a list`
	}
	for try := 0; try < 3; try++ {
		_, _ = secondrun.EffectKey(ctx, fmt.Sprintf("charge:%d", try)) // want `transport: a position in a list`
	}
	_ = secondrun.OnceFunc(ctx, "mail:"+m.MessageId, nil)      // want `transport: the broker's message id`
	_ = secondrun.OnceFunc(ctx, "mail:"+uuid.NewString(), nil) // want `random: uuid.NewString in a key`
}
