package sqstest_test

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func stringAttr(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
}

// The SDK checks the checksum of bodies by itself; that of attributes it does
// not, so the expected one is built here from the documented layout.
func TestSend_Checksums(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		out, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
			QueueUrl: &x.url, MessageBody: aws.String("héllo"),
			MessageAttributes: map[string]types.MessageAttributeValue{
				"b": {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}},
				"a": {DataType: aws.String("Number.int"), StringValue: aws.String("42")},
			},
			MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-2-3")},
			},
		})
		x.ok(err)
		layout := "\x00\x00\x00\x01a" + "\x00\x00\x00\x0aNumber.int" + "\x01" + "\x00\x00\x00\x0242" +
			"\x00\x00\x00\x01b" + "\x00\x00\x00\x06Binary" + "\x02" + "\x00\x00\x00\x02\x01\x02"
		sum := md5.Sum([]byte(layout)) //nolint:gosec // see above
		if *out.MD5OfMessageAttributes != hex.EncodeToString(sum[:]) {
			x.Fatalf("checksum %s", *out.MD5OfMessageAttributes)
		}
		system := "\x00\x00\x00\x0eAWSTraceHeader" + "\x00\x00\x00\x06String" + "\x01" + "\x00\x00\x00\x0aRoot=1-2-3"
		sum = md5.Sum([]byte(system)) //nolint:gosec // see above
		if *out.MD5OfMessageSystemAttributes != hex.EncodeToString(sum[:]) {
			x.Fatalf("checksum %s", *out.MD5OfMessageSystemAttributes)
		}
		m := x.one()
		if *m.MD5OfMessageAttributes != *out.MD5OfMessageAttributes || m.Attributes["AWSTraceHeader"] != "Root=1-2-3" ||
			string(m.MessageAttributes["b"].BinaryValue) != "\x01\x02" {
			x.Fatalf("received %+v", m)
		}
	})
}

func TestReceive_AttributeNames(t *testing.T) {
	inBubble(t, nil, map[string]string{"VisibilityTimeout": "1"}, func(x *fixture) {
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
			QueueUrl: &x.url, MessageBody: aws.String("b"), MessageAttributes: map[string]types.MessageAttributeValue{
				"order.id": stringAttr("1"), "order.kind": stringAttr("2"), "trace": stringAttr("3"),
			},
		})
		x.ok(err)
		sum := md5.Sum([]byte("\x00\x00\x00\x05trace\x00\x00\x00\x06String\x01\x00\x00\x00\x013")) //nolint:gosec // the protocol's
		traceOnly := hex.EncodeToString(sum[:])
		for _, c := range []struct {
			names []string
			want  string
		}{
			{nil, ""},
			{[]string{"trace", "none"}, "trace"},
			{[]string{"order.*"}, "order.id order.kind"},
			{[]string{"All"}, "order.id order.kind trace"},
			{[]string{".*"}, "order.id order.kind trace"},
		} {
			out, err := x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: &x.url, MessageAttributeNames: c.names})
			x.ok(err)
			m := out.Messages[0]
			var got []string
			for _, name := range []string{"order.id", "order.kind", "trace"} {
				if _, ok := m.MessageAttributes[name]; ok {
					got = append(got, name)
				}
			}
			if (m.MD5OfMessageAttributes == nil) != (len(got) == 0) || len(got) == 1 && *m.MD5OfMessageAttributes != traceOnly {
				x.Fatalf("%v: the checksum is not that of the attributes returned", c.names)
			}
			if strings.Join(got, " ") != c.want || len(m.Attributes) != 0 {
				x.Fatalf("%v: got %v and system attributes %v", c.names, got, m.Attributes)
			}
			after(time.Second)
		}
		for _, in := range []sqs.ReceiveMessageInput{
			{AttributeNames: []types.QueueAttributeName{"ApproximateReceiveCount"}},
			{MessageSystemAttributeNames: []types.MessageSystemAttributeName{"ApproximateReceiveCount"}},
		} {
			in.QueueUrl = &x.url
			out, err := x.c.ReceiveMessage(x.Context(), &in)
			x.ok(err)
			if a := out.Messages[0].Attributes; len(a) != 1 || a["ApproximateReceiveCount"] == "" {
				x.Fatalf("got %v", a)
			}
			after(time.Second)
		}
	})
}

func TestSend_Limits(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		send := func(body string, attrs int) error {
			in := &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
			for i := range attrs {
				in.MessageAttributes[fmt.Sprint("a", i)] = stringAttr("v")
			}
			_, err := x.c.SendMessage(x.Context(), in)
			return err
		}
		x.ok(send(strings.Repeat("x", 1<<20), 0))
		x.fails(send(strings.Repeat("x", 1<<20+1), 0), "InvalidParameterValue", "must be shorter than 1048576 bytes")
		x.fails(send(strings.Repeat("x", 1<<20), 1), "InvalidParameterValue", "must be shorter") // attributes count
		x.ok(send("b", 10))
		x.fails(send("b", 11), "InvalidParameterValue", "Number of message attributes [11] exceeds the allowed maximum [10]")
		x.fails(send("\x01", 0), "InvalidMessageContents", "Invalid characters")
		x.fails(send("", 0), "MissingParameter", "MessageBody")
	})
}

