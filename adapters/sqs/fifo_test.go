package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// spy notes the batches in which messages were made visible or extended.
type spy struct {
	*sqs.Client
	mu      sync.Mutex
	batches [][]int32
	ids     []string // of receive attempts
	expired []string // handles that are refused, once each
}

func (s *spy) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	var seconds []int32
	for _, e := range in.Entries {
		seconds = append(seconds, e.VisibilityTimeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, seconds)
	out, err := s.Client.ChangeMessageVisibilityBatch(ctx, in, o...)
	for _, e := range in.Entries {
		if i := slices.Index(s.expired, *e.ReceiptHandle); i >= 0 && err == nil {
			s.expired = slices.Delete(s.expired, i, i+1)
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{
				Id: e.Id, Code: aws.String("InvalidParameterValue"), Message: aws.String("The receipt handle has expired."), SenderFault: true,
			})
		}
	}
	return out, err
}

func (s *spy) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	s.mu.Lock()
	s.ids = append(s.ids, aws.ToString(in.ReceiveRequestAttemptId))
	s.mu.Unlock()
	return s.Client.ReceiveMessage(ctx, in, o...)
}

func (s *spy) seen() [][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

// Rule 11: a failure gives the rest of the group back in the same call, no
// sooner than the head; every receive has an attempt id of its own.
func TestFIFO_OneCallNoSooner(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		s := &spy{Client: r.sdk}
		r.client = s
		r.sendFIFO("g", "1", "2", "3")
		failed := false
		r.start(func(_ context.Context, key string) error {
			if key == "2" && !failed {
				failed = true
				return secondrun.RetryAfter(errors.New("later"), 17*time.Second)
			}
			return nil
		})
		r.sleep(10 * time.Second)
		if batches := s.seen(); len(batches) != 1 || !slices.Equal(batches[0], []int32{17, 17}) {
			r.t.Errorf("visibility timeouts %v, want 17 s for both of the rest, together", batches)
		}
		r.sleep(time.Minute)
		r.settled(4)
		if got := r.started(); !slices.Equal(got, []string{"1", "2", "2", "3"}) {
			r.t.Errorf("order %v", got)
		}
		seen := map[string]bool{}
		for _, id := range s.ids {
			if id == "" || seen[id] {
				r.t.Fatalf("attempt ids %q", s.ids)
			}
			seen[id] = true
		}
	})
}

// Rule 11: the whole group is extended while its head runs, and none of it is
// left in the heartbeat when it is over.
func TestFIFO_WholeGroupIsHeld(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		s := &spy{Client: r.sdk}
		r.client = s
		r.sendFIFO("g", "1", "2", "3")
		first := true
		r.start(func(ctx context.Context, _ string) error {
			if first {
				first = false
				_ = sleeps(time.Minute)(ctx, "")
				return secondrun.RetryAfter(errors.New("later"), time.Hour)
			}
			return nil
		})
		r.sleep(50 * time.Second)
		if n := len(s.seen()); n < 4 {
			r.t.Errorf("%d extensions in 50 s", n)
		}
		for _, b := range s.seen() {
			if !slices.Equal(b, []int32{30, 30, 30}) {
				r.t.Errorf("extension of %v, want all three", b)
			}
		}
		r.sleep(15 * time.Second)
		before := len(s.seen())
		r.sleep(50 * time.Minute)
		if n := len(s.seen()) - before; n != 0 {
			r.t.Errorf("%d calls for messages that were given back", n)
		}
		r.sleep(time.Hour)
		r.settled(4)
	})
}

// A group id on a standard queue (fair queues) implies no order: its messages
// run side by side.
func TestFairQueue_RunsInParallel(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		for i := range 10 {
			_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{
				QueueUrl: &r.url, MessageBody: aws.String(fmt.Sprintf(`{"id":"%d"}`, i)), MessageGroupId: aws.String("tenant"),
			})
			r.must(err)
		}
		start := time.Now()
		r.start(sleeps(10 * time.Second))
		r.sleep(15 * time.Second)
		r.settled(10)
		if d := time.Since(start); d > 20*time.Second {
			r.t.Errorf("took %v", d)
		}
	})
}

// A key that another worker holds stops its group; the rest does not overtake.
func TestFIFO_BusyHead(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.busyElsewhere("1", 2*time.Minute)
		r.sendFIFO("g", "1", "2")
		r.sendFIFO("h", "3")
		r.start(succeeds)
		r.sleep(time.Minute)
		if got := r.started(); !slices.Equal(got, []string{"3"}) {
			r.t.Errorf("started %v while the head's key was held", got)
		}
		r.sleep(20 * time.Minute)
		r.settled(2) // 1 was done elsewhere
	})
}

