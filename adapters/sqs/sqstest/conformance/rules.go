package main

import (
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// rule is one thing an endpoint should do.
type rule struct {
	id   string
	text string
	run  func(p *probe)
}

func rules() []rule {
	var all []rule
	all = append(all, visibilityRules()...)
	all = append(all, handleRules()...)
	all = append(all, messageRules()...)
	all = append(all, batchRules()...)
	all = append(all, fifoRules()...)
	return append(all, redriveRules()...)
}

const tick = 500 * time.Millisecond // margin for a server's timers

func visibilityRules() []rule {
	return []rule{
		{"visibility-hides", "a received message is hidden until its timeout ends; each receive has a new handle", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(3)
			p.empty("at once")
			p.wait(3 * time.Second)
			again := p.one(3)
			if *again.ReceiptHandle == *m.ReceiptHandle {
				p.differs("both receives have the same handle")
			}
			if again.Attributes["ApproximateReceiveCount"] != "2" {
				p.differs("the second receive counts %s", again.Attributes["ApproximateReceiveCount"])
			}
		}},
		{"visibility-from-call", "an extension counts from its call, not from the end of what is left", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(10)
			p.ok(p.extend(m, 2), "shortening")
			p.wait(2*time.Second + tick)
			p.one(1)
		}},
		{"visibility-once", "an extension applies to this receive only", func(p *probe) {
			p.queue(map[string]string{"VisibilityTimeout": "2"})
			p.send("a")
			p.ok(p.extend(p.one(0), 1), "extending")
			p.wait(time.Second + tick)
			p.one(0)
			p.empty("within the queue's own timeout")
			p.wait(time.Second + tick)
			p.one(0)
		}},
		{"visibility-zero", "an extension to 0 releases the message at once, in a batch too", func(p *probe) {
			p.queue(nil)
			p.send("a")
			p.ok(p.extend(p.one(60), 0), "releasing")
			m := p.one(60)
			out, err := p.c.ChangeMessageVisibilityBatch(p.ctx, &sqs.ChangeMessageVisibilityBatchInput{
				QueueUrl: &p.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
					{Id: aws.String("0"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0},
				},
			})
			p.ok(err, "releasing in a batch")
			if len(out.Failed) > 0 {
				p.differs("releasing in a batch: %s", *out.Failed[0].Code)
			}
			p.one(1)
		}},
		{"visibility-range", "more than 43200 s is refused", func(p *probe) {
			p.queue(nil)
			p.send("a")
			p.fails(p.extend(p.one(60), 43201), "extending", "InvalidParameterValue", "VisibilityTimeout")
		}},
		{"visibility-12h", "12 h count from the receive; an extension beyond is refused, not clamped", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(60)
			p.wait(2*time.Second + tick)
			p.fails(p.extend(m, 43200), "extending", "InvalidParameterValue", "beyond the limit [43200 seconds]")
			p.ok(p.extend(m, 43000), "extending within the limit")
		}},
		{"long-poll-send", "a long poll returns as soon as a message is sent", func(p *probe) {
			p.queue(nil)
			start := time.Now()
			sent := make(chan error, 1)
			time.AfterFunc(time.Second, func() {
				_, err := p.c.SendMessage(p.ctx, &sqs.SendMessageInput{QueueUrl: &p.url, MessageBody: aws.String("a")})
				sent <- err
			})
			out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{QueueUrl: &p.url, WaitTimeSeconds: 10})
			p.ok(err, "ReceiveMessage")
			p.ok(<-sent, "SendMessage")
			if d := time.Since(start); len(out.Messages) != 1 || d > 4*time.Second {
				p.differs("%d messages after %v", len(out.Messages), d)
			}
		}},
		{"long-poll-empty", "a long poll ends empty after its wait", func(p *probe) {
			p.queue(nil)
			start := time.Now()
			out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{QueueUrl: &p.url, WaitTimeSeconds: 2})
			p.ok(err, "ReceiveMessage")
			if d := time.Since(start); len(out.Messages) != 0 || d < 1500*time.Millisecond || d > 5*time.Second {
				p.differs("%d messages after %v", len(out.Messages), d)
			}
		}},
		{"receive-ranges", "more than 10 messages, 20 s of waiting or 43200 s of hiding are refused", func(p *probe) {
			p.queue(nil)
			for _, in := range []sqs.ReceiveMessageInput{
				{MaxNumberOfMessages: 11}, {WaitTimeSeconds: 21}, {VisibilityTimeout: 43201},
			} {
				in.QueueUrl = &p.url
				_, err := p.c.ReceiveMessage(p.ctx, &in)
				p.fails(err, "ReceiveMessage", "InvalidParameterValue", "")
			}
		}},
	}
}

