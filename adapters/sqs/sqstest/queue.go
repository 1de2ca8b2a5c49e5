package sqstest

import (
	"strings"
	"time"
)

// message is one message in one queue. A move between queues makes a new one.
type message struct {
	id       string
	body     string
	attrs    map[string]attribute
	trace    string // AWSTraceHeader
	group    string
	dedup    string
	sequence string
	source   string // ARN of the queue a redrive policy moved it from

	serial        uint64 // within the queue; part of handles
	enqueued      time.Time
	visibleAt     time.Time
	receives      int // across queues
	firstReceived time.Time

	receiveNo  int // number of the newest handle
	receivedAt time.Time
	changes    int  // visibility changes; a changed message is not replayed
	redelivery bool // came back after a delete; it does so once
	gone       bool // deleted, expired, purged or moved; not yet compacted
	deletedAt  time.Time
}

func (m *message) visible(now time.Time) bool { return !m.visibleAt.After(now) }

// inFlight tells a received message from one that is still delayed.
func (m *message) inFlight(now time.Time) bool { return m.receiveNo > 0 && !m.visible(now) }

// queue is the state of one queue. The server's mutex guards it.
type queue struct {
	id       uint64
	name     string
	arn      string
	fifo     bool
	created  time.Time
	modified time.Time
	set      map[string]string // attributes as given
	conf     config            // the same, parsed
	tags     map[string]string

	live     []*message // in order of arrival, with holes marked gone
	holes    int
	bySerial map[uint64]*message
	oldest   time.Time // no live message was enqueued earlier
	serial   uint64
	sequence uint64
	total    struct{ sent, received, deleted, expired, moved int }
	deleted  []*message // the newest, for inspection and redelivery

	sent      map[string]sentOnce // deduplication window
	sentLimit int                 // size at which it is cleaned
	attempts  map[string]attempt
	waiters   map[chan struct{}]struct{}
	ghosts    []ghost
	purged    time.Time
	gone      bool
}

func (q *queue) add(m *message) {
	q.serial++
	m.serial = q.serial
	if len(q.bySerial) == 0 || m.enqueued.Before(q.oldest) {
		q.oldest = m.enqueued
	}
	q.live = append(q.live, m)
	q.bySerial[m.serial] = m
}

func (q *queue) remove(m *message) {
	m.gone = true
	delete(q.bySerial, m.serial)
	q.holes++
	if q.holes < 32 || q.holes < len(q.live)/2 {
		return
	}
	kept := make([]*message, 0, len(q.live)-q.holes)
	for _, m := range q.live {
		if !m.gone {
			kept = append(kept, m)
		}
	}
	q.live, q.holes = kept, 0
}

// expire removes what is older than the retention period, in flight or not.
func (q *queue) expire(now time.Time) {
	limit := now.Add(-q.conf.retention)
	if len(q.bySerial) == 0 || q.oldest.After(limit) {
		return
	}
	q.oldest = now
	for _, m := range q.snapshot() {
		switch {
		case !m.enqueued.After(limit):
			q.total.expired++
			q.remove(m)
		case m.enqueued.Before(q.oldest):
			q.oldest = m.enqueued
		}
	}
}

// snapshot returns the live messages in order; the caller may remove some
// while walking over it.
func (q *queue) snapshot() []*message {
	out := make([]*message, 0, len(q.bySerial))
	for _, m := range q.live {
		if !m.gone {
			out = append(out, m)
		}
	}
	return out
}

func (q *queue) counts(now time.Time) Counts {
	c := Counts{
		Sent: q.total.sent, Received: q.total.received, Deleted: q.total.deleted,
		Expired: q.total.expired, DeadLettered: q.total.moved,
	}
	for _, m := range q.live {
		switch {
		case m.gone:
		case m.visible(now):
			c.Visible++
		case m.receiveNo > 0:
			c.InFlight++
		default:
			c.Delayed++
		}
	}
	return c
}

// nextVisible returns the first instant after now at which a message becomes
// visible by itself, or the limit if that is earlier.
func (q *queue) nextVisible(now, limit time.Time) time.Time {
	for _, m := range q.live {
		if !m.gone && m.visibleAt.After(now) && m.visibleAt.Before(limit) {
			limit = m.visibleAt
		}
	}
	return limit
}

// wake lets the waiting receives look again. The channels are made by the
// receives themselves: inside a synctest bubble they must belong to it.
func (q *queue) wake() {
	for w := range q.waiters {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// find returns the queue that a URL, or a bare name, means. Only the last
// element of the path counts: hosts differ between those who share a server.
func (s *Server) find(url string) (*queue, error) {
	if url == "" {
		return nil, missing("QueueUrl")
	}
	if q := s.queues[baseName(url)]; q != nil {
		return q, nil
	}
	return nil, newError("QueueDoesNotExist", "The specified queue does not exist.")
}

func (s *Server) byARN(arn string) *queue {
	q := s.queues[arn[strings.LastIndexByte(arn, ':')+1:]]
	if q == nil || q.arn != arn {
		return nil
	}
	return q
}

func (s *Server) url(base string, q *queue) string {
	return base + "/" + s.opts.Account + "/" + q.name
}

// open brings the server up to now and returns the queue, ready for use. The
// caller holds the mutex.
func (s *Server) open(url string, now time.Time) (*queue, error) {
	s.advance(now)
	q, err := s.find(url)
	if err != nil {
		return nil, err
	}
	q.expire(now)
	return q, nil
}
