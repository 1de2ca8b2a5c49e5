package awskey_test

import (
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

const wrapped = `{"Type":"Notification","TopicArn":"arn:aws:sns:eu-west-1:1:t","MessageId":"m","Message":"{\"a\":\"x\"}","MessageAttributes":{"id":{"Type":"String","Value":"inner"}}}`

// The view gives the handler what it gives the key.
func TestU01_SameViewForTheHandler(t *testing.T) {
	for _, m := range []keyfn.Message{keyfntest.Message(wrapped, "id", "outer"), keyfntest.Message(`{"a":"x"}`, "id", "inner")} {
		inner, err := awskey.SNS(m)
		if err != nil || string(inner.Body()) != `{"a":"x"}` || strings.Join(inner.Header("id"), ",") != "inner" {
			t.Errorf("%s, %v, %v", inner.Body(), inner.Header("id"), err)
		}
	}
	inner, err := awskey.SNS(keyfntest.Message(wrapped, "other", "outer"))
	if err != nil || strings.Join(inner.Header("other"), ",") != "outer" {
		t.Errorf("headers of the outer message: %v, %v", inner.Header("other"), err)
	}
}

func TestSNS_OnlyNotifications(t *testing.T) {
	for _, change := range [][2]string{{"Notification", "SubscriptionConfirmation"}, {"arn:", "urn:"}, {`"MessageId"`, `"Id"`}, {`"{\"a\":\"x\"}"`, `{"a":"x"}`}} {
		m := keyfntest.Message(strings.Replace(wrapped, change[0], change[1], 1))
		if inner, err := awskey.SNS(m); err != nil || inner != m {
			t.Errorf("%v: unwrapped, %v", change, err)
		}
	}
	id := keyfn.In(awskey.SNS, keyfn.Header("id"))
	keyfntest.Fails(t, id, keyfn.ErrAmbiguous,
		keyfntest.Message(strings.Replace(wrapped, `{"Type":"String","Value":"inner"}`, `{"Type":"String","Type":"String"}`, 1)))
	keyfntest.Fails(t, id, keyfn.ErrMalformed,
		keyfntest.Message(strings.Replace(wrapped, `{"id":{"Type":"String","Value":"inner"}}`, `[]`, 1)))
}

func TestS3Records(t *testing.T) {
	ms, err := awskey.S3Records(keyfntest.Message(`{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"k%C3%A9","sequencer":"1"}}},{"eventName":"s3:ObjectRemoved:Delete","s3":{"bucket":{"name":"b"},"object":{"key":"k","sequencer":"2"}}}]}`))
	if err != nil || len(ms) != 2 {
		t.Fatalf("%d records, %v", len(ms), err)
	}
	for i, want := range []string{"b:ké:ObjectCreated:sequencer:none:1", "b:k:ObjectRemoved:sequencer:none:2"} {
		if got, err := awskey.S3()(ms[i]); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	keyfntest.Fails(t, awskey.S3(), keyfn.ErrSkip, keyfntest.Message(`{"Records":[]}`))
	keyfntest.Fails(t, awskey.S3(), keyfn.ErrMalformed, keyfntest.Message(`{"Records":{}}`), keyfntest.Message(`{"orderId":"1"}`))
}
