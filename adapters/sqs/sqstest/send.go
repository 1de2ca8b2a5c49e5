package sqstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// dedupWindow is how long a deduplication id is remembered, from the first
// send, whether or not the message was deleted since.
const dedupWindow = 5 * time.Minute

// sentOnce is a remembered send of a FIFO queue.
type sentOnce struct {
	id, sequence string
	at           time.Time
}

// outgoing is a message to send: the fields that SendMessage and an entry of
// SendMessageBatch share.
type outgoing struct {
	MessageBody             *string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute
	MessageSystemAttributes map[string]attribute
	MessageGroupID          string `json:"MessageGroupId"`
	MessageDeduplicationID  string `json:"MessageDeduplicationId"`
}

type sendInput struct {
	QueueURL string `json:"QueueUrl"`
	outgoing
}

// sent is the answer to a message sent.
type sent struct {
	ID        string `json:"Id,omitempty"` // of the batch entry
	MessageID string `json:"MessageId"`
	MD5Body   string `json:"MD5OfMessageBody"`
	MD5Attrs  string `json:"MD5OfMessageAttributes,omitempty"`
	MD5System string `json:"MD5OfMessageSystemAttributes,omitempty"`
	Sequence  string `json:"SequenceNumber,omitempty"`
}

func (s *Server) sendMessage(_ *call, in sendInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	out, serr := s.send(q, in.outgoing, now)
	if serr != nil {
		return nil, serr
	}
	return out, nil
}

type sendEntry struct {
	ID string `json:"Id"`
	outgoing
}

func (s *Server) sendMessageBatch(c *call, in batchInput[sendEntry]) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range in.Entries {
		size += e.size()
	}
	if size > MaxMessageSize {
		return nil, newError("BatchRequestTooLong",
			"Batch requests cannot be longer than %d bytes. You have sent %d bytes.", MaxMessageSize, size)
	}
	return runBatch(c, in.Entries, func(e sendEntry) string { return e.ID }, func(e sendEntry) (any, *Error) {
		out, err := s.send(q, e.outgoing, now)
		out.ID = e.ID
		return out, err
	})
}

// send checks a message and stores it.
func (s *Server) send(q *queue, in outgoing, now time.Time) (sent, *Error) {
	if err := in.check(q); err != nil {
		return sent{}, err
	}
	out := sent{
		MD5Body:   digestBody(*in.MessageBody),
		MD5Attrs:  digestAttributes(in.MessageAttributes),
		MD5System: digestAttributes(in.MessageSystemAttributes),
	}
	m := &message{
		body: *in.MessageBody, attrs: in.MessageAttributes, group: in.MessageGroupID,
		enqueued: now, visibleAt: now.Add(q.conf.delay),
	}
	if t := in.MessageSystemAttributes["AWSTraceHeader"].StringValue; t != nil {
		m.trace = *t
	}
	if in.DelaySeconds != nil && !q.fifo {
		m.visibleAt = now.Add(time.Duration(*in.DelaySeconds) * time.Second)
	}
	if q.fifo {
		m.dedup = in.dedupID(q)
		if old, ok := q.seen(m, now); ok {
			out.MessageID, out.Sequence = old.id, old.sequence
			return out, nil
		}
		m.sequence = q.nextSequence()
	}
	m.id = s.uuid()
	if q.fifo {
		q.sent[q.dedupKey(m)] = sentOnce{m.id, m.sequence, now}
	}
	out.MessageID, out.Sequence = m.id, m.sequence
	q.add(m)
	q.total.sent++
	s.arrived(q, now)
	return out, nil
}

func (q *queue) nextSequence() string {
	q.sequence++
	return fmt.Sprintf("%020d", 1_000_000_000_000+q.sequence)
}

func (q *queue) dedupKey(m *message) string {
	if q.conf.perGroup {
		return m.group + "\x00" + m.dedup // a group id has no NUL
	}
	return m.dedup
}

// seen looks the message up in the deduplication window, which it
// cleans when it has grown.
func (q *queue) seen(m *message, now time.Time) (sentOnce, bool) {
	if len(q.sent) >= q.sentLimit {
		for k, v := range q.sent {
			if now.Sub(v.at) >= dedupWindow {
				delete(q.sent, k)
			}
		}
		q.sentLimit = max(1024, 2*len(q.sent))
	}
	old, ok := q.sent[q.dedupKey(m)]
	return old, ok && now.Sub(old.at) < dedupWindow
}

