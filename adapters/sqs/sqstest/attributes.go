package sqstest

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// MaxMessageSize is the limit, in bytes, of a message and of all messages of
// a batch together: body and attributes. It is also the default of the queue
// attribute MaximumMessageSize.
const MaxMessageSize = 1 << 20

// config is a queue's attributes, parsed.
type config struct {
	visibility time.Duration
	delay      time.Duration
	wait       time.Duration
	retention  time.Duration
	maxSize    int
	content    bool // content-based deduplication
	perGroup   bool // deduplication scope is the group
	redrive    *redrivePolicy
	allow      *redriveAllow
}

type redrivePolicy struct {
	Target string `json:"deadLetterTargetArn"`
	Max    any    `json:"maxReceiveCount"` // AWS takes "3" and 3
	max    int
}

type redriveAllow struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

// numeric attributes with their bounds and defaults, in seconds or bytes.
type bounds struct{ low, high, def int }

func numericAttribute(name string) (bounds, bool) {
	switch name {
	case "VisibilityTimeout":
		return bounds{0, 43200, 30}, true
	case "DelaySeconds":
		return bounds{0, 900, 0}, true
	case "ReceiveMessageWaitTimeSeconds":
		return bounds{0, 20, 0}, true
	case "MessageRetentionPeriod":
		return bounds{60, 1209600, 345600}, true
	case "MaximumMessageSize":
		return bounds{1024, MaxMessageSize, MaxMessageSize}, true
	case "KmsDataKeyReusePeriodSeconds":
		return bounds{60, 86400, 300}, true
	}
	return bounds{}, false
}

// configure checks the attributes and parses them.
func (s *Server) configure(name string, fifo bool, set map[string]string) (config, error) {
	var c config
	for _, k := range sortedKeys(set) {
		if err := checkAttribute(k, set[k], fifo); err != nil {
			return c, err
		}
	}
	number := func(k string) int {
		b, _ := numericAttribute(k)
		if n, err := strconv.Atoi(set[k]); err == nil {
			return n
		}
		return b.def
	}
	seconds := func(k string) time.Duration { return time.Duration(number(k)) * time.Second }
	c.visibility = seconds("VisibilityTimeout")
	c.delay = seconds("DelaySeconds")
	c.wait = seconds("ReceiveMessageWaitTimeSeconds")
	c.retention = seconds("MessageRetentionPeriod")
	c.maxSize = number("MaximumMessageSize")
	c.content = set["ContentBasedDeduplication"] == "true"
	c.perGroup = set["DeduplicationScope"] == "messageGroup"
	var err error
	if c.allow, err = parseAllow(set["RedriveAllowPolicy"]); err != nil {
		return c, err
	}
	c.redrive, err = s.parseRedrive(name, fifo, set["RedrivePolicy"])
	return c, err
}

func checkAttribute(k, v string, fifo bool) error {
	if b, ok := numericAttribute(k); ok {
		if n, err := strconv.Atoi(v); err != nil || n < b.low || n > b.high {
			return newError("InvalidAttributeValue", "Invalid value for the parameter %s.", k)
		}
		return nil
	}
	var allowed []string
	switch k {
	case "Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId":
		return nil
	case "SqsManagedSseEnabled":
		allowed = []string{"true", "false"}
	case "FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit":
		if !fifo {
			return newError("InvalidAttributeName", "Unknown Attribute %s.", k)
		}
		switch k {
		case "FifoQueue":
			allowed = []string{"true"}
		case "ContentBasedDeduplication":
			allowed = []string{"true", "false"}
		case "DeduplicationScope":
			allowed = []string{"messageGroup", "queue"}
		default:
			allowed = []string{"perQueue", "perMessageGroupId"}
		}
	default:
		return newError("InvalidAttributeName", "Unknown Attribute %s.", k)
	}
	if !slices.Contains(allowed, v) {
		return newError("InvalidAttributeValue", "Invalid value for the parameter %s.", k)
	}
	return nil
}

func (s *Server) parseRedrive(name string, fifo bool, v string) (*redrivePolicy, error) {
	if v == "" {
		return nil, nil
	}
	bad := func(reason string) (*redrivePolicy, error) {
		return nil, invalidValue(v, "RedrivePolicy", reason)
	}
	var p redrivePolicy
	if json.Unmarshal([]byte(v), &p) != nil || p.Target == "" {
		return bad("Amazon SQS can't create the redrive policy, as it's in an unsupported format.")
	}
	switch n := p.Max.(type) {
	case float64:
		p.max = int(n)
	case string:
		p.max, _ = strconv.Atoi(n)
	}
	if p.max < 1 || p.max > 1000 {
		return bad("Invalid value for maxReceiveCount: " + strconv.Itoa(p.max) + ", valid values are from 1 to 1000 both inclusive.")
	}
	target := s.byARN(p.Target)
	if target == nil {
		return bad("Dead letter target does not exist.")
	}
	if target.fifo != fifo {
		return bad("Dead-letter queue must be same type of queue as the source.")
	}
	if a := target.conf.allow; a != nil && !a.permits(s.arn(name)) {
		return bad("Source queue is not permitted to use this dead-letter queue.")
	}
	return &p, nil
}

func parseAllow(v string) (*redriveAllow, error) {
	if v == "" {
		return nil, nil
	}
	var a redriveAllow
	known := []string{"allowAll", "denyAll", "byQueue"}
	if json.Unmarshal([]byte(v), &a) != nil || !slices.Contains(known, a.Permission) ||
		(a.Permission == "byQueue") != (len(a.Sources) > 0) || len(a.Sources) > 10 {
		return nil, invalidValue(v, "RedriveAllowPolicy", "Amazon SQS can't create the redrive allow policy.")
	}
	return &a, nil
}

func (a *redriveAllow) permits(arn string) bool {
	return a.Permission == "allowAll" || a.Permission == "byQueue" && slices.Contains(a.Sources, arn)
}

func (s *Server) arn(name string) string {
	return "arn:aws:sqs:" + s.opts.Region + ":" + s.opts.Account + ":" + name
}

// attributesOf returns every attribute of the queue, given or computed.
func (q *queue) attributesOf(now time.Time) map[string]string {
	n := q.counts(now)
	out := map[string]string{
		"QueueArn":                              q.arn,
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(n.Visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(n.InFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(n.Delayed),
		"SqsManagedSseEnabled":                  "true",
	}
	for _, k := range []string{
		"VisibilityTimeout", "DelaySeconds", "ReceiveMessageWaitTimeSeconds",
		"MessageRetentionPeriod", "MaximumMessageSize",
	} {
		b, _ := numericAttribute(k)
		out[k] = strconv.Itoa(b.def)
	}
	if q.fifo {
		out["ContentBasedDeduplication"] = "false"
		out["DeduplicationScope"] = "queue"
		out["FifoThroughputLimit"] = "perQueue"
	}
	for k, v := range q.set {
		if v != "" {
			out[k] = v
		}
	}
	return out
}
