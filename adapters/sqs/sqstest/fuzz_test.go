package sqstest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// Whatever a caller sends gets an answer of the protocol, and no panic. The
// server has one message in flight, whose handle stands for HANDLE.
func FuzzRequest(f *testing.F) {
	for op, body := range map[string]string{
		"SendMessage":                  `{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"String","StringValue":"v"}}}`,
		"SendMessageBatch":             `{"QueueUrl":"q.fifo","Entries":[{"Id":"a","MessageBody":"b","MessageGroupId":"g"},null]}`,
		"ReceiveMessage":               `{"QueueUrl":"q","MaxNumberOfMessages":10,"AttributeNames":["All"],"MessageAttributeNames":["a.*"]}`,
		"DeleteMessage":                `{"QueueUrl":"q","ReceiptHandle":"HANDLE"}`,
		"DeleteMessageBatch":           `{"QueueUrl":"q","Entries":[{"Id":"a","ReceiptHandle":"HANDLE"}]}`,
		"ChangeMessageVisibility":      `{"QueueUrl":"q","ReceiptHandle":"HANDLE","VisibilityTimeout":0}`,
		"ChangeMessageVisibilityBatch": `{"QueueUrl":"q","Entries":[{"Id":"a","ReceiptHandle":"HANDLE","VisibilityTimeout":43200}]}`,
		"CreateQueue":                  `{"QueueName":"x.fifo","Attributes":{"FifoQueue":"true","RedrivePolicy":"{\"deadLetterTargetArn\":1}"},"tags":{"a":"b"}}`,
		"SetQueueAttributes":           `{"QueueUrl":"q","Attributes":{"RedriveAllowPolicy":"{}","VisibilityTimeout":"-1"}}`,
		"GetQueueAttributes":           `{"QueueUrl":"q","AttributeNames":["All"]}`,
		"GetQueueUrl":                  `{"QueueName":"q"}`,
		"ListQueues":                   `{"MaxResults":1,"NextToken":"a"}`,
		"PurgeQueue":                   `{"QueueUrl":"http://h/0/q"}`,
		"DeleteQueue":                  `{"QueueUrl":"q"}`,
		"StartMessageMoveTask":         `{"SourceArn":"arn:aws:sqs:us-east-1:000000000000:q","MaxNumberOfMessagesPerSecond":1}`,
		"ListMessageMoveTasks":         `{"SourceArn":"q"}`,
		"CancelMessageMoveTask":        `{"TaskHandle":"x"}`,
		"ListDeadLetterSourceQueues":   `{"QueueUrl":"q"}`,
		"TagQueue":                     `{"QueueUrl":"q","Tags":{"a":"b"}}`,
		"UntagQueue":                   `{"QueueUrl":"q","TagKeys":["a"]}`,
		"ListQueueTags":                `{"QueueUrl":"q"}`,
		"Nope":                         `{`,
	} {
		f.Add(op, body)
	}
	f.Fuzz(func(t *testing.T, op, body string) {
		srv := sqstest.NewServer(&sqstest.Options{Seed: 1, Shuffle: true, ShortReceives: true})
		for _, q := range []string{"q", "q.fifo"} {
			if _, err := srv.CreateQueue(q, nil); err != nil {
				t.Fatal(err)
			}
		}
		post(t, srv, "SendMessage", `{"QueueUrl":"q","MessageBody":"first"}`)
		post(t, srv, "ReceiveMessage", `{"QueueUrl":"q"}`)
		handle := srv.Queue("q").Messages()[0].ReceiptHandle
		post(t, srv, op, strings.ReplaceAll(body, "HANDLE", handle))
	})
}

func post(t *testing.T, srv *sqstest.Server, op, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	w := httptest.NewRecorder()
	ctx, cancel := canceled()
	cancel() // nobody waits: a poll that would is aborted
	aborted := func() (aborted bool) {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			} else if v != nil {
				aborted = true
			}
		}()
		srv.ServeHTTP(w, r.WithContext(ctx))
		return false
	}()
	if aborted {
		return
	}
	answer, err := io.ReadAll(w.Body)
	if err != nil || len(answer) == 0 || answer[0] != '{' || w.Code != http.StatusOK && !strings.Contains(string(answer), `"__type"`) {
		t.Fatalf("%s %s: %d %s, %v", op, body, w.Code, answer, err)
	}
}
