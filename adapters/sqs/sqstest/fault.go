package sqstest

import (
	"encoding/json"
	"sync/atomic"
	"time"
)

// Call is one request, as fault functions see it and as the log keeps it.
type Call struct {
	// Op is the operation: "ReceiveMessage".
	Op string
	// N counts the requests of this operation from 1. Retries of the SDK are
	// requests of their own.
	N int
	// Queue is the name of the queue, "" where the operation has none.
	Queue string
	// EntryIDs are the ids of a batch's entries, nil for other operations.
	EntryIDs []string
	// At is when the request arrived.
	At time.Time
	// Done tells in the log that the request was answered, or that its reply
	// was dropped. A long poll that still waits is not done.
	Done bool
	// Code is, in the log, the code of the error answer, "" for success and
	// "dropped" for a request that was not applied or whose caller gave up.
	Code string
}

// Fault says how one request goes wrong. The zero value changes nothing.
// Several fields may be combined; they apply in this order.
type Fault struct {
	// Delay holds the request back before it is applied.
	Delay time.Duration
	// DropRequest breaks the connection before the request is applied.
	DropRequest bool
	// Code answers with this error instead of applying the request:
	// "RequestThrottled", "InternalError", "ReceiptHandleIsInvalid". Message is
	// its text.
	Code, Message string
	// FailEntries picks entries of a batch, by index and id, that fail alone
	// with Code (default "InternalError") and are not applied. The others are.
	FailEntries func(index int, id string) bool
	// DelayReply holds the answer back after the request was applied.
	DelayReply time.Duration
	// DropReply breaks the connection after the request was applied.
	DropReply bool
}

func (f *Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return "injected by a fault"
}

// entryFault returns the error that an entry of a batch fails with, if any.
func (c *call) entryFault(index int, id string) *Error {
	f := c.fault
	if f == nil || f.FailEntries == nil || !f.FailEntries(index, id) {
		return nil
	}
	code := f.Code
	if code == "" {
		code = "InternalError"
	}
	return newError(code, "%s", f.message())
}

type faultRule struct {
	op string
	f  func(Call) *Fault
}

// Fault has f asked for each request of the operation, "" for all operations,
// before it is applied. The first function that does not return nil decides.
// f runs in the request's goroutine and may use the server. The function that
// is returned ends the rule.
func (s *Server) Fault(op string, f func(Call) *Fault) (remove func()) {
	rule := &faultRule{op, f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, rule)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept := []*faultRule{} // a new slice: begin may be walking over the old one
		for _, r := range s.faults {
			if r != rule {
				kept = append(kept, r)
			}
		}
		s.faults = kept
	}
}

// Times limits a fault to the first n requests that the rule is asked about.
func Times(n int, fault Fault) func(Call) *Fault {
	var asked atomic.Int64
	return func(Call) *Fault {
		if asked.Add(1) > int64(n) {
			return nil
		}
		return &fault
	}
}

// begin logs the request and finds its fault. It returns the log entry,
// which the server's mutex guards from here on.
func (s *Server) begin(c *call) *Call {
	var in struct {
		QueueURL  string `json:"QueueUrl"`
		QueueName string
		Entries   []idOnly
	}
	_ = json.Unmarshal(c.body, &in) // on reports what cannot be decoded
	entry := &Call{Op: c.op, At: time.Now(), Queue: baseName(in.QueueURL)}
	if in.QueueName != "" {
		entry.Queue = in.QueueName
	}
	for _, e := range in.Entries {
		entry.EntryIDs = append(entry.EntryIDs, e.ID)
	}
	s.mu.Lock()
	s.counts[c.op]++
	entry.N = s.counts[c.op]
	if n := s.opts.KeepCalls; n > 0 {
		s.calls = append(s.calls, entry)
		if len(s.calls) > 2*n {
			s.calls = append([]*Call(nil), s.calls[len(s.calls)-n:]...)
		}
	}
	rules := s.faults
	s.mu.Unlock()
	for _, r := range rules {
		if r.op == "" || r.op == c.op {
			if c.fault = r.f(*entry); c.fault != nil {
				break
			}
		}
	}
	return entry
}