// With Redrive the group waits until the queue has moved its head.
func TestFIFO_RedriveBlocksTheGroup(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.opt.DeadLetter = sqsadapter.Redrive
		r.sendFIFO("g", "1", "2")
		var at []time.Time
		start := time.Now()
		r.start(func(_ context.Context, key string) error {
			at = append(at, time.Now())
			if key == "1" {
				return errors.New("no")
			}
			return nil
		})
		r.sleep(10 * time.Minute)
		r.settled(2)
		if r.deadCount() != 1 || len(at) != 2 || at[1].Sub(start) < 15*time.Second {
			r.t.Errorf("%d dead letters, started %v after the beginning", r.deadCount(), at)
		}
	})
}

// Terminal failure on FIFO: the group stands still until the copy is made.
func TestFIFO_CopyFails(t *testing.T) {
	inBubble(t, nil, ".fifo", nil, func(r *rig) {
		r.sendFIFO("g", "1", "2")
		fixed := time.Now().Add(2 * time.Minute)
		r.srv.Fault("SendMessage", func(sqstest.Call) *sqstest.Fault {
			if time.Now().After(fixed) {
				return nil
			}
			return &sqstest.Fault{Code: "AccessDenied"}
		})
		var second time.Time
		r.start(func(_ context.Context, key string) error {
			if key == "1" {
				return errors.New("no")
			}
			second = time.Now()
			return nil
		})
		r.sleep(20 * time.Minute)
		r.settled(2)
		if r.deadCount() != 1 || second.Before(fixed) {
			r.t.Errorf("%d dead letters; what stands behind ran at %v, the copy was possible from %v", r.deadCount(), second, fixed)
		}
	})
}

// A hold that is lost for good stops its group: at the head, whose handler is
// cancelled, or behind it, where nothing starts, not even with GoOnWithoutHold.
// Dead handles are not used.
func TestFIFO_HoldLost(t *testing.T) {
	for _, c := range []struct {
		lost  []int
		goOn  bool
		calls int // extensions, and settlements
		order string
	}{
		{lost: []int{0}, calls: 2, order: "1123"},
		{lost: []int{0, 1, 2}, calls: 1, order: "1123"},
		{lost: []int{1}, calls: 2, order: "123"}, // 3 is given back
		{lost: []int{1, 2}, calls: 1, order: "123"},
		{lost: []int{1, 2}, goOn: true, calls: 1, order: "123"},
	} {
		t.Run(fmt.Sprintf("%v, going on: %v", c.lost, c.goOn), func(t *testing.T) {
			inBubble(t, nil, ".fifo", nil, func(r *rig) {
				s := &spy{Client: r.sdk}
				r.client = s
				r.opt.GoOnWithoutHold = c.goOn
				r.sendFIFO("g", "1", "2", "3")
				r.start(sleeps(15 * time.Second))
				r.sleep(time.Second)
				for _, i := range c.lost {
					s.mu.Lock()
					s.expired = append(s.expired, r.srv.Queue(r.url).Messages()[i].ReceiptHandle)
					s.mu.Unlock()
				}
				r.sleep(15 * time.Second)
				if got := len(s.seen()); got != c.calls || len(r.started()) != 1 {
					r.t.Errorf("%d calls, want %d: visibility timeouts %v; started %v", got, c.calls, s.seen(), r.started())
				}
				r.sleep(20 * time.Minute)
				if got := strings.Join(r.started(), ""); got != c.order {
					r.t.Errorf("order %s", got)
				}
				r.settled(len(c.order))
			})
		})
	}
}

// The dead letters of a FIFO queue: on a FIFO queue they keep their group and are
// deduplicated by their id, on a standard queue they are plain messages.
func TestFIFO_DeadLetterQueues(t *testing.T) {
	for _, name := range []string{"letters.fifo", "letters"} {
		inBubble(t, nil, ".fifo", nil, func(r *rig) {
			url := r.create(name, nil)
			r.opt.DeadLetter = sqsadapter.To(url)
			r.sendFIFO("g", "1")
			r.start(func(context.Context, string) error { return errors.New("no") })
			r.sleep(time.Minute)
			r.settled(1)
			ms := r.srv.Queue(url).Messages()
			if len(ms) != 1 {
				r.t.Fatalf("%d letters in %s", len(ms), name)
			}
			if fifo := strings.HasSuffix(name, ".fifo"); fifo && (ms[0].GroupID != "g" || ms[0].DeduplicationID == "") || !fifo && ms[0].GroupID != "" {
				r.t.Errorf("letter in %s: %+v", name, ms[0])
			}
		})
	}
	inBubble(t, nil, "", nil, func(r *rig) { // and of a standard queue, on a FIFO queue
		url := r.create("letters.fifo", nil)
		r.opt.DeadLetter = sqsadapter.To(url)
		r.send("1")
		r.start(func(context.Context, string) error { return errors.New("no") })
		r.sleep(time.Minute)
		r.settled(1)
		if n := len(r.srv.Queue(url).Messages()); n != 1 {
			r.t.Errorf("%d letters", n)
		}
	})
}
