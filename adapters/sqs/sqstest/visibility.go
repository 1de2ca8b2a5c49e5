package sqstest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// MaxInFlight is the longest a message stays in flight, counted from its
// receive however often it is extended. Handles older than that are refused.
const MaxInFlight = 12 * time.Hour

const (
	reasonExpired     = "The receipt handle has expired."
	reasonUnavailable = "Message does not exist or is not available for visibility timeout change."
	reasonBeyondLimit = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
)

// receipt is what a handle says.
type receipt struct {
	serial     uint64
	receiveNo  uint64
	receivedAt time.Time
}

// newHandle returns the handle of the message's latest receive. It carries all
// that is needed to judge it later, so nothing is kept of deleted messages.
func (s *Server) newHandle(q *queue, m *message) string {
	b := make([]byte, 0, 40)
	b = binary.BigEndian.AppendUint64(b, q.id)
	b = binary.BigEndian.AppendUint64(b, m.serial)
	b = binary.BigEndian.AppendUint64(b, uint64(m.receiveNo))             //nolint:gosec // counts up from 1
	b = binary.BigEndian.AppendUint64(b, uint64(m.receivedAt.UnixNano())) //nolint:gosec // reversed below
	return handlePrefix + base64.StdEncoding.EncodeToString(append(b, s.sign(b)...))
}

const handlePrefix = "AQEB" // as real ones begin

func (s *Server) sign(b []byte) []byte {
	sum := sha256.Sum256(append(s.key[:], b...))
	return sum[:8]
}

// parseHandle reads a handle of this queue; anything else is not valid.
func (s *Server) parseHandle(q *queue, h string) (receipt, *Error) {
	if h == "" {
		return receipt{}, missing("ReceiptHandle")
	}
	text, ok := strings.CutPrefix(h, handlePrefix)
	b, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(b) != 40 || string(s.sign(b[:32])) != string(b[32:]) ||
		binary.BigEndian.Uint64(b) != q.id {
		return receipt{}, newError("ReceiptHandleIsInvalid", "The input receipt handle %q is not a valid receipt handle.", h)
	}
	return receipt{
		serial:     binary.BigEndian.Uint64(b[8:]),
		receiveNo:  binary.BigEndian.Uint64(b[16:]),
		receivedAt: time.Unix(0, int64(binary.BigEndian.Uint64(b[24:]))), //nolint:gosec // written above
	}, nil
}

// newest reports whether no receive followed the one of the handle.
func (r receipt) newest(m *message) bool { return r.receiveNo == uint64(m.receiveNo) } //nolint:gosec // counts up from 1

type visibilityInput struct {
	ID                string `json:"Id"` // in a batch
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

func (s *Server) changeVisibility(_ *call, in visibilityInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	if err := s.extend(q, in, now); err != nil {
		return nil, err
	}
	return nil, nil
}

func (s *Server) changeVisibilityBatch(c *call, in batchInput[visibilityInput]) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	return runBatch(c, in.Entries, func(e visibilityInput) string { return e.ID }, func(e visibilityInput) (any, *Error) {
		return idOnly{e.ID}, s.extend(q, e, now)
	})
}

// extend sets the visibility timeout of a message, counted from now.
func (s *Server) extend(q *queue, in visibilityInput, now time.Time) *Error {
	r, err := s.parseHandle(q, in.ReceiptHandle)
	if err != nil {
		return err
	}
	if in.VisibilityTimeout == nil {
		return missing("VisibilityTimeout")
	}
	n := *in.VisibilityTimeout
	if n < 0 || n > 43200 {
		return invalidValue(n, "VisibilityTimeout", "Must be >= 0 and <= 43200.")
	}
	m := q.bySerial[r.serial]
	if m == nil {
		return invalidValue(in.ReceiptHandle, "ReceiptHandle", reasonUnavailable)
	}
	// Whole seconds have passed before they count: otherwise the full 12 h
	// could never be asked for, not even at once.
	if int(now.Sub(r.receivedAt)/time.Second)+n > int(MaxInFlight/time.Second) {
		return invalidValue(n, "VisibilityTimeout", reasonBeyondLimit)
	}
	if apply, err := s.judge(q, m, r, in.ReceiptHandle, now); err != nil || !apply {
		return err
	}
	before := m.visibleAt
	m.visibleAt = now.Add(time.Duration(n) * time.Second)
	m.changes++
	if m.visibleAt.Before(before) {
		s.arrived(q, now) // those who wait reckoned with the later instant
	}
	return nil
}

