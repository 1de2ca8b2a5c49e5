package sqsadapter

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
)

// Client is what the adapter needs of *sqs.Client. A wrapped client works too.
type Client interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
}

// code returns the error code of an SQS error, of a call or of an entry of a
// batch, in one spelling, whatever the server's protocol made of it; empty when
// err is no SQS error.
func code(err error) string {
	var one *entryError
	if errors.As(err, &one) {
		return one.code
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return plainCode(api.ErrorCode())
}

func plainCode(c string) string {
	c = strings.TrimPrefix(c, "AWS.SimpleQueueService.")
	return strings.TrimSuffix(c, "Exception")
}

// refused reports whether an extension that failed with this code can never
// succeed: the handle is no longer ours.
func refused(code string) bool {
	switch code {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue",
		"QueueDoesNotExist", "NonExistentQueue":
		return true
	}
	return false
}

// beyondLimit reports whether an extension was refused since it would reach
// beyond the 12 hours. Only the text tells it from other values that are wrong.
func beyondLimit(err error) bool {
	return code(err) == "InvalidParameterValue" && strings.Contains(err.Error(), "beyond the limit")
}

// misfit reports whether a message was refused for what it is: too large for
// the queue, or with too many attributes.
func misfit(err error) bool {
	switch code(err) {
	case "InvalidParameterValue", "InvalidMessageContents", "InvalidAttributeValue", "InvalidParameterCombination", "BatchRequestTooLong":
		return true
	}
	return false
}

// missing reports whether err says that the queue does not exist.
func missing(err error) bool {
	switch code(err) {
	case "QueueDoesNotExist", "NonExistentQueue":
		return true
	}
	return false
}

// entryError is the failure of one entry of a batch.
type entryError struct {
	code    string
	message string
	sender  bool // repeating it cannot help
}

func (e *entryError) Error() string { return "sqs: " + e.code + ": " + e.message }

// hopeless reports whether repeating a failed settlement cannot help. A
// throttled request can be repeated although SQS calls it the sender's fault.
func hopeless(err error) bool {
	var e *entryError
	if errors.As(err, &e) {
		return e.sender && !strings.Contains(e.code, "Throttl")
	}
	return missing(err)
}
