package sqstest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func TestStandard_ReceiveHidesAndDeleteRemoves(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		if got := x.receive(); len(got) != 0 {
			x.Fatalf("received %v while in flight", bodies(got))
		}
		after(30*time.Second - time.Nanosecond)
		x.bodiesAre(x.receive())
		after(time.Nanosecond)
		again := x.one()
		if *again.ReceiptHandle == *m.ReceiptHandle {
			x.Fatal("the second receive has the handle of the first")
		}
		if n := again.Attributes["ApproximateReceiveCount"]; n != "2" {
			x.Fatalf("count %s, want 2", n)
		}
		x.ok(x.delete(again))
		after(time.Hour)
		x.bodiesAre(x.receive())
	})
}

func TestVisibility_CountsFromTheCall(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		after(10 * time.Second)
		x.ok(x.extend(m, 15)) // until second 25, not 45
		after(14 * time.Second)
		x.bodiesAre(x.receive())
		after(time.Second)
		x.one()
	})
}

func TestVisibility_NotPermanent(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.ok(x.extend(x.one(), 5))
		after(5 * time.Second)
		x.one() // for the queue's 30 s again
		after(29 * time.Second)
		x.bodiesAre(x.receive())
		after(time.Second)
		x.one()
	})
}

func TestVisibility_ZeroReleases(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.ok(x.extend(x.one(), 0))
		x.one()
	})
}

func TestVisibility_ReceiveOverridesTheQueue(t *testing.T) {
	inBubble(t, nil, map[string]string{"VisibilityTimeout": "100"}, func(x *fixture) {
		x.send("a")
		x.receiveWith(sqs.ReceiveMessageInput{VisibilityTimeout: 3})
		after(3 * time.Second)
		x.one()
		after(99 * time.Second)
		x.bodiesAre(x.receive())
		after(time.Second)
		x.one()
	})
}

func TestVisibility_Range(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		x.fails(x.extend(m, 43201), "InvalidParameterValue", "VisibilityTimeout")
		x.fails(x.extend(m, -1), "InvalidParameterValue", "VisibilityTimeout")
		x.ok(x.extend(m, 43200))
	})
}

func TestVisibility_TotalOfTwelveHours(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		after(time.Second)
		x.fails(x.extend(m, 43200), "InvalidParameterValue", "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
		x.ok(x.extend(m, 43199))
		// A later receive starts its own twelve hours.
		x.ok(x.extend(m, 0))
		x.ok(x.extend(x.one(), 43200))
	})
}

// Twelve hours of heartbeats every 10 s hold the message until the call that
// would pass the limit; it is refused, not clamped, and the message comes back
// when the last extension ends.
func TestVisibility_TwelveHoursOfHeartbeats(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		start := time.Now()
		m := x.one()
		var err error
		beats := 0
		for err == nil {
			after(10 * time.Second)
			if err = x.extend(m, 30); err == nil {
				beats++
			}
		}
		x.fails(err, "InvalidParameterValue", "beyond the limit")
		if held := time.Since(start); held != 12*time.Hour-20*time.Second || beats != 4317 {
			x.Fatalf("refused after %v and %d beats", held, beats)
		}
		after(19 * time.Second)
		x.bodiesAre(x.receive())
		after(time.Second)
		x.one()
		if n := x.srv.CallCount("ChangeMessageVisibility"); n != beats+1 {
			x.Fatalf("%d calls counted, want %d", n, beats+1)
		}
	})
}

func TestHandle_DeleteAfterTimeoutRemoves(t *testing.T) {
	for _, stale := range []sqstest.Stale{sqstest.StaleNoop, sqstest.StaleApply, sqstest.StaleError} {
		inBubble(t, &sqstest.Options{Stale: stale}, nil, func(x *fixture) {
			x.send("a")
			m := x.one()
			after(31 * time.Second)
			x.ok(x.delete(m))
			x.bodiesAre(x.receive())
			x.ok(x.delete(m)) // repeated
		})
	}
}

