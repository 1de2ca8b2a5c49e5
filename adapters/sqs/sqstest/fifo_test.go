package sqstest_test

import (
	"maps"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func withAttr(base map[string]string, k, v string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	out[k] = v
	return out
}

func TestFIFO_AsManyOfOneGroupAsPossible(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "b:1", "a:2", "c:1", "a:3", "b:2")
		x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 2}), "a:1", "a:2")
		x.bodiesAre(x.receive(), "b:1", "b:2", "c:1")
	})
}

func TestFIFO_GroupBlockedWhileInFlight(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "a:2")
		m := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})
		x.bodiesAre(x.receive())
		x.ok(x.delete(m[0]))
		x.bodiesAre(x.receive(), "a:2")
	})
}

func TestFIFO_PartialDeleteKeepsTheGroupBlocked(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "a:2", "a:3", "a:4")
		got := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 3})
		x.ok(x.delete(got[0]))
		x.ok(x.delete(got[2]))
		x.bodiesAre(x.receive())
		x.ok(x.delete(got[1]))
		x.bodiesAre(x.receive(), "a:4")
	})
}

func TestFIFO_ReleasedHeadComesAlone(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "a:2")
		got := x.receive()
		x.bodiesAre(got, "a:1", "a:2")
		x.ok(x.extend(got[0], 0))
		x.bodiesAre(x.receive(), "a:1")
		x.ok(x.delete(got[1])) // its handle is still good
	})
}

// Extending one message of a batch does not keep the earlier ones hidden, and
// withholds itself and everything behind it.
func TestFIFO_ExtendedMessageWithholdsWhatFollows(t *testing.T) {
	for i, want := range [][]string{{}, {"a:1"}, {"a:1", "a:2"}} {
		inBubble(t, nil, fifo, func(x *fixture) {
			x.send("a:1", "a:2", "a:3")
			got := x.receive()
			x.ok(x.extend(got[i], 100))
			after(31 * time.Second)
			x.bodiesAre(x.receive(), want...)
		})
	}
}

func TestFIFO_ExpiredHandle(t *testing.T) {
	for _, stale := range []sqstest.Stale{sqstest.StaleNoop, sqstest.StaleApply} {
		inBubble(t, &sqstest.Options{Stale: stale}, fifo, func(x *fixture) {
			x.send("a:1")
			m := x.one()
			after(20 * time.Second)
			x.ok(x.extend(m, 20)) // in time: the handle stays good
			after(15 * time.Second)
			x.ok(x.extend(m, 20))
			after(20 * time.Second)
			x.fails(x.delete(m), "InvalidParameterValue", "Reason: The receipt handle has expired.")
			x.fails(x.extend(m, 20), "InvalidParameterValue", "expired")
			again := x.one() // the message stayed
			x.fails(x.delete(m), "InvalidParameterValue", "expired")
			x.ok(x.delete(again))
			x.ok(x.delete(again)) // repeated
			if n := x.srv.Queue(x.url).Counts(); n.Deleted != 1 || n.Visible+n.InFlight != 0 {
				x.Fatalf("counts %+v", n)
			}
		})
	}
}

func sendFIFO(x *fixture, body, group, dedup string) *sqs.SendMessageOutput {
	x.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: &body, MessageGroupId: &group}
	if dedup != "" {
		in.MessageDeduplicationId = &dedup
	}
	out, err := x.c.SendMessage(x.Context(), in)
	x.ok(err)
	return out
}

func TestFIFO_DeduplicatesForFiveMinutesFromTheFirstSend(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		first := sendFIFO(x, "one", "a", "d")
		x.ok(x.delete(x.one())) // deleting does not end the window
		after(4 * time.Minute)
		second := sendFIFO(x, "two", "b", "d")
		if *second.MessageId != *first.MessageId || *second.SequenceNumber != *first.SequenceNumber {
			x.Fatalf("got %v, want the first message's ids", second)
		}
		after(time.Minute)
		third := sendFIFO(x, "three", "a", "d")
		if *third.MessageId == *first.MessageId || *third.SequenceNumber <= *first.SequenceNumber {
			x.Fatalf("got %v, want a new message", third)
		}
		x.bodiesAre(x.receive(), "three")
	})
}

