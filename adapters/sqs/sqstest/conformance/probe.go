package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// difference is how an endpoint deviates from a rule.
type difference string

func (d difference) Error() string { return string(d) }

// probe runs the steps of one rule. Its methods end the rule on the first
// difference.
type probe struct {
	ctx    context.Context
	c      *sqs.Client
	id     string
	url    string // the rule's main queue
	queues []string
	note   string
}

func (p *probe) differs(format string, args ...any) {
	panic(difference(fmt.Sprintf(format, args...)))
}

func (p *probe) ok(err error, doing string) {
	if err != nil {
		p.differs("%s: %v", doing, err)
	}
}

// fails checks an error's code, in whatever form the endpoint sends it, and a
// part of its text.
func (p *probe) fails(err error, doing, code, text string) {
	var api smithy.APIError
	if !errors.As(err, &api) {
		p.differs("%s: got %v, want %s", doing, err, code)
	}
	got := api.ErrorCode()
	got = got[strings.LastIndexAny(got, ".#")+1:]
	if got == "MissingRequiredParameterException" { // the name without the header
		got = "MissingParameter"
	}
	if got != code && got != code+"Exception" {
		p.differs("%s: got %s (%s), want %s", doing, api.ErrorCode(), api.ErrorMessage(), code)
	}
	if !strings.Contains(api.ErrorMessage(), text) {
		p.differs("%s: the text is %q, without %q", doing, api.ErrorMessage(), text)
	}
}

// outcome puts an answer into a word, for rules that leave it open.
func outcome(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &api):
		return api.ErrorCode() + " (" + api.ErrorMessage() + ")"
	}
	return err.Error()
}

// queue creates a queue; the first one is the rule's main queue.
func (p *probe) queue(attrs map[string]string) string {
	name := "secondrun-conformance-" + strings.ToLower(rand.Text()[:10])
	if attrs["FifoQueue"] == "true" {
		name += ".fifo"
	}
	out, err := p.c.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attrs})
	p.ok(err, "CreateQueue")
	p.queues = append(p.queues, *out.QueueUrl)
	if p.url == "" {
		p.url = *out.QueueUrl
	}
	return *out.QueueUrl
}

func (p *probe) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 10*time.Second)
	defer cancel()
	for _, url := range p.queues {
		_, _ = p.c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url}) // best effort
	}
}

func (p *probe) arn(url string) string {
	out, err := p.c.GetQueueAttributes(p.ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	p.ok(err, "GetQueueAttributes")
	return out.Attributes["QueueArn"]
}

// send sends bodies to the main queue: on a FIFO queue to the group before the
// colon.
func (p *probe) send(bodies ...string) (ids []string) { return p.sendTo(p.url, bodies...) }

func (p *probe) sendTo(url string, bodies ...string) (ids []string) {
	for _, b := range bodies {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(b)}
		if strings.HasSuffix(url, ".fifo") {
			group, _, _ := strings.Cut(b, ":")
			in.MessageGroupId = &group
		}
		out, err := p.c.SendMessage(p.ctx, in)
		p.ok(err, "SendMessage")
		ids = append(ids, *out.MessageId)
	}
	return ids
}

// receive takes up to n messages for the visibility timeout in seconds, once.
func (p *probe) receive(n, visibility int32) []types.Message {
	return p.receiveFrom(p.url, n, visibility)
}

func (p *probe) receiveFrom(url string, n, visibility int32) []types.Message {
	out, err := p.c.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: n, VisibilityTimeout: visibility, WaitTimeSeconds: 1,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		MessageAttributeNames:       []string{"All"},
	})
	p.ok(err, "ReceiveMessage")
	return out.Messages
}

// one receives a message that must be there.
func (p *probe) one(visibility int32) types.Message {
	for range 5 { // an empty receive proves nothing on a distributed queue
		if got := p.receive(1, visibility); len(got) == 1 {
			return got[0]
		}
	}
	p.differs("a visible message is not returned")
	return types.Message{}
}

func (p *probe) empty(when string) {
	if got := p.receive(10, 1); len(got) > 0 {
		p.differs("%s: received %v, want nothing", when, bodies(got))
	}
}

func (p *probe) bodies(got []types.Message, when string, want ...string) {
	if !slices.Equal(bodies(got), want) {
		p.differs("%s: received %v, want %v", when, bodies(got), want)
	}
}

func (p *probe) remove(m types.Message) error {
	_, err := p.c.DeleteMessage(p.ctx, &sqs.DeleteMessageInput{QueueUrl: &p.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (p *probe) extend(m types.Message, seconds int32) error {
	_, err := p.c.ChangeMessageVisibility(p.ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &p.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

// wait lets the server's clock pass.
func (p *probe) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		p.differs("%v", p.ctx.Err())
	}
}

func bodies(ms []types.Message) []string {
	var out []string
	for _, m := range ms {
		out = append(out, *m.Body)
	}
	return out
}