func TestHandle_ExtendAfterTimeout(t *testing.T) {
	hidden := map[sqstest.Stale]bool{sqstest.StaleNoop: false, sqstest.StaleApply: true}
	for stale, want := range hidden {
		inBubble(t, &sqstest.Options{Stale: stale}, nil, func(x *fixture) {
			x.send("a")
			m := x.one()
			after(31 * time.Second)
			x.ok(x.extend(m, 60))
			if got := x.receive(); (len(got) == 0) != want {
				x.Fatalf("policy %d: received %v", stale, bodies(got))
			}
		})
	}
	inBubble(t, &sqstest.Options{Stale: sqstest.StaleError}, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		after(31 * time.Second)
		err := x.extend(m, 60)
		if !errors.As(err, new(*types.MessageNotInflight)) {
			x.Fatalf("got %v, want MessageNotInflight", err)
		}
	})
}

func TestHandle_Superseded(t *testing.T) {
	for _, stale := range []sqstest.Stale{sqstest.StaleNoop, sqstest.StaleApply, sqstest.StaleError} {
		inBubble(t, &sqstest.Options{Stale: stale}, nil, func(x *fixture) {
			x.send("a")
			old := x.one()
			after(31 * time.Second)
			x.one()
			err := x.extend(old, 1)
			if stale == sqstest.StaleError {
				x.fails(err, "InvalidParameterValue", "Message does not exist or is not available for visibility timeout change.")
				x.fails(x.delete(old), "InvalidParameterValue", "The receipt handle has expired.")
			} else {
				x.ok(err)
				after(time.Second)
				if got := x.receive(); (len(got) == 1) != (stale == sqstest.StaleApply) {
					x.Fatalf("policy %d: received %v", stale, bodies(got))
				}
				x.ok(x.delete(old))
			}
			after(time.Hour)
			if got := x.receive(); (len(got) == 0) != (stale == sqstest.StaleApply) {
				x.Fatalf("policy %d: received %v after the delete", stale, bodies(got))
			}
		})
	}
}

func TestHandle_ExtendAfterDelete(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		x.ok(x.delete(m))
		x.fails(x.extend(m, 30), "InvalidParameterValue", "Message does not exist or is not available for visibility timeout change.")
	})
}

func TestHandle_Garbage(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		other := x.create("other", nil)
		foreign := x.one()
		x.url = other
		for _, h := range []string{"garbage", "AQEBAAAA", *foreign.ReceiptHandle} {
			m := types.Message{ReceiptHandle: aws.String(h)}
			for _, err := range []error{x.delete(m), x.extend(m, 30)} {
				if !errors.As(err, new(*types.ReceiptHandleIsInvalid)) {
					x.Fatalf("%s: got %v", h, err)
				}
				var resp interface{ HTTPStatusCode() int }
				if !errors.As(err, &resp) || resp.HTTPStatusCode() != 404 {
					x.Fatalf("%s: not a 404: %v", h, err)
				}
			}
		}
	})
}

func TestHandle_DeadAfterTwelveHours(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		m := x.one()
		after(12 * time.Hour)
		x.fails(x.delete(m), "InvalidParameterValue", "The receipt handle has expired.")
		x.fails(x.extend(m, 1), "InvalidParameterValue", "beyond the limit")
		x.one()
	})
}

func TestBatch_EntriesAnswerOneByOne(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a", "b", "c")
		got := x.receive()
		x.bodiesAre(got, "a", "b", "c")
		vis, err := x.c.ChangeMessageVisibilityBatch(x.Context(), &sqs.ChangeMessageVisibilityBatchInput{
			QueueUrl: &x.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
				{Id: aws.String("0"), ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0},
				{Id: aws.String("1"), ReceiptHandle: aws.String("garbage"), VisibilityTimeout: 10},
				{Id: aws.String("2"), ReceiptHandle: got[2].ReceiptHandle, VisibilityTimeout: 50000},
			},
		})
		x.ok(err)
		if len(vis.Successful) != 1 || len(vis.Failed) != 2 || !vis.Failed[0].SenderFault ||
			*vis.Failed[0].Code != "ReceiptHandleIsInvalid" || *vis.Failed[1].Code != "InvalidParameterValue" {
			x.Fatalf("got %+v", vis)
		}
		x.bodiesAre(x.receive(), "a") // CMV 0 in a batch
		del, err := x.c.DeleteMessageBatch(x.Context(), &sqs.DeleteMessageBatchInput{
			QueueUrl: &x.url, Entries: []types.DeleteMessageBatchRequestEntry{
				{Id: aws.String("0"), ReceiptHandle: got[1].ReceiptHandle},
				{Id: aws.String("1"), ReceiptHandle: aws.String("garbage")},
			},
		})
		x.ok(err)
		if len(del.Successful) != 1 || len(del.Failed) != 1 || *del.Failed[0].Id != "1" {
			x.Fatalf("got %+v", del)
		}
	})
}

