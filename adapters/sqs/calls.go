package sqsadapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// maxBatch is the number of entries of one SQS batch call.
const maxBatch = 10

// entry is one message in a batch call. Entries are told apart by their place
// in the batch, never by text that a sender chose.
type entry struct {
	handle  string
	seconds int32 // the new visibility timeout
}

// calls collects the entries of one batch operation: an idle queue is called
// at once, what arrives during a call travels in the next one.
type calls struct {
	send    func(ctx context.Context, entries []entry) []error
	timeout time.Duration

	mu      sync.Mutex
	flying  int
	waiting []*call
}

type call struct {
	entries []entry
	errs    []error
	done    chan struct{}
}

// parallelCalls is how many calls of one operation are in flight before more
// is collected.
const parallelCalls = 4

// do sends at most maxBatch entries together and returns the error of each.
func (c *calls) do(entries []entry) []error {
	x := &call{entries: entries, done: make(chan struct{})}
	c.mu.Lock()
	if c.flying >= parallelCalls {
		c.waiting = append(c.waiting, x)
		c.mu.Unlock()
		<-x.done // bounded by the timeout of the calls before it
		return x.errs
	}
	c.flying++
	c.mu.Unlock()
	c.run([]*call{x})
	return x.errs
}

func (c *calls) run(xs []*call) {
	var entries []entry
	for _, x := range xs {
		entries = append(entries, x.entries...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	errs := c.send(ctx, entries)
	cancel()
	for _, x := range xs {
		x.errs, errs = errs[:len(x.entries)], errs[len(x.entries):]
		close(x.done)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying--
	if next := c.takeLocked(); len(next) > 0 {
		c.flying++
		go c.run(next)
	}
}

func (c *calls) takeLocked() []*call {
	n, size := 0, 0
	for n < len(c.waiting) && size+len(c.waiting[n].entries) <= maxBatch {
		size += len(c.waiting[n].entries)
		n++
	}
	next := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return next
}

// retrying repeats the entries that failed, and may yet succeed, until the
// deadline. Nothing it returns is a failure of a message: a message that stays
// comes back and is answered from its record.
func (c *calls) retrying(entries []entry, deadline time.Time) []error {
	errs := c.do(entries)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		var again []int
		for i, err := range errs {
			if err != nil && !hopeless(err) {
				again = append(again, i)
			}
		}
		if len(again) == 0 || time.Now().Add(pause).After(deadline) {
			return errs
		}
		time.Sleep(pause/2 + rand.N(pause/2+1)) //nolint:gosec // spreads load, guards nothing
		rest := make([]entry, len(again))
		for i, j := range again {
			rest[i] = entries[j]
		}
		for i, err := range c.do(rest) {
			errs[again[i]] = err
		}
	}
}

// singly repeats a batch entry by entry when it was refused as a whole, so that
// an entry that the server cannot digest does not cost its neighbours theirs.
func singly(send func(context.Context, []entry) []error) func(context.Context, []entry) []error {
	return func(ctx context.Context, entries []entry) []error {
		errs := send(ctx, entries)
		var one *entryError
		if len(entries) == 1 || errs[0] == nil || errors.As(errs[0], &one) || !oneFault(errs[0]) {
			return errs
		}
		for i := range entries {
			errs[i] = send(ctx, entries[i:i+1])[0]
		}
		return errs
	}
}

// oneFault reports whether a refusal of a whole batch may be the fault of one
// entry.
func oneFault(err error) bool { return refused(code(err)) && !missing(err) }

// deleteBatch deletes messages by their handles.
func (c *core) deleteBatch(ctx context.Context, entries []entry) []error {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &c.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(entries))}
	for i, e := range entries {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.handle}
	}
	out, err := c.client.DeleteMessageBatch(ctx, in)
	if err != nil {
		return spread(err, len(entries))
	}
	return failures(out.Failed, len(entries))
}

// hideBatch sets visibility timeouts, which count from now.
func (c *core) hideBatch(ctx context.Context, entries []entry) []error {
	in := &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &c.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(entries)),
	}
	for i, e := range entries {
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.handle, VisibilityTimeout: e.seconds,
		}
	}
	out, err := c.client.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return spread(err, len(entries))
	}
	return failures(out.Failed, len(entries))
}

func spread(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func failures(failed []types.BatchResultErrorEntry, n int) []error {
	errs := make([]error, n)
	for _, f := range failed {
		i, err := strconv.Atoi(aws.ToString(f.Id))
		if err != nil || i < 0 || i >= n {
			continue // not one of ours
		}
		errs[i] = &entryError{code: plainCode(aws.ToString(f.Code)), message: aws.ToString(f.Message), sender: f.SenderFault}
	}
	return errs
}