func TestFIFO_DeduplicationScopeGroup(t *testing.T) {
	attrs := withAttr(fifo, "DeduplicationScope", "messageGroup")
	inBubble(t, nil, attrs, func(x *fixture) {
		sendFIFO(x, "one", "a", "d")
		sendFIFO(x, "two", "b", "d")
		sendFIFO(x, "three", "a", "d")
		x.bodiesAre(x.receive(), "one", "two")
	})
}

func TestFIFO_ContentBasedDeduplication(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		sendFIFO(x, "same", "a", "")
		sendFIFO(x, "same", "b", "")
		sendFIFO(x, "same", "c", "other") // an explicit id goes before the content
		x.bodiesAre(x.receive(), "same", "same")
	})
	inBubble(t, nil, map[string]string{"FifoQueue": "true"}, func(x *fixture) {
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
			QueueUrl: &x.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"),
		})
		x.fails(err, "InvalidParameterValue", "ContentBasedDeduplication")
	})
}

func TestFIFO_PurgeClearsTheWindow(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		sendFIFO(x, "one", "a", "d")
		_, err := x.c.PurgeQueue(x.Context(), &sqs.PurgeQueueInput{QueueUrl: &x.url})
		x.ok(err)
		sendFIFO(x, "two", "a", "d")
		x.bodiesAre(x.receive(), "two")
	})
}

func TestFIFO_Refusals(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: aws.String("b")})
		x.fails(err, "MissingParameter", "MessageGroupId")
		_, err = x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
			QueueUrl: &x.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"), DelaySeconds: 5,
		})
		x.fails(err, "InvalidParameterValue", "DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type")
	})
}

func TestFIFO_QueueDelayKeepsOrder(t *testing.T) {
	inBubble(t, nil, withAttr(fifo, "DelaySeconds", "10"), func(x *fixture) {
		x.send("a:1")
		after(5 * time.Second)
		x.send("a:2")
		after(5 * time.Second)
		x.bodiesAre(x.receive(), "a:1")
	})
}

func TestFIFO_ReceiveAttemptIsReplayed(t *testing.T) {
	attempt := func(x *fixture) []types.Message {
		return x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 10, ReceiveRequestAttemptId: aws.String("r1")})
	}
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "a:2")
		first := attempt(x)
		after(20 * time.Second)
		again := attempt(x)
		x.bodiesAre(again, "a:1", "a:2")
		if *again[0].ReceiptHandle != *first[0].ReceiptHandle || again[0].Attributes["ApproximateReceiveCount"] != "1" {
			x.Fatal("the replay has another handle or count")
		}
		after(29 * time.Second) // 49 s after the receive, 29 s after the replay
		x.bodiesAre(x.receive())
		x.ok(x.extend(first[1], 30))
		x.bodiesAre(attempt(x)) // touched: no replay, and the group is in flight
	})
	inBubble(t, nil, withAttr(fifo, "VisibilityTimeout", "600"), func(x *fixture) {
		x.send("a:1")
		attempt(x)
		after(5 * time.Minute)
		x.bodiesAre(attempt(x)) // after five minutes it is a receive of its own
	})
}

func TestFIFO_InFlightLimitReturnsNothing(t *testing.T) {
	inBubble(t, &sqstest.Options{InFlightLimit: 2}, fifo, func(x *fixture) {
		x.send("a:1", "b:1", "c:1")
		got := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 2})
		x.bodiesAre(x.receive())
		x.ok(x.delete(got[0]))
		x.bodiesAre(x.receive(), "c:1")
	})
}

func TestFIFO_LongPollWaitsForTheGroup(t *testing.T) {
	inBubble(t, nil, fifo, func(x *fixture) {
		x.send("a:1", "a:2")
		m := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})[0]
		start := time.Now()
		time.AfterFunc(4*time.Second, func() {
			if err := x.delete(m); err != nil {
				x.Error(err)
			}
		})
		x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20}), "a:2")
		if d := time.Since(start); d != 4*time.Second {
			x.Fatalf("waited %v", d)
		}
	})
}
