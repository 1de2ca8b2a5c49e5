package main

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func fifo(more ...string) map[string]string {
	attrs := map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}
	for i := 0; i+1 < len(more); i += 2 {
		attrs[more[i]] = more[i+1]
	}
	return attrs
}

func (p *probe) sendDedup(body, group, dedup string) *sqs.SendMessageOutput {
	out, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{
		QueueUrl: &p.url, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &dedup,
	})
	p.ok(err, "SendMessage")
	return out
}

func fifoRules() []rule {
	return append(groupRules(), []rule{
		{"fifo-expired-handle", "a handle after its timeout is refused and the message stays", func(p *probe) {
			p.queue(fifo())
			p.send("a:1")
			m := p.one(1)
			p.wait(time.Second + tick)
			p.fails(p.remove(m), "deleting", "InvalidParameterValue", "The receipt handle has expired")
			p.one(1)
		}},
		{"fifo-extended-handle", "an extension in time keeps the handle good", func(p *probe) {
			p.queue(fifo())
			p.send("a:1")
			m := p.one(2)
			p.ok(p.extend(m, 10), "extending")
			p.wait(2*time.Second + tick)
			p.ok(p.remove(m), "deleting")
		}},
		{"fifo-deleted-delete", "a repeated delete in a batch succeeds", func(p *probe) {
			p.queue(fifo())
			p.send("a:1")
			m := p.one(30)
			for range 2 {
				out, err := p.c.DeleteMessageBatch(p.ctx, &sqs.DeleteMessageBatchInput{
					QueueUrl: &p.url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: m.ReceiptHandle}},
				})
				p.ok(err, "DeleteMessageBatch")
				if len(out.Failed) > 0 {
					p.differs("%s (%s)", *out.Failed[0].Code, aws.ToString(out.Failed[0].Message))
				}
			}
		}},
		{"fifo-dedup", "a deduplication id sends once, across deletes and groups, and answers with the first ids", func(p *probe) {
			p.queue(fifo())
			first := p.sendDedup("one", "a", "d")
			p.ok(p.remove(p.one(30)), "deleting")
			second := p.sendDedup("two", "b", "d")
			if *second.MessageId != *first.MessageId {
				p.differs("the duplicate has an id of its own")
			}
			p.empty("after the duplicate")
		}},
		{"fifo-dedup-content", "content-based deduplication goes by the body", func(p *probe) {
			p.queue(fifo())
			p.send("a:1", "a:1", "a:2")
			p.bodies(p.receive(10, 30), "at once", "a:1", "a:2")
		}},
		{"fifo-dedup-group", "scope messageGroup deduplicates within a group", func(p *probe) {
			p.queue(fifo("DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId"))
			p.sendDedup("one", "a", "d")
			p.sendDedup("two", "b", "d")
			p.sendDedup("three", "a", "d")
			p.bodies(p.receive(10, 30), "at once", "one", "two")
		}},
		{"fifo-refusals", "no group, and a delay of the message's own, are refused", func(p *probe) {
			p.queue(fifo())
			_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String("b")})
			p.fails(err, "no group", "MissingParameter", "MessageGroupId")
			_, err = p.c.SendMessage(p.ctx, &sqs.SendMessageInput{
				QueueUrl: &p.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"), DelaySeconds: 5,
			})
			p.fails(err, "a delay", "InvalidParameterValue", "DelaySeconds")
		}},
		{"fifo-attempt", "a receive repeated with its attempt id returns the same messages and renews their timeout", func(p *probe) {
			p.attempt()
			p.wait(1500 * time.Millisecond)
			out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{QueueUrl: &p.url})
			p.ok(err, "ReceiveMessage")
			if len(out.Messages) > 0 {
				p.differs("the timeout was not renewed")
			}
		}},
		{"fifo-attempt-handles", "a receive repeated with its attempt id returns the same handles and counts once", func(p *probe) {
			first, again := p.attempt()
			if *first[0].ReceiptHandle != *again[0].ReceiptHandle {
				p.differs("the repeated receive has other handles")
			}
			if n := again[0].Attributes["ApproximateReceiveCount"]; n != "1" {
				p.differs("it counts %s", n)
			}
		}},
	}...)
}

// attempt receives two messages for 3 s, and again with the same attempt id
// 2 s later.
func (p *probe) attempt() (first, again []types.Message) {
	p.queue(fifo())
	p.send("a:1", "a:2")
	receive := func() []types.Message {
		out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &p.url, MaxNumberOfMessages: 10, VisibilityTimeout: 3, ReceiveRequestAttemptId: aws.String("r1"),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		p.ok(err, "ReceiveMessage")
		return out.Messages
	}
	first = receive()
	p.bodies(first, "at first", "a:1", "a:2")
	p.wait(2 * time.Second)
	again = receive()
	p.bodies(again, "repeated", "a:1", "a:2")
	return first, again
}

