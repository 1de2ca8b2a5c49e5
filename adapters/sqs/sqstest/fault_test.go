package sqstest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func TestFault_ErrorIsNotApplied(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		remove := x.srv.Fault("DeleteMessage", func(sqstest.Call) *sqstest.Fault {
			return &sqstest.Fault{Code: "ReceiptHandleIsInvalid", Message: "so it is"}
		})
		x.send("a")
		m := x.one()
		x.fails(x.delete(m), "ReceiptHandleIsInvalid", "so it is")
		if n := x.srv.Queue("q").Counts().Deleted; n != 0 {
			x.Fatalf("%d deleted", n)
		}
		remove()
		x.ok(x.delete(m))
	})
}

func TestFault_ThrottlesAreRetriedByTheSDK(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.srv.Fault("SendMessage", sqstest.Times(2, sqstest.Fault{Code: "RequestThrottled"}))
		x.send("a")
		calls := x.srv.Calls("SendMessage")
		if len(calls) != 3 || calls[0].Code != "RequestThrottled" || calls[2].Code != "" || calls[2].N != 3 || !calls[2].Done {
			x.Fatalf("calls %+v", calls)
		}
		x.srv.Fault("SendMessage", sqstest.Times(3, sqstest.Fault{Code: "InternalError"}))
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: aws.String("b")})
		x.fails(err, "InternalError", "")
		x.bodiesAre(x.receive(), "a")
	})
}

// The reply of a receive is lost: the SDK asks again and gets nothing until the
// visibility timeout of the first receive is over.
func TestFault_DroppedReplyWasApplied(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.srv.Fault("ReceiveMessage", sqstest.Times(1, sqstest.Fault{DropReply: true}))
		x.bodiesAre(x.receive())
		after(30 * time.Second)
		if n := x.one().Attributes["ApproximateReceiveCount"]; n != "2" {
			x.Fatalf("count %s", n)
		}
	})
}

func TestFault_DroppedRequestWasNotApplied(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.srv.Fault("ReceiveMessage", sqstest.Times(1, sqstest.Fault{DropRequest: true}))
		if n := x.one().Attributes["ApproximateReceiveCount"]; n != "1" {
			x.Fatalf("count %s", n)
		}
		if c := x.srv.Calls("ReceiveMessage")[0].Code; c != "dropped" {
			x.Fatalf("logged as %q", c)
		}
	})
}

func TestFault_Delays(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.srv.Fault("ReceiveMessage", func(sqstest.Call) *sqstest.Fault {
			return &sqstest.Fault{Delay: 2 * time.Second, DelayReply: 5 * time.Second}
		})
		start := time.Now()
		x.one()
		m := x.srv.Queue("q").Messages()[0]
		if time.Since(start) != 7*time.Second || m.ReceivedAt.Sub(start) != 2*time.Second {
			x.Fatalf("answered after %v, applied after %v", time.Since(start), m.ReceivedAt.Sub(start))
		}
	})
}

func TestFault_EntriesOfABatch(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.srv.Fault("SendMessageBatch", sqstest.Times(1, sqstest.Fault{
			FailEntries: func(i int, id string) bool { return i == 0 || id == "c" },
		}))
		out, err := x.c.SendMessageBatch(x.Context(), &sqs.SendMessageBatchInput{
			QueueUrl: &x.url, Entries: []types.SendMessageBatchRequestEntry{entry("a", "1"), entry("b", "2"), entry("c", "3")},
		})
		x.ok(err)
		if len(out.Failed) != 2 || *out.Failed[0].Code != "InternalError" || out.Failed[0].SenderFault {
			x.Fatalf("got %+v", out)
		}
		x.bodiesAre(x.receive(), "2")
		if ids := x.srv.Calls("SendMessageBatch")[0].EntryIDs; fmt.Sprint(ids) != "[a b c]" {
			x.Fatalf("logged ids %v", ids)
		}
	})
}

