// Package taskkey reads tasks and messages of other systems that arrive through
// a queue: Celery, Pub/Sub push and Temporal.
package taskkey

import (
	"encoding/base64"

	"github.com/secondrun/secondrun/keyfn"
)

// Celery gives task name and task id of a Celery message (protocol 2) on SQS or
// Redis, where the headers are a member of the body:
// "billing.remind:7774f2c5-0000-4ebe-9985-22de48ee8c4f". All copies that the
// broker makes and all retries share the id. A producer that calls the task
// twice makes two ids; for that the key belongs into the arguments, see
// [CeleryArguments]. delivery_tag and retries are not read.
func Celery() keyfn.Func {
	return keyfn.Join(keyfn.JSON("headers.task"), keyfn.JSON("headers.id"))
}

// CeleryArguments is the view of the arguments of a Celery message: a JSON array
// of positional arguments, keyword arguments and the callbacks. The task name
// is the header "task".
//
//	keyfn.In(taskkey.CeleryArguments, keyfn.Template("{header:task}:{0.0}"))
//
// The arguments are in Base64, as on SQS and Redis, unless
// properties.body_encoding names another encoding; whether they look like
// Base64 decides nothing.
func CeleryArguments(m keyfn.Message) (keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(), "body", "headers", "properties")
	if err != nil {
		return nil, err
	}
	if !v[0].IsString() || !v[1].IsObject() {
		return nil, failed("body", keyfn.ErrMalformed)
	}
	task, err := keyfn.Fields(v[1], "task")
	if err != nil {
		return nil, err
	}
	body := []byte(v[0].Text())
	plain, err := encodedOtherwise(v[2])
	if err != nil {
		return nil, err
	}
	if !plain {
		if body, err = base64.StdEncoding.DecodeString(v[0].Text()); err != nil {
			return nil, failed("body", keyfn.ErrMalformed)
		}
	}
	headers := map[string][]string{}
	if task[0].IsString() {
		headers["task"] = []string{task[0].Text()}
	}
	return keyfn.WithHeaders(m, body, headers), nil
}

func encodedOtherwise(properties keyfn.Raw) (bool, error) {
	if !properties.IsObject() {
		return false, nil
	}
	v, err := keyfn.Fields(properties, "body_encoding")
	if err != nil {
		return false, err
	}
	return v[0].IsString() && v[0].Text() != "base64", nil
}

func failed(path string, reason error) error {
	return &keyfn.Error{Builder: "Celery", Path: path, Reason: reason}
}

// PubSub is the view of the message in a Pub/Sub push request: its decoded data
// as the body, its attributes as headers. Message id and publish time are not
// shown: the id is new when the publisher sends again, the time on every
// delivery. Anything that is no push request is [keyfn.ErrMalformed].
func PubSub(m keyfn.Message) (keyfn.Message, error) {
	v, err := keyfn.Fields(m.Body(), "message", "subscription")
	if err != nil {
		return nil, err
	}
	bad := &keyfn.Error{Builder: "PubSub", Path: "message", Reason: keyfn.ErrMalformed}
	if !v[0].IsObject() || !v[1].IsString() {
		return nil, bad
	}
	inner, err := keyfn.Fields(v[0], "data", "attributes")
	if err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(inner[0].Text())
	if err != nil {
		return nil, bad
	}
	headers := map[string][]string{}
	if inner[1].IsObject() {
		err = inner[1].Members(func(name string, value keyfn.Raw) error {
			if !value.IsString() {
				return bad
			}
			headers[name] = []string{value.Text()}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return keyfn.WithHeaders(m, data, headers), nil
}

// Temporal gives namespace, workflow id and activity id of an activity, which
// all attempts share; the run id, which a reset changes, and the attempt are not
// read. A workflow id that is used again for other work needs more in the key.
func Temporal() keyfn.Func {
	return keyfn.Join(keyfn.JSON("namespace"), keyfn.JSON("workflowId"), keyfn.JSON("activityId"))
}
