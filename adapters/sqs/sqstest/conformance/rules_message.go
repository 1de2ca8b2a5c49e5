package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
}

func messageRules() []rule {
	return []rule{
		{"message-attributes", "attributes come back by name or all, with the documented checksum of those returned", func(p *probe) {
			p.attributes("trace", "trace")
			p.attributes("All", "order.id order.kind trace")
		}},
		{"message-attribute-prefix", "attributes come back by prefix", func(p *probe) {
			p.attributes("order.*", "order.id order.kind")
			p.attributes(".*", "order.id order.kind trace")
		}},
		{"message-system-attributes", "system attributes come under the new and the old parameter, AWSTraceHeader included", func(p *probe) {
			p.queue(nil)
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{
				QueueUrl: &p.url, MessageBody: aws.String("a"),
				MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
					"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5e3d83c1-e6a0db584850d61342823d4c")},
				},
			})
			p.ok(err, "SendMessage")
			for _, in := range []sqs.ReceiveMessageInput{
				{MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}},
				{AttributeNames: []types.QueueAttributeName{"All"}},
			} {
				in.QueueUrl, in.WaitTimeSeconds = &p.url, 1
				out, err := p.c.ReceiveMessage(p.ctx, &in)
				p.ok(err, "ReceiveMessage")
				if len(out.Messages) != 1 {
					p.differs("no message")
				}
				for _, k := range []string{"SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SenderId", "AWSTraceHeader"} {
					if out.Messages[0].Attributes[k] == "" {
						p.differs("%s is missing", k)
					}
				}
				p.ok(p.extend(out.Messages[0], 0), "releasing")
			}
		}},
		{"message-delay", "DelaySeconds of a message hides it, and goes before the queue's", func(p *probe) {
			p.queue(map[string]string{"DelaySeconds": "60"})
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String("a"), DelaySeconds: 3})
			p.ok(err, "SendMessage")
			p.empty("before the delay is over")
			p.wait(2*time.Second + tick)
			p.one(1)
		}},
		{"message-size", "a message larger than the queue's limit is refused; attributes count", func(p *probe) {
			p.queue(map[string]string{"MaximumMessageSize": "1024"})
			send := func(n int, attrs map[string]types.MessageAttributeValue) error {
				_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{
					QueueUrl: &p.url, MessageBody: aws.String(strings.Repeat("x", n)), MessageAttributes: attrs,
				})
				return err
			}
			p.ok(send(1024, nil), "1024 bytes")
			p.fails(send(1025, nil), "1025 bytes", "InvalidParameterValue", "")
			p.fails(send(1024, map[string]types.MessageAttributeValue{"a": text("v")}), "1024 bytes and an attribute", "InvalidParameterValue", "")
		}},
		{"message-1mib", "a message may have 1 MiB", func(p *probe) {
			p.queue(nil)
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String(strings.Repeat("x", 1<<20))})
			p.ok(err, "1 MiB")
		}},
		{"message-10-attributes", "an 11th attribute is refused", func(p *probe) {
			p.queue(nil)
			attrs := map[string]types.MessageAttributeValue{}
			for i := range 11 {
				attrs[fmt.Sprint("a", i)] = text("v")
			}
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String("a"), MessageAttributes: attrs})
			p.fails(err, "SendMessage", "InvalidParameterValue", "")
		}},
		{"message-characters", "control characters in a body are refused", func(p *probe) {
			p.queue(nil)
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String("\x01")})
			p.fails(err, "SendMessage", "InvalidMessageContents", "")
		}},
		{"message-fair-group", "a message group on a standard queue is carried and neither orders nor blocks", func(p *probe) {
			p.queue(nil)
			for _, b := range []string{"1", "2"} {
				_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: &b, MessageGroupId: aws.String("tenant")})
				p.ok(err, "SendMessage")
			}
			m := p.one(30)
			if m.Attributes["MessageGroupId"] != "tenant" {
				p.differs("received without the group: %v", m.Attributes)
			}
			p.one(30)
		}},
	}
}