func (o outgoing) dedupID(q *queue) string {
	if o.MessageDeduplicationID != "" || !q.conf.content {
		return o.MessageDeduplicationID
	}
	sum := sha256.Sum256([]byte(*o.MessageBody))
	return hex.EncodeToString(sum[:])
}

func (o outgoing) size() int {
	n := 0
	if o.MessageBody != nil {
		n = len(*o.MessageBody)
	}
	for name, a := range o.MessageAttributes {
		n += len(name) + a.size()
	}
	return n
}

func (o outgoing) check(q *queue) *Error {
	if o.MessageBody == nil || *o.MessageBody == "" {
		return missing("MessageBody")
	}
	if n := o.size(); n > q.conf.maxSize {
		return newError("InvalidParameterValue",
			"One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.conf.maxSize)
	}
	if !validText(*o.MessageBody) {
		return newError("InvalidMessageContents",
			"Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if d := o.DelaySeconds; d != nil && (*d < 0 || *d > 900) {
		return invalidValue(*d, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
	}
	if err := checkAttributes(o.MessageAttributes); err != nil {
		return err
	}
	return o.checkKind(q)
}

// checkKind holds what differs between the kinds of queues. A message group on
// a standard queue is allowed: it is a fair queue's tenant.
func (o outgoing) checkKind(q *queue) *Error {
	const wrongKind = "The request include parameter that is not valid for this queue type."
	if g := o.MessageGroupID; !within(g, 128, graphic) {
		return invalidValue(g, "MessageGroupId", "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	if d := o.MessageDeduplicationID; !within(d, 128, graphic) {
		return invalidValue(d, "MessageDeduplicationId", "MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	switch {
	case !q.fifo && o.MessageDeduplicationID != "":
		return invalidValue(o.MessageDeduplicationID, "MessageDeduplicationId", wrongKind)
	case !q.fifo:
		return nil
	case o.MessageGroupID == "":
		return missing("MessageGroupId")
	case o.DelaySeconds != nil && *o.DelaySeconds > 0:
		return invalidValue(*o.DelaySeconds, "DelaySeconds", wrongKind)
	case o.MessageDeduplicationID == "" && !q.conf.content:
		return newError("InvalidParameterValue",
			"The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

func checkAttributes(attrs map[string]attribute) *Error {
	if len(attrs) > 10 {
		return newError("InvalidParameterValue",
			"Number of message attributes [%d] exceeds the allowed maximum [10].", len(attrs))
	}
	for _, name := range sortedKeys(attrs) {
		a := attrs[name]
		lower := strings.ToLower(name)
		dots := strings.Contains("."+name+".", "..") // leading, trailing or doubled
		if dots || !within(name, 256, func(b byte) bool { return b == '.' || wordByte(b) }) || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
			return newError("InvalidParameterValue", "Message (user) attribute name '%s' is invalid.", name)
		}
		kind, _, _ := strings.Cut(a.DataType, ".")
		switch {
		case kind != "String" && kind != "Number" && kind != "Binary":
			return newError("InvalidParameterValue",
				"The type of message (user) attribute '%s' is invalid. You must use only the following supported type prefixes: Binary, Number, String.", name)
		case kind == "Binary" && len(a.BinaryValue) == 0, kind != "Binary" && (a.StringValue == nil || *a.StringValue == ""):
			return newError("InvalidParameterValue",
				"Message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, kind)
		}
	}
	return nil
}

// within reports whether s has at most limit bytes, all of them allowed.
func within(s string, limit int, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return len(s) <= limit
}

func graphic(b byte) bool { return b > ' ' && b < 0x7F }

func wordByte(b byte) bool {
	return b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

func validText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// uuid returns a version 4 UUID of the server's random source.
func (s *Server) uuid() string {
	hi, lo := s.rng.Uint64(), s.rng.Uint64()
	hi = hi&^0xF000 | 0x4000
	lo = lo&^(3<<62) | 1<<63
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xFFFF, hi&0xFFFF, lo>>48, lo&(1<<48-1))
}

func (s *Server) requestID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++                                                                     // not random: the number of calls must not change the ids of messages
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(s.opts.Seed), s.requests) //nolint:gosec // a label
}
