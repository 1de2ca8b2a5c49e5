package sqstest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is where a message is.
type State int

// The states of a message.
const (
	Visible  State = iota + 1 // a receive may return it (FIFO: if its group lets it)
	InFlight                  // received, its visibility timeout runs
	Delayed                   // sent, its delay runs
	Deleted                   // deleted by a consumer
)

// String returns the state in words.
func (s State) String() string {
	switch s {
	case Visible:
		return "visible"
	case InFlight:
		return "in flight"
	case Delayed:
		return "delayed"
	case Deleted:
		return "deleted"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Message is a copy of a message's state at one moment.
type Message struct {
	ID              string
	Body            string
	Attributes      map[string]string // message attributes; binary ones as raw bytes
	GroupID         string
	DeduplicationID string
	SequenceNumber  string
	SourceARN       string // queue a redrive policy moved it from
	State           State
	Receives        int       // ApproximateReceiveCount
	SentAt          time.Time // where its age counts from
	ReceivedAt      time.Time // latest receive; zero before the first
	VisibleAt       time.Time // end of the visibility timeout or delay
	DeletedAt       time.Time // zero unless deleted
	// ReceiptHandle is that of the latest receive, "" before the first.
	ReceiptHandle string
}

// Counts are the numbers of a queue. The first three are messages now, the
// others events since the queue was created; none is approximate.
type Counts struct {
	Visible, InFlight, Delayed int
	// Sent counts accepted messages without duplicates, Received deliveries,
	// Deleted deletes that removed something, Expired messages that outlived
	// the retention period, DeadLettered moves by the redrive policy.
	Sent, Received, Deleted, Expired, DeadLettered int
}

// Queue is a view of one queue for tests. It keeps no state of its own.
type Queue struct {
	s   *Server
	url string
}

// Queue returns the view of the queue with this URL or name, whether or not it
// exists yet. A view of a missing queue has no messages and zero counts.
func (s *Server) Queue(url string) *Queue { return &Queue{s, url} }

// Queues returns the names of all queues, sorted.
func (s *Server) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeys(s.queues)
}

// Counts returns the numbers of the queue.
func (v *Queue) Counts() Counts {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	now := time.Now()
	q, err := v.s.open(v.url, now)
	if err != nil {
		return Counts{}
	}
	return q.counts(now)
}

// Messages returns the messages of the queue in order of arrival, then the
// deleted ones in order of deletion as far as Options.KeepDeleted goes.
func (v *Queue) Messages() []Message {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	now := time.Now()
	q, err := v.s.open(v.url, now)
	if err != nil {
		return nil
	}
	var out []Message
	for _, m := range q.snapshot() {
		state := Delayed
		if m.visible(now) {
			state = Visible
		} else if m.inFlight(now) {
			state = InFlight
		}
		out = append(out, v.s.view(q, m, state))
	}
	for _, m := range newest(q.deleted, v.s.opts.KeepDeleted) {
		out = append(out, v.s.view(q, m, Deleted))
	}
	return out
}

// Bodies returns the bodies of the messages in the given states, or in any
// state but [Deleted] if none is given.
func (v *Queue) Bodies(states ...State) []string {
	var out []string
	for _, m := range v.Messages() {
		if slices.Contains(states, m.State) || len(states) == 0 && m.State != Deleted {
			out = append(out, m.Body)
		}
	}
	return out
}

func (s *Server) view(q *queue, m *message, state State) Message {
	out := Message{
		ID: m.id, Body: m.body, GroupID: m.group, DeduplicationID: m.dedup, SequenceNumber: m.sequence,
		SourceARN: m.source, State: state, Receives: m.receives, SentAt: m.enqueued,
		ReceivedAt: m.receivedAt, VisibleAt: m.visibleAt, DeletedAt: m.deletedAt,
		Attributes: map[string]string{},
	}
	for k, a := range m.attrs {
		out.Attributes[k] = string(a.BinaryValue)
		if a.StringValue != nil {
			out.Attributes[k] = *a.StringValue
		}
	}
	if m.receiveNo > 0 {
		out.ReceiptHandle = s.newHandle(q, m)
	}
	return out
}

// Redeliver makes a message of a standard queue visible at once: a deleted one
// comes back, as SQS may do in rare cases, and one in flight is handed out a
// second time although its first holder still has it. Its id stays and its
// receive count goes on.
func (s *Server) Redeliver(queueURL, messageID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(queueURL, now)
	if err != nil {
		return err
	}
	if q.fifo {
		return errors.New("sqstest: a FIFO queue does not deliver twice")
	}
	for _, m := range q.live {
		if !m.gone && m.id == messageID {
			m.visibleAt = now
			s.arrived(q, now)
			return nil
		}
	}
	for _, m := range slices.Backward(newest(q.deleted, s.opts.KeepDeleted)) {
		if m.id == messageID {
			s.redeliver(q, m, now)
			return nil
		}
	}
	return fmt.Errorf("sqstest: queue %s has no message %s, live or deleted", q.name, messageID)
}

// Calls returns the newest requests, oldest first, as far as Options.KeepCalls
// goes: of one operation or, for "", of all. Requests of helpers such as
// [Server.CreateQueue] are not among them.
func (s *Server) Calls(op string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range newest(s.calls, s.opts.KeepCalls) {
		if op == "" || c.Op == op {
			out = append(out, *c)
		}
	}
	return out
}

// CallCount returns how many requests of the operation arrived, or of all
// operations for "".
func (s *Server) CallCount(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != "" {
		return s.counts[op]
	}
	n := 0
	for _, c := range s.counts {
		n += c
	}
	return n
}

// end completes the log entry of a request.
func (s *Server) end(entry *Call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.Done = true
	var e *Error
	switch {
	case errors.As(err, &e):
		entry.Code = e.Code
	case err != nil:
		entry.Code = "dropped"
	}
}

// newest returns the last n elements. What is kept grows to twice that before
// it is cut, so that cutting costs little.
func newest[T any](all []T, n int) []T { return all[max(0, len(all)-max(0, n)):] }

func baseName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