// judge decides whether an extension with this handle is applied.
func (s *Server) judge(q *queue, m *message, r receipt, handle string, now time.Time) (bool, *Error) {
	superseded, expired := !r.newest(m), m.visible(now)
	switch {
	case !superseded && !expired:
		return true, nil
	case q.fifo:
		return false, invalidValue(handle, "ReceiptHandle", reasonExpired)
	case s.opts.Stale == StaleApply:
		return true, nil
	case s.opts.Stale == StaleNoop:
		return false, nil
	case superseded:
		return false, invalidValue(handle, "ReceiptHandle", reasonUnavailable)
	}
	return false, newError("MessageNotInflight", "The specified message isn't in flight.")
}

type deleteInput struct {
	ID            string `json:"Id"` // in a batch
	QueueURL      string `json:"QueueUrl"`
	ReceiptHandle string
}

func (s *Server) deleteMessage(_ *call, in deleteInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	if err := s.remove(q, in.ReceiptHandle, now); err != nil {
		return nil, err
	}
	return nil, nil
}

func (s *Server) deleteMessageBatch(c *call, in batchInput[deleteInput]) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	return runBatch(c, in.Entries, func(e deleteInput) string { return e.ID }, func(e deleteInput) (any, *Error) {
		return idOnly{e.ID}, s.remove(q, e.ReceiptHandle, now)
	})
}

// remove deletes the message of a handle. Repeating a delete succeeds.
func (s *Server) remove(q *queue, handle string, now time.Time) *Error {
	r, err := s.parseHandle(q, handle)
	if err != nil {
		return err
	}
	expired := invalidValue(handle, "ReceiptHandle", reasonExpired)
	m := q.bySerial[r.serial]
	switch {
	case m == nil:
		return nil
	case now.Sub(r.receivedAt) >= MaxInFlight:
		return expired
	case q.fifo && (!r.newest(m) || m.visible(now)):
		return expired
	case !r.newest(m) && s.opts.Stale == StaleError:
		return expired
	case !r.newest(m) && s.opts.Stale == StaleNoop:
		return nil
	}
	s.discard(q, m, now)
	return nil
}

// discard deletes a message and keeps it for inspection and redelivery.
func (s *Server) discard(q *queue, m *message, now time.Time) {
	q.remove(m)
	q.total.deleted++
	m.deletedAt = now
	if n := s.opts.KeepDeleted; n > 0 {
		q.deleted = append(q.deleted, m)
		if len(q.deleted) > 2*n {
			q.deleted = append([]*message(nil), q.deleted[len(q.deleted)-n:]...)
		}
	}
	if q.fifo {
		s.arrived(q, now) // the next of the group may be free
		return
	}
	if p := s.opts.RedeliverDeleted; p > 0 && !m.redelivery && s.rng.Float64() < p {
		s.redeliver(q, m, m.visibleAt)
	}
}

// redeliver brings a deleted message back: the replica that missed the delete
// still has it, with its id and its count.
func (s *Server) redeliver(q *queue, m *message, visibleAt time.Time) {
	again := *m
	again.gone, again.deletedAt, again.redelivery = false, time.Time{}, true
	again.visibleAt = visibleAt
	q.add(&again)
	s.arrived(q, time.Now())
}