func handleRules() []rule {
	return []rule{
		{"handle-expired-delete", "standard: a delete after the timeout removes the message", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(1)
			p.wait(time.Second + tick)
			p.ok(p.remove(m), "deleting")
			p.empty("after the delete")
		}},
		{"handle-expired-extend", "standard: an extension after the timeout succeeds", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(1)
			p.wait(time.Second + tick)
			p.ok(p.extend(m, 30), "extending")
			p.note = "it hides the message again"
			if len(p.receive(1, 1)) > 0 {
				p.note = "it changes nothing"
			}
		}},
		{"handle-superseded-extend", "standard: what an older handle's extension does is open", func(p *probe) {
			p.queue(nil)
			p.send("a")
			old := p.one(1)
			p.wait(time.Second + tick)
			p.one(30)
			p.note = outcome(p.extend(old, 0))
			if len(p.receive(1, 1)) > 0 {
				p.note += ", applied to the new holder's message"
			}
		}},
		{"handle-superseded-delete", "standard: a delete with an older handle succeeds, whether or not it removes", func(p *probe) {
			p.queue(nil)
			p.send("a")
			old := p.one(1)
			p.wait(time.Second + tick)
			m := p.one(30)
			p.ok(p.remove(old), "deleting")
			p.note = "it removes the message"
			if p.extend(m, 0) == nil && len(p.receive(1, 1)) > 0 {
				p.note = "it removes nothing"
			}
		}},
		{"handle-deleted-extend", "an extension after the delete is refused", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(30)
			p.ok(p.remove(m), "deleting")
			p.fails(p.extend(m, 30), "extending", "InvalidParameterValue", "Message does not exist or is not available for visibility timeout change")
		}},
		{"handle-deleted-delete", "a repeated delete succeeds", func(p *probe) {
			p.queue(nil)
			p.send("a")
			m := p.one(30)
			p.ok(p.remove(m), "deleting")
			p.ok(p.remove(m), "deleting again")
		}},
		{"handle-garbage", "a handle that never was one is ReceiptHandleIsInvalid", func(p *probe) {
			p.queue(nil)
			m := types.Message{ReceiptHandle: aws.String("garbage")}
			for _, err := range []error{p.remove(m), p.extend(m, 30)} {
				p.fails(err, "using it", "ReceiptHandleIsInvalid", "")
			}
		}},
		{"handle-garbage-status", "ReceiptHandleIsInvalid comes with status 404", func(p *probe) {
			p.queue(nil)
			err := p.remove(types.Message{ReceiptHandle: aws.String("garbage")})
			var resp interface{ HTTPStatusCode() int }
			if !errors.As(err, &resp) || resp.HTTPStatusCode() != 404 {
				p.differs("got %v", err)
			}
		}},
		{"error-no-queue", "a missing queue is QueueDoesNotExist", func(p *probe) {
			p.queue(nil)
			url := p.url[:strings.LastIndexByte(p.url, '/')] + "/secondrun-none"
			_, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{QueueUrl: &url})
			if !errors.As(err, new(*types.QueueDoesNotExist)) {
				p.differs("got %s", outcome(err))
			}
		}},
		{"error-query-header", "errors carry the code of the query protocol in x-amzn-query-error", func(p *probe) {
			p.queue(nil)
			url := p.url[:strings.LastIndexByte(p.url, '/')] + "/secondrun-none"
			_, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{QueueUrl: &url})
			var typed *types.QueueDoesNotExist
			if !errors.As(err, &typed) || typed.ErrorCode() != "AWS.SimpleQueueService.NonExistentQueue" {
				p.differs("got %s", outcome(err))
			}
		}},
	}
}
