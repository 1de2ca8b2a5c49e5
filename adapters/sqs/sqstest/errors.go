package sqstest

import (
	"fmt"
	"net/http"
)

// Error is an error answer of SQS. Code is the name of the SDK's error type or,
// for errors without one, the code that AWS sends in x-amzn-query-error:
// "ReceiptHandleIsInvalid", "InvalidParameterValue", "RequestThrottled".
type Error struct {
	Code    string
	Message string
}

// Error returns "code: message".
func (e *Error) Error() string { return e.Code + ": " + e.Message }

func newError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidValue(value any, parameter, reason string) *Error {
	return newError("InvalidParameterValue", "Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

func missing(parameter string) *Error {
	return newError("MissingParameter", "The request must contain the parameter %s.", parameter)
}

// shape is how an error travels.
type shape struct {
	typ    string // __type of the JSON body
	query  string // code in x-amzn-query-error
	status int
}

func (k shape) fault() string {
	if k.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

// shapeOf returns how AWS sends the error: the JSON protocol names modelled
// errors by their type and keeps the older code of the query protocol in a
// header; errors that are not modelled come from the framework's namespace.
func shapeOf(code string) shape {
	const (
		model     = "com.amazonaws.sqs#"
		framework = "com.amazon.coral.service#"
		legacy    = "AWS.SimpleQueueService."
	)
	switch code {
	case "InvalidParameterValue":
		return shape{framework + "InvalidParameterValueException", code, http.StatusBadRequest}
	case "MissingParameter":
		return shape{framework + "MissingRequiredParameterException", code, http.StatusBadRequest}
	case "UnknownOperationException", "SerializationException":
		return shape{framework + code, code, http.StatusBadRequest}
	case "ReceiptHandleIsInvalid", "ResourceNotFoundException":
		return shape{model + code, code, http.StatusNotFound}
	case "QueueDoesNotExist":
		return shape{model + code, legacy + "NonExistentQueue", http.StatusBadRequest}
	case "QueueNameExists":
		return shape{model + code, "QueueAlreadyExists", http.StatusBadRequest}
	case "OverLimit", "RequestThrottled":
		return shape{model + code, code, http.StatusForbidden}
	case "PurgeQueueInProgress":
		return shape{model + code, legacy + code, http.StatusForbidden}
	case "MessageNotInflight", "QueueDeletedRecently", "UnsupportedOperation", "TooManyEntriesInBatchRequest",
		"EmptyBatchRequest", "BatchEntryIdsNotDistinct", "InvalidBatchEntryId", "BatchRequestTooLong":
		return shape{model + code, legacy + code, http.StatusBadRequest}
	case "ServiceUnavailable":
		return shape{framework + code, code, http.StatusServiceUnavailable}
	case "InternalError", "InternalFailure":
		return shape{framework + code, code, http.StatusInternalServerError}
	}
	return shape{model + code, code, http.StatusBadRequest}
}
