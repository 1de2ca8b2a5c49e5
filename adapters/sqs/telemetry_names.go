package sqsadapter

// Names by OpenTelemetry's semantic conventions for messaging, as of version
// 1.30, where they are still in development: all in one place, so that a
// change is one commit.
const (
	tracerName = "github.com/secondrun/secondrun/adapters/sqs"

	// Spans are called by the operation and the queue: "process orders".
	opReceive    = "receive"
	opProcess    = "process"
	opAck        = "ack"         // a delete
	opNack       = "nack"        // made visible again later
	opDeadLetter = "dead_letter" // a copy to the dead-letter queue

	attrSystem        = "messaging.system"
	systemSQS         = "aws_sqs"
	attrOperation     = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"
	typeSettle        = "settle" // of opAck, opNack and opDeadLetter; the others are types themselves
	attrDestination   = "messaging.destination.name"
	attrServer        = "server.address"
	attrMessageID     = "messaging.message.id"
	attrBatchCount    = "messaging.batch.message_count"
	attrErrorType     = "error.type"

	// Ours.
	attrSettled = "secondrun.settled" // what became of the message
	attrLink    = "secondrun.link"
	linkMessage = "message"

	metricMessages = "secondrun.sqs.messages"
	labelResult    = "result" // the names of the event kinds
)

// The header of AWS X-Ray, which SQS hands on as a system attribute.
const (
	xrayHeader    = "X-Amzn-Trace-Id"
	xrayAttribute = "AWSTraceHeader"
)