func TestSend_Delay(t *testing.T) {
	inBubble(t, nil, map[string]string{"DelaySeconds": "10"}, func(x *fixture) {
		x.send("queue") // DelaySeconds 0 is not sent: the queue's default
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{QueueUrl: &x.url, MessageBody: aws.String("own"), DelaySeconds: 3})
		x.ok(err)
		if n := x.srv.Queue(x.url).Counts(); n.Delayed != 2 {
			x.Fatalf("counts %+v", n)
		}
		after(3 * time.Second)
		x.bodiesAre(x.receive(), "own")
		after(7 * time.Second)
		x.bodiesAre(x.receive(), "queue")
	})
}

func TestSend_FairQueueGroupsNeitherOrderNorBlock(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		for _, b := range []string{"1", "2"} {
			_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
				QueueUrl: &x.url, MessageBody: aws.String(b), MessageGroupId: aws.String("tenant"),
			})
			x.ok(err)
		}
		m := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})[0]
		if m.Attributes["MessageGroupId"] != "tenant" {
			x.Fatalf("attributes %v", m.Attributes)
		}
		x.bodiesAre(x.receive(), "2")
		_, err := x.c.SendMessage(x.Context(), &sqs.SendMessageInput{
			QueueUrl: &x.url, MessageBody: aws.String("3"), MessageDeduplicationId: aws.String("d"),
		})
		x.fails(err, "InvalidParameterValue", "MessageDeduplicationId")
	})
}

func entry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
}

func TestBatch_Rules(t *testing.T) {
	inBubble(t, nil, nil, func(x *fixture) {
		send := func(entries ...types.SendMessageBatchRequestEntry) error {
			_, err := x.c.SendMessageBatch(x.Context(), &sqs.SendMessageBatchInput{QueueUrl: &x.url, Entries: entries})
			return err
		}
		var eleven []types.SendMessageBatchRequestEntry
		for i := range 11 {
			eleven = append(eleven, entry(fmt.Sprint(i), "b"))
		}
		const p = "AWS.SimpleQueueService."
		x.ok(send(eleven[:10]...))
		x.fails(send(eleven...), p+"TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent 11.")
		x.fails(send([]types.SendMessageBatchRequestEntry{}...), p+"EmptyBatchRequest", "at least one")
		x.fails(send(entry("a", "b"), entry("a", "c")), p+"BatchEntryIdsNotDistinct", "Id a repeated.")
		x.fails(send(entry("a b", "b")), p+"InvalidBatchEntryId", "alphanumeric")
		x.fails(send(entry(strings.Repeat("a", 81), "b")), p+"InvalidBatchEntryId", "80")
		x.ok(send(entry(strings.Repeat("a", 80), "b")))
		half := strings.Repeat("x", 1<<19)
		x.ok(send(entry("a", half), entry("b", half)))
		x.fails(send(entry("a", half), entry("b", half+"x")), p+"BatchRequestTooLong", "1048576")
		out, err := x.c.SendMessageBatch(x.Context(), &sqs.SendMessageBatchInput{
			QueueUrl: &x.url, Entries: []types.SendMessageBatchRequestEntry{entry("good", "b"), entry("bad", "\x02")},
		})
		x.ok(err)
		if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Code != "InvalidMessageContents" || !out.Failed[0].SenderFault {
			x.Fatalf("got %+v", out)
		}
	})
}

func TestQueue_RetentionExpires(t *testing.T) {
	inBubble(t, nil, map[string]string{"MessageRetentionPeriod": "60"}, func(x *fixture) {
		x.send("a")
		x.receiveWith(sqs.ReceiveMessageInput{VisibilityTimeout: 100}) // in flight does not protect
		after(30 * time.Second)
		x.send("b")
		after(30 * time.Second)
		if n := x.srv.Queue(x.url).Counts(); n.Visible != 1 || n.InFlight != 0 || n.Expired != 1 {
			x.Fatalf("counts %+v", n)
		}
		after(30 * time.Second)
		x.bodiesAre(x.receive())
	})
}

func TestQueue_InFlightLimit(t *testing.T) {
	o := optionsWithLimit(2)
	inBubble(t, o, nil, func(x *fixture) {
		x.send("a", "b", "c")
		got := x.receiveWith(sqs.ReceiveMessageInput{MaxNumberOfMessages: 2})
		_, err := x.c.ReceiveMessage(x.Context(), &sqs.ReceiveMessageInput{QueueUrl: &x.url})
		x.fails(err, "OverLimit", "")
		x.ok(x.delete(got[0]))
		x.bodiesAre(x.receive(), "c")
	})
}