// attributes sends a message with three attributes, asks for some and checks
// which come back.
func (p *probe) attributes(ask, want string) {
	url := p.queue(nil)
	sent, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{
		QueueUrl: &url, MessageBody: aws.String("a"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"order.id": text("1"), "order.kind": text("2"), "trace": text("3"),
		},
	})
	p.ok(err, "SendMessage")
	out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MessageAttributeNames: []string{ask}, WaitTimeSeconds: 1,
	})
	p.ok(err, "ReceiveMessage")
	if len(out.Messages) != 1 {
		p.differs("no message for %s", ask)
	}
	m := out.Messages[0]
	var names []string
	for name := range m.MessageAttributes {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		p.differs("%s returns [%s], want [%s]", ask, got, want)
	}
	const whole = "058ef58c26b82192fb8ab7894916c44b" // of the three, computed by other means
	for where, sum := range map[string]*string{"send": sent.MD5OfMessageAttributes, "receive": m.MD5OfMessageAttributes} {
		if got := aws.ToString(sum); got != whole && (where == "send" || len(names) == 3) {
			p.differs("checksum %s on %s, want %s", got, where, whole)
		}
	}
}

func batchRules() []rule {
	entry := func(id, body string) types.SendMessageBatchRequestEntry {
		return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
	}
	return []rule{
		{"batch-ids", "entry ids are distinct and of 1 to 80 letters, digits, hyphens and underscores; at most 10 entries", func(p *probe) {
			p.queue(nil)
			send := func(entries ...types.SendMessageBatchRequestEntry) error {
				_, err := p.c.SendMessageBatch(p.ctx, &sqs.SendMessageBatchInput{QueueUrl: &p.url, Entries: append([]types.SendMessageBatchRequestEntry{}, entries...)})
				return err
			}
			var eleven []types.SendMessageBatchRequestEntry
			for i := range 11 {
				eleven = append(eleven, entry(fmt.Sprint(i), "b"))
			}
			p.ok(send(eleven[:10]...), "10 entries")
			p.fails(send(eleven...), "11 entries", "TooManyEntriesInBatchRequest", "")
			p.fails(send(entry("a", "b"), entry("a", "c")), "an id twice", "BatchEntryIdsNotDistinct", "")
			p.fails(send(entry("a b", "b")), "a space in an id", "InvalidBatchEntryId", "")
		}},
		{"batch-empty", "a batch without entries is refused", func(p *probe) {
			p.queue(nil)
			_, err := p.c.SendMessageBatch(p.ctx, &sqs.SendMessageBatchInput{QueueUrl: &p.url, Entries: []types.SendMessageBatchRequestEntry{}})
			p.fails(err, "no entry", "EmptyBatchRequest", "")
		}},
		{"batch-entries", "a bad entry fails alone, in Failed, as the sender's fault", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(30)
			out, err := p.c.DeleteMessageBatch(p.ctx, &sqs.DeleteMessageBatchInput{
				QueueUrl: &p.url, Entries: []types.DeleteMessageBatchRequestEntry{
					{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle},
					{Id: aws.String("bad"), ReceiptHandle: aws.String("garbage")},
				},
			})
			p.ok(err, "DeleteMessageBatch")
			if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Id != "bad" {
				p.differs("%d succeeded, %d failed", len(out.Successful), len(out.Failed))
			}
			if f := out.Failed[0]; !f.SenderFault || *f.Code != "ReceiptHandleIsInvalid" {
				p.differs("code %s, sender's fault %v", *f.Code, f.SenderFault)
			}
		}},
		{"batch-size", "all messages of a batch have 1 MiB together", func(p *probe) {
			p.queue(nil)
			half := strings.Repeat("x", 1<<19)
			_, err := p.c.SendMessageBatch(p.ctx, &sqs.SendMessageBatchInput{
				QueueUrl: &p.url, Entries: []types.SendMessageBatchRequestEntry{entry("a", half), entry("b", half+"x")},
			})
			if !errors.As(err, new(*types.BatchRequestTooLong)) {
				p.differs("got %s", outcome(err))
			}
		}},
	}
}
