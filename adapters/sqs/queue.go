package sqsadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// ErrNoDeadLetter says that neither the options nor the queue say what becomes
// of a message that must not be tried again.
var ErrNoDeadLetter = errors.New("sqs: the queue has no redrive policy: set Options.DeadLetter to To(url), Redrive or Discard")

// minReceives is the smallest maxReceiveCount that leaves room for deliveries
// that are only told to wait.
const minReceives = 5

// queueInfo is what the adapter reads of a queue.
type queueInfo struct {
	retention   time.Duration
	maxReceives int    // 0 when there is no redrive policy
	deadName    string // of the redrive policy's queue
}

// check reads the queue's attributes, decides the way of the dead letters, and
// warns of settings that do not fit.
func (c *core) check(ctx context.Context) error {
	q, err := c.readQueue(ctx, c.url)
	switch {
	case missing(err) || ctx.Err() != nil:
		return fmt.Errorf("sqs: queue attributes: %w", err)
	case err != nil && c.opt.DeadLetter.kind == undecided:
		return fmt.Errorf("sqs: queue attributes (sqs:GetQueueAttributes is needed unless Options.DeadLetter is set): %w", err)
	case err != nil:
		c.dead = c.opt.DeadLetter
		c.warn(ctx, "the queue's attributes cannot be read, so its settings are not checked", err)
		return nil
	}
	if c.dead = c.opt.DeadLetter; c.dead.kind == undecided {
		if q.maxReceives == 0 {
			return ErrNoDeadLetter
		}
		c.dead = Redrive
	}
	if c.dead.kind == redriven && q.maxReceives == 0 {
		return fmt.Errorf("sqs: DeadLetter is Redrive, and %w", ErrNoDeadLetter)
	}
	c.advise(ctx, q)
	return nil
}

func (c *core) advise(ctx context.Context, q queueInfo) {
	g := c.p.Guard()
	if kept, back := g.Retention(), q.retention+c.deadRetention(ctx, q); kept < back {
		c.warn(ctx, fmt.Sprintf("records are kept for %v, shorter than the queue and its dead-letter queue keep messages (%v together): a message that comes back later runs again", kept, back), nil)
	}
	if q.maxReceives > 0 && q.maxReceives < minReceives {
		c.warn(ctx, fmt.Sprintf("maxReceiveCount is %d: deliveries that are told to wait count too and can use it up; %d or more is advised", q.maxReceives, 2*minReceives), nil)
	}
	if c.opt.Visibility < g.Lease() {
		c.warn(ctx, fmt.Sprintf("the visibility timeout (%v) is shorter than the lease (%v): after a crash the message comes back before its key is free and is told to wait", c.opt.Visibility, g.Lease()), nil)
	}
}

// deadRetention is how long the dead-letter queue keeps messages; zero when it
// cannot be told, or when there is none.
func (c *core) deadRetention(ctx context.Context, q queueInfo) time.Duration {
	url := c.dead.url
	if c.dead.kind == redriven { // in the same account and region, by the rules of redrive policies
		url = c.url[:strings.LastIndexByte(c.url, '/')+1] + q.deadName
	}
	if url == "" {
		return 0
	}
	dead, err := c.readQueue(ctx, url)
	if err != nil {
		return 0
	}
	return dead.retention
}

func (c *core) warn(ctx context.Context, text string, err error) {
	c.emit(ctx, Event{Kind: EventWarning, Text: text, Err: err})
}

func (c *core) readQueue(ctx context.Context, url string) (queueInfo, error) {
	var q queueInfo
	out, err := c.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameMessageRetentionPeriod, types.QueueAttributeNameRedrivePolicy,
		},
	})
	if err != nil {
		return q, err
	}
	seconds, _ := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameMessageRetentionPeriod)])
	q.retention = time.Duration(seconds) * time.Second
	if policy := out.Attributes[string(types.QueueAttributeNameRedrivePolicy)]; policy != "" {
		var p struct {
			MaxReceiveCount json.RawMessage `json:"maxReceiveCount"` // a number or a string
			Target          string          `json:"deadLetterTargetArn"`
		}
		if err := json.Unmarshal([]byte(policy), &p); err != nil {
			return q, fmt.Errorf("redrive policy: %w", err)
		}
		n := string(p.MaxReceiveCount)
		if s, err := strconv.Unquote(n); err == nil {
			n = s
		}
		q.maxReceives, _ = strconv.Atoi(n)
		q.deadName = p.Target[strings.LastIndexByte(p.Target, ':')+1:]
	}
	return q, nil
}