func TestLongPoll_WaitsForASend(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		start := time.Now()
		done := make(chan []types.Message)
		go func() { done <- x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20}) }()
		after(7 * time.Second)
		x.send("a")
		x.bodiesAre(<-done, "a")
		if d := time.Since(start); d != 7*time.Second {
			x.Fatalf("waited %v", d)
		}
	})
}

func TestLongPoll_EndsEmpty(t *testing.T) {
	inBubble(t, nil, map[string]string{"ReceiveMessageWaitTimeSeconds": "5"}, func(x *fixture) {
		start := time.Now()
		x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20}))
		if d := time.Since(start); d != 20*time.Second {
			x.Fatalf("waited %v", d)
		}
		x.bodiesAre(x.receive()) // WaitTimeSeconds 0 is not sent: the queue's default
		if d := time.Since(start); d != 25*time.Second {
			x.Fatalf("waited %v", d)
		}
	})
}

func TestLongPoll_SeesWhatBecomesVisible(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		x.send("a")
		x.receiveWith(sqs.ReceiveMessageInput{VisibilityTimeout: 15})
		start := time.Now()
		x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20, VisibilityTimeout: 15}), "a")
		if d := time.Since(start); d != 15*time.Second {
			x.Fatalf("waited %v", d)
		}
	})
}

func TestLongPoll_SeesARelease(t *testing.T) {
	for _, seconds := range []int32{0, 2} { // at once, or earlier than reckoned with
		inBubble(t, nil, nil, func(x *fixture) {
			x.send("a")
			m := x.one()
			time.AfterFunc(3*time.Second, func() {
				if err := x.extend(m, seconds); err != nil {
					x.Error(err)
				}
			})
			start := time.Now()
			x.bodiesAre(x.receiveWith(sqs.ReceiveMessageInput{WaitTimeSeconds: 20}), "a")
			if d, want := time.Since(start), time.Duration(3+seconds)*time.Second; d != want {
				x.Fatalf("waited %v, want %v", d, want)
			}
		})
	}
}

func TestDo_EndedContextSendsNothing(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		ctx, cancel := canceled()
		cancel()
		body := strings.NewReader(`{"QueueUrl":"q","MessageBody":"a"}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, sqstest.InProcessURL, body)
		x.ok(err)
		req.Header.Set("X-Amz-Target", "AmazonSQS.SendMessage")
		resp, err := x.srv.Do(req) // the SDK would not come this far
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) || x.srv.CallCount("SendMessage") != 0 {
			x.Fatalf("got %v after %d calls", err, x.srv.CallCount("SendMessage"))
		}
	})
}

func TestLongPoll_CallerGivesUp(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		inBubble(t, &sqstest.Options{AbandonedPolls: abandoned}, nil, func(x *fixture) {
			ctx, cancel := canceled()
			time.AfterFunc(3*time.Second, cancel)
			_, err := x.c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &x.url, WaitTimeSeconds: 20})
			if err == nil {
				x.Fatal("no error")
			}
			x.send("a")
			got := x.receive()
			if lost := len(got) == 0; lost != abandoned {
				x.Fatalf("abandoned=%v, received %v", abandoned, bodies(got))
			}
			after(30 * time.Second)
			if n := x.one().Attributes["ApproximateReceiveCount"]; n != "2" {
				x.Fatalf("count %s, want 2: once lost or seen above, once now", n)
			}
		})
	}
}