func TestRedeliver(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		id := x.send("a")[0]
		m := x.one()
		x.ok(x.srv.Redeliver(x.url, id)) // in flight: two holders
		second := x.one()
		x.ok(x.delete(second))
		x.ok(x.srv.Redeliver(x.url, id)) // deleted: it is back
		third := x.one()
		if *third.MessageId != id || third.Attributes["ApproximateReceiveCount"] != "3" {
			x.Fatalf("got %+v", third)
		}
		x.fails(x.extend(m, 10), "InvalidParameterValue", "not available")
		if err := x.srv.Redeliver(x.url, "none"); err == nil {
			x.Fatal("an unknown message was redelivered")
		}
	})
}

func TestRedeliver_Probability(t *testing.T) {
	inBubble(t, &sqstest.Options{RedeliverDeleted: 1}, nil, func(x *fixture) {
		x.send("a")
		x.ok(x.delete(x.one()))
		x.bodiesAre(x.receive())
		after(30 * time.Second)
		x.ok(x.delete(x.one())) // once only
		after(time.Hour)
		x.bodiesAre(x.receive())
	})
}

// A run with the same seed repeats the order, the batches and the ids.
func TestShuffle_IsReproducible(t *testing.T) {
	run := func(seed uint64) (order []string, sizes []int) {
		o := &sqstest.Options{Shuffle: true, ShortReceives: true, Seed: seed}
		inBubble(t, o, nil, func(x *fixture) {
			for i := range 20 {
				x.send(fmt.Sprint(i))
			}
			for got := x.receive(); len(got) > 0; got = x.receive() {
				sizes = append(sizes, len(got))
				for _, m := range got {
					order = append(order, *m.Body+"/"+*m.MessageId)
				}
			}
		})
		return order, sizes
	}
	a, sizesA := run(7)
	b, sizesB := run(7)
	c, _ := run(8)
	if !slices.Equal(a, b) || !slices.Equal(sizesA, sizesB) {
		t.Fatal("the same seed gave another run")
	}
	if slices.Equal(a, c) || slices.Max(sizesA) == slices.Min(sizesA) || len(a) != 20 {
		t.Fatalf("not random: %v, %v", a, sizesA)
	}
}

func TestInspect_KeepsTheNewest(t *testing.T) {
	inBubble(t, &sqstest.Options{KeepDeleted: 2, KeepCalls: 3}, nil, func(x *fixture) {
		x.send("a", "b", "c", "d", "e", "f")
		for _, m := range x.receive() {
			x.ok(x.delete(m))
		}
		if b := x.srv.Queue("q").Bodies(sqstest.Deleted); fmt.Sprint(b) != "[e f]" {
			x.Fatal(b)
		}
		calls := x.srv.Calls("")
		if len(calls) != 3 || calls[2].Op != "DeleteMessage" || calls[2].N != 6 || x.srv.CallCount("") != 14 {
			x.Fatalf("%d calls, the newest are %+v", x.srv.CallCount(""), calls)
		}
	})
}

func TestInspect(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a", "b", "c")
		got := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 2})
		x.ok(x.delete(got[0]))
		var states []string
		for _, m := range x.srv.Queue(x.url).Messages() {
			states = append(states, m.Body+" "+m.State.String())
		}
		if s := strings.Join(states, ", "); s != "b in flight, c visible, a deleted" {
			x.Fatal(s)
		}
		want := sqstest.Counts{Visible: 1, InFlight: 1, Sent: 3, Received: 2, Deleted: 1}
		if n := x.srv.Queue("q").Counts(); n != want {
			x.Fatalf("got %+v, want %+v", n, want)
		}
		if b := x.srv.Queue("q").Bodies(); fmt.Sprint(b) != "[b c]" {
			x.Fatal(b)
		}
		if m := x.srv.Queue("q").Messages()[0]; m.ReceiptHandle != *got[1].ReceiptHandle {
			x.Fatal("another handle")
		}
		if n := x.srv.Queue("none").Counts(); n != (sqstest.Counts{}) {
			x.Fatalf("a missing queue has %+v", n)
		}
	})
}

func TestUnknownOperation(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		_, err := x.c.RemovePermission(x.Context(), &sqs.RemovePermissionInput{QueueUrl: &x.url, Label: aws.String("l")})
		if !errors.As(err, new(*types.UnsupportedOperation)) {
			x.Fatalf("got %v", err)
		}
	})
}