func groupRules() []rule {
	rules := []rule{
		{"fifo-batch", "a receive returns as many messages of one group as possible", func(p *probe) {
			p.queue(fifo())
			p.send("a:1", "b:1", "a:2", "a:3")
			p.bodies(p.receive(3, 30), "at most 3", "a:1", "a:2", "a:3")
			p.bodies(p.receive(10, 30), "then", "b:1")
		}},
		{"fifo-blocked", "a group is withheld while one of its messages is in flight", func(p *probe) {
			p.queue(fifo())
			p.send("a:1", "a:2")
			m := p.one(30)
			p.empty("with the head in flight")
			p.ok(p.remove(m), "deleting")
			p.bodies(p.receive(10, 30), "after the delete", "a:2")
		}},
		{"fifo-partial-delete", "after deleting a part of a batch the group stays withheld", func(p *probe) {
			p.queue(fifo())
			p.send("a:1", "a:2", "a:3")
			got := p.receive(2, 30)
			p.bodies(got, "at most 2", "a:1", "a:2")
			p.ok(p.remove(got[0]), "deleting")
			p.empty("with the second in flight")
			p.ok(p.remove(got[1]), "deleting")
			p.bodies(p.receive(10, 30), "after both deletes", "a:3")
		}},
		{"fifo-released-head", "a released head comes alone while the second is in flight", func(p *probe) {
			p.queue(fifo())
			p.send("a:1", "a:2")
			got := p.receive(10, 30)
			p.bodies(got, "at once", "a:1", "a:2")
			p.ok(p.extend(got[0], 0), "releasing")
			p.bodies(p.receive(10, 30), "after the release", "a:1")
		}},
	}
	for i := range 3 {
		want := []string{"a:1", "a:2"}[:i]
		rules = append(rules, rule{
			fmt.Sprint("fifo-extended-", i+1), fmt.Sprintf("message %d of 3 extended: only what precedes it comes back", i+1), func(p *probe) {
				p.queue(fifo())
				p.send("a:1", "a:2", "a:3")
				got := p.receive(10, 2)
				p.bodies(got, "at once", "a:1", "a:2", "a:3")
				p.ok(p.extend(got[i], 30), "extending")
				p.wait(2*time.Second + tick)
				p.bodies(p.receive(10, 30), "after the others' timeout", want...)
			},
		})
	}
	return rules
}

// withDeadLetters creates the main queue and one for its dead letters, whose
// URL it returns. One receive is allowed.
func (p *probe) withDeadLetters(attrs map[string]string) string {
	dlq := p.queue(attrs)
	main := maps.Clone(attrs)
	if main == nil {
		main = map[string]string{}
	}
	main["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1"}`, p.arn(dlq))
	p.url = p.queue(main)
	return dlq
}

func redriveRules() []rule {
	return []rule{
		{"dead-letter-next-receive", "a message moves on the receive after the last allowed one, with its id; counts go on", func(p *probe) {
			dlq := p.withDeadLetters(nil)
			id := p.send("a")[0]
			p.one(1)
			p.wait(time.Second + tick)
			if got := p.receiveFrom(dlq, 1, 1); len(got) > 0 {
				p.differs("it moved without a receive")
			}
			p.empty("on the second receive")
			got := p.receiveFrom(dlq, 1, 1)
			if len(got) != 1 || *got[0].MessageId != id {
				p.differs("the dead-letter queue has %v", bodies(got))
			}
			if n := got[0].Attributes["ApproximateReceiveCount"]; n != "2" {
				p.differs("it counts %s there, want 2", n)
			}
			if !strings.HasPrefix(got[0].Attributes["DeadLetterQueueSourceArn"], "arn:") {
				p.differs("DeadLetterQueueSourceArn is %q", got[0].Attributes["DeadLetterQueueSourceArn"])
			}
		}},
		{"dead-letter-fifo", "in a FIFO dead-letter queue the deduplication id is the message id", func(p *probe) {
			dlq := p.withDeadLetters(fifo())
			id := p.send("a:1")[0]
			p.one(1)
			p.wait(time.Second + tick)
			p.empty("on the second receive")
			got := p.receiveFrom(dlq, 1, 1)
			if len(got) != 1 {
				p.differs("the dead-letter queue has %v", bodies(got))
			}
			if a := got[0].Attributes; a["MessageDeduplicationId"] != id || a["MessageGroupId"] != "a" {
				p.differs("message %s has there %v", id, a)
			}
		}},
		{"move-task", "a move task brings messages back to their source as new ones, with new ids", func(p *probe) {
			dlq := p.withDeadLetters(nil)
			id := p.send("a")[0]
			p.one(1)
			p.wait(time.Second + tick)
			p.empty("on the second receive")
			_, err := p.c.StartMessageMoveTask(p.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(p.arn(dlq))})
			p.ok(err, "StartMessageMoveTask")
			p.wait(time.Second)
			m := p.one(1)
			if *m.MessageId == id {
				p.differs("the message kept its id")
			}
			if n := m.Attributes["ApproximateReceiveCount"]; n != "1" {
				p.differs("it counts %s, want 1", n)
			}
		}},
		{"move-task-no-source", "a message sent to the dead-letter queue by hand fails a move task without destination", func(p *probe) {
			dlq := p.withDeadLetters(nil)
			p.sendTo(dlq, "copy")
			arn := p.arn(dlq)
			_, err := p.c.StartMessageMoveTask(p.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &arn})
			p.ok(err, "StartMessageMoveTask")
			p.wait(time.Second)
			out, err := p.c.ListMessageMoveTasks(p.ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn})
			p.ok(err, "ListMessageMoveTasks")
			if len(out.Results) == 0 {
				p.differs("the task is not listed")
			}
			if len(out.Results) != 1 || *out.Results[0].Status != "FAILED" || aws.ToString(out.Results[0].FailureReason) != "CouldNotDetermineMessageSource" {
				p.differs("%d tasks; the first is %s", len(out.Results), *out.Results[0].Status)
			}
		}},
		{"move-task-not-dlq", "a move task needs a source that is a dead-letter queue", func(p *probe) {
			p.queue(nil)
			_, err := p.c.StartMessageMoveTask(p.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(p.arn(p.url))})
			p.fails(err, "StartMessageMoveTask", "InvalidParameterValue", "")
		}},
	}
}
