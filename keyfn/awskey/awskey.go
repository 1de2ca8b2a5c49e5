// Package awskey looks into the envelopes of AWS: SNS, SQS, EventBridge and S3.
//
// The ids of the envelopes (MessageId, the id and time of EventBridge) are new
// on every publish and name no business event; no part here reads them.
package awskey

import (
	"errors"
	"net/url"
	"strings"

	"github.com/secondrun/secondrun/keyfn"
)

// SNS is the view of the message in an SNS notification: its Message as the
// body and its attributes as headers. Any other message, as with raw delivery,
// is returned as it is, so that one event gets one key with and without raw
// delivery:
//
//	keyfn.In(awskey.SNS, keyfn.Template("{event}:{orderId}"))
//
// A body is a notification if it is a JSON object with Type "Notification", a
// TopicArn that begins with "arn:", a MessageId and a Message that is a string.
// A body that has only some of that is the application's own, and so is one that
// is not JSON.
func SNS(m keyfn.Message) (keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(), "Type", "TopicArn", "MessageId", "Message", "MessageAttributes")
	switch {
	case errors.Is(err, keyfn.ErrAmbiguous):
		return nil, err
	case err != nil:
		return m, nil //nolint:nilerr // not JSON, so no notification; the next part says what is wrong
	}
	if v[0].Text() != "Notification" || !strings.HasPrefix(v[1].Text(), "arn:") || !v[2].IsString() || !v[3].IsString() {
		return m, nil
	}
	headers, err := attributes("SNS", v[4], "Value")
	if err != nil {
		return nil, err
	}
	return keyfn.WithHeaders(m, []byte(v[3].Text()), headers), nil
}

// SQS is the view of the message in an SQS record that was itself put into a
// body: its body, and its message attributes as headers. Both spellings are
// known, that of the API (Body, MessageAttributes) and that of Lambda (body,
// messageAttributes). Anything else is [keyfn.ErrMalformed].
//
// A message that comes from an SQS consumer needs no such view.
func SQS(m keyfn.Message) (keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(),
		"ReceiptHandle", "Body", "MessageAttributes",
		"receiptHandle", "body", "messageAttributes")
	if err != nil {
		return nil, err
	}
	handle, body, attrs, value := v[0], v[1], v[2], "StringValue"
	if handle == nil {
		handle, body, attrs, value = v[3], v[4], v[5], "stringValue"
	}
	if !handle.IsString() || !body.IsString() {
		return nil, &keyfn.Error{Builder: "SQS", Reason: keyfn.ErrMalformed}
	}
	headers, err := attributes("SQS", attrs, value)
	if err != nil {
		return nil, err
	}
	return keyfn.WithHeaders(m, []byte(body.Text()), headers), nil
}

// attributes reads {"name":{member:"value"}}.
func attributes(builder string, raw keyfn.Raw, member string) (map[string][]string, error) {
	if raw.IsNull() {
		return nil, nil
	}
	headers := map[string][]string{}
	err := raw.Members(func(name string, attr keyfn.Raw) error {
		v, err := keyfn.Fields(attr, member)
		if err == nil && v[0].IsString() { // a binary attribute of SQS has none
			headers[name] = []string{v[0].Text()}
		}
		return err
	})
	if err != nil {
		return nil, &keyfn.Error{Builder: builder, Path: "attributes", Reason: keyfn.ErrMalformed}
	}
	return headers, nil
}

// EventBridge is the view of the detail of an EventBridge event. The headers
// "detail-type", "source", "account" and "region" are those members of the
// event. Anything that is not such an event is [keyfn.ErrMalformed].
//
//	keyfn.In(awskey.EventBridge, keyfn.Template("{header:source}:purchase:{purchaseId}"))
func EventBridge(m keyfn.Message) (keyfn.Message, error) {
	names := []string{"detail-type", "source", "account", "region"}
	v, err := keyfn.Fields(m.Body(), append(names, "detail")...)
	if err != nil {
		return nil, err
	}
	detail := v[len(names)]
	if !v[0].IsString() || !v[1].IsString() || detail.IsNull() {
		return nil, &keyfn.Error{Builder: "EventBridge", Reason: keyfn.ErrMalformed}
	}
	headers := map[string][]string{}
	for i, name := range names {
		if v[i].IsString() {
			headers[name] = []string{v[i].Text()}
		}
	}
	return keyfn.WithHeaders(m, detail, headers), nil
}

// S3 gives the key of an S3 notification of one record: bucket, key of the
// object (decoded), family of the event ("ObjectCreated") and the version of
// the object, or its eTag and sequencer where the bucket has no versions:
//
//	inbox:red flower.jpg:ObjectCreated:version:v-1
//
// Several records are [keyfn.ErrBatch], see [S3Records]; the test event that S3
// sends when notifications are set up is [keyfn.ErrSkip]. Behind SNS use
// keyfn.In(awskey.SNS, awskey.S3()).
func S3() keyfn.Func {
	return keyfn.Part("S3", "", func(m keyfn.Message) (string, error) {
		records, err := S3Records(m)
		if err != nil {
			return "", err
		}
		if len(records) > 1 {
			return "", keyfn.ErrBatch
		}
		return record(records[0])
	})
}

// S3Records returns a message for every record of an S3 notification, each a
// notification of one record. A notification without records is
// [keyfn.ErrSkip].
func S3Records(m keyfn.Message) ([]keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(), "Records", "Event")
	if err != nil {
		return nil, err
	}
	if v[0] == nil && v[1].Text() == "s3:TestEvent" {
		return nil, &keyfn.Error{Builder: "S3", Reason: keyfn.ErrSkip}
	}
	if !v[0].IsArray() {
		return nil, &keyfn.Error{Builder: "S3", Path: "Records", Reason: keyfn.ErrMalformed}
	}
	var records []keyfn.Message
	err = v[0].Elements(func(_ int, r keyfn.Raw) error {
		body := append([]byte(`{"Records":[`), r...)
		records = append(records, keyfn.WithBody(m, append(body, "]}"...)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, &keyfn.Error{Builder: "S3", Path: "Records", Reason: keyfn.ErrSkip}
	}
	return records, nil
}

func record(m keyfn.Message) (string, error) {
	const object = "Records.0.s3.object."
	parts := []keyfn.Func{
		keyfn.JSON("Records.0.s3.bucket.name"),
		keyfn.Map(keyfn.JSONText(object+"key"), decodeKey),
		keyfn.Map(keyfn.JSON("Records.0.eventName"), family),
	}
	version, err := keyfn.First(keyfn.JSONText(object+"versionId"), keyfn.Literal("null"))(m)
	if err != nil {
		return "", err
	}
	if version != "null" {
		return keyfn.Join(append(parts, keyfn.Literal("version"), keyfn.Literal(version))...)(m)
	}
	// Deletes have no eTag.
	etag := keyfn.First(keyfn.JSONText(object+"eTag"), keyfn.Literal("none"))
	return keyfn.Join(append(parts, keyfn.Literal("sequencer"), etag, keyfn.JSONText(object+"sequencer"))...)(m)
}

// decodeKey undoes the form encoding of keys in notifications.
func decodeKey(s string) (string, error) {
	key, err := url.QueryUnescape(s)
	if err != nil {
		return "", keyfn.ErrMalformed
	}
	return key, nil
}

// family cuts the detail off "ObjectCreated:Put".
func family(s string) (string, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(s, "s3:"), ":")
	return name, nil
}
