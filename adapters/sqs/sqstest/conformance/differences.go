package main

import "strings"

// known is a difference that was looked into.
type known struct {
	shows string // part of the report by which it is recognised
	why   string
}

// explains reports whether this is what the rule ran into.
func (k known) explains(err error) bool {
	return k.why != "" && strings.Contains(err.Error(), k.shows)
}

// knownDifferences returns, by rule, how a server is known to differ. A
// difference that is not listed, or shows otherwise, makes the program fail;
// the tests also fail on a listed one that is gone. README.md has the same
// table for readers.
func knownDifferences(server string) map[string]known {
	if server == "elasticmq" {
		return elasticMQ()
	}
	return nil
}

// elasticMQ lists the differences of ElasticMQ 1.6.12 with strict limits.
func elasticMQ() map[string]known {
	const (
		attributeCode = "it reports bad parameters as InvalidAttributeValue"
		unknownHandle = "it forgets a handle with the delete or with the next receive and then calls it invalid"
		oldLimit      = "it has the limit of 256 KiB that AWS had until August 2025"
	)
	return map[string]known{
		"visibility-range":         {"got <nil>", "it has no upper bound for visibility timeouts"},
		"visibility-12h":           {"got <nil>", "it does not limit the total time in flight"},
		"receive-ranges":           {"InvalidAttributeValue", attributeCode},
		"handle-superseded-delete": {"ReceiptHandleIsInvalid", unknownHandle},
		"handle-deleted-extend":    {"ReceiptHandleIsInvalid", unknownHandle},
		"handle-deleted-delete":    {"ReceiptHandleIsInvalid", unknownHandle},
		"handle-garbage-status":    {"StatusCode: 400", "all its errors of a caller have status 400"},
		"error-query-header":       {"got QueueDoesNotExist", "it does not send the header"},
		"message-attribute-prefix": {"returns []", "it knows names and All only"},
		"message-size":             {"got <nil>", "it does not enforce the queue's own limit"},
		"message-1mib":             {"MessageTooLong", oldLimit},
		"message-10-attributes":    {"InvalidAttributeValue", attributeCode},
		"message-characters":       {"InvalidAttributeValue", attributeCode},
		"message-fair-group":       {"MessageGroupId that is not valid", "it does not know fair queues"},
		"batch-ids":                {"a space in an id: got <nil>", "it does not check the characters of ids"},
		"batch-empty":              {"got <nil>", "it accepts an empty batch"},
		"batch-size":               {"MessageTooLong", oldLimit + ", and one code for both errors"},
		"fifo-expired-handle":      {"got <nil>", "it treats FIFO handles as standard ones: good until the next receive"},
		"fifo-deleted-delete":      {"ReceiptHandleIsInvalid", unknownHandle},
		"fifo-dedup-group":         {"received [one]", "it knows deduplication by queue only"},
		"fifo-attempt-handles":     {"other handles", "it makes new handles for a repeated receive"},
		"move-task":                {"kept its id", "it moves the message itself, not a new one"},
		"move-task-no-source":      {"COMPLETED", "it sends such messages to a queue that names this one as its dead-letter queue"},
		"move-task-not-dlq":        {"StatusCode: 50", "it fails inside and answers in plain text"},
	}
}
