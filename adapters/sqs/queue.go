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
var ErrNoDeadLetter = errors.New("sqs: the queue has no redrive policy: add one, or use To(url) or Discard as Options.DeadLetter")

// minReceives is the smallest maxReceiveCount that leaves room for deliveries
// that are only told to wait.
const minReceives = 5

// startTimeout limits each call at the start.
const startTimeout = 15 * time.Second

// queueInfo is what the adapter reads of a queue.
type queueInfo struct {
	visibility  time.Duration // what a receive gets that does not ask for its own
	retention   time.Duration
	maxReceives int    // 0 when there is no redrive policy
	deadName    string // of the redrive policy's queue
}

// check reads the queue's attributes, decides the way of the dead letters, and
// warns of settings that do not fit.
func (c *core) check(ctx context.Context) error {
	q, err := c.readQueue(ctx, c.url)
	switch {
	case err != nil && (missing(err) || ctx.Err() != nil):
		return fmt.Errorf("sqs: queue attributes: %w", err)
	case err != nil && c.opt.DeadLetter.kind == undecided:
		return fmt.Errorf("sqs: queue attributes (sqs:GetQueueAttributes is needed unless Options.DeadLetter is set): %w", err)
	case err != nil:
		c.dead = c.opt.DeadLetter
		c.opt.Visibility = or(c.opt.Visibility, defaultVisibility)
		c.warn(ctx, "the queue's attributes cannot be read, so its settings are not checked", err)
		return nil
	}
	if c.opt.Visibility = or(c.opt.Visibility, q.visibility); c.opt.Visibility < minVisibility {
		return fmt.Errorf("sqs: the queue's visibility timeout is %v, too short to be extended: set Options.Visibility, and ask for it with every receive", q.visibility)
	}
	if c.dead = c.opt.DeadLetter; c.dead.kind == undecided {
		c.dead = Redrive
	}
	if c.dead.kind == redriven && q.maxReceives == 0 {
		return ErrNoDeadLetter
	}
	c.maxReceives = q.maxReceives
	back, err := c.deadRetention(ctx, q)
	if err != nil {
		return err
	}
	c.advise(ctx, q, q.retention+back)
	return nil
}

// advise explains what does not fit; back is how long a message can come back.
func (c *core) advise(ctx context.Context, q queueInfo, back time.Duration) {
	g := c.p.Guard()
	if kept := g.Retention(); kept < back {
		c.warn(ctx, fmt.Sprintf("records are kept for %v, shorter than the queue and its dead-letter queue keep messages (%v together): a message that comes back later runs again", kept, back), nil)
	}
	if c.fifo && q.maxReceives > 0 && q.maxReceives < 2*minReceives {
		c.warn(ctx, fmt.Sprintf("maxReceiveCount is %d: every receive of a failing message of a FIFO queue counts for those behind it too, which can be moved without a run; %d or more is advised", q.maxReceives, 4*minReceives), nil)
	} else if q.maxReceives > 0 && q.maxReceives < minReceives {
		c.warn(ctx, fmt.Sprintf("maxReceiveCount is %d: deliveries that are told to wait count too and can use it up; %d or more is advised", q.maxReceives, 2*minReceives), nil)
	}
	if c.opt.Visibility < g.Lease() {
		c.warn(ctx, fmt.Sprintf("the visibility timeout (%v) is shorter than the lease (%v): after a crash the message comes back before its key is free and is told to wait", c.opt.Visibility, g.Lease()), nil)
	}
}

// deadRetention is how long the dead-letter queues keep messages: the one that
// failures are copied to, and the one of the redrive policy, which is in the
// same account and region. It is zero where it cannot be told. A queue to copy
// to that does not exist is an error.
func (c *core) deadRetention(ctx context.Context, q queueInfo) (time.Duration, error) {
	var longest time.Duration
	if c.dead.kind == copied {
		dead, err := c.readQueue(ctx, c.dead.url)
		if missing(err) {
			return 0, fmt.Errorf("sqs: dead-letter queue: %w", err)
		}
		longest = dead.retention // what may not be read may still be sent to
	}
	if q.deadName != "" {
		dead, _ := c.readQueue(ctx, c.url[:strings.LastIndexByte(c.url, '/')+1]+q.deadName)
		longest = max(longest, dead.retention)
	}
	return longest, nil
}

func (c *core) warn(ctx context.Context, text string, err error) {
	c.emit(ctx, Event{Kind: EventWarning, Text: text, Err: err})
}

func (c *core) readQueue(ctx context.Context, url string) (queueInfo, error) {
	var q queueInfo
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := c.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameVisibilityTimeout,
			types.QueueAttributeNameMessageRetentionPeriod, types.QueueAttributeNameRedrivePolicy,
		},
	})
	if err != nil {
		return q, err
	}
	seconds := func(name types.QueueAttributeName) time.Duration {
		n, _ := strconv.Atoi(out.Attributes[string(name)])
		return time.Duration(n) * time.Second
	}
	q.visibility = seconds(types.QueueAttributeNameVisibilityTimeout)
	q.retention = seconds(types.QueueAttributeNameMessageRetentionPeriod)
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
