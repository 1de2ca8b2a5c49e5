package sqstest

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// attemptWindow is how long a receive of a FIFO queue can be repeated with its
// ReceiveRequestAttemptId.
const attemptWindow = 5 * time.Minute

type receiveInput struct {
	QueueURL                    string `json:"QueueUrl"`
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	ReceiveRequestAttemptID     string `json:"ReceiveRequestAttemptId"`
}

type received struct {
	MessageID         string `json:"MessageId"`
	ReceiptHandle     string
	MD5OfBody         string
	Body              string
	Attributes        map[string]string    `json:",omitempty"`
	MessageAttributes map[string]attribute `json:",omitempty"`
	MD5Attrs          string               `json:"MD5OfMessageAttributes,omitempty"`
}

type receiveOutput struct {
	Messages []received `json:",omitempty"`
}

// attempt is a receive that can be repeated.
type attempt struct {
	at      time.Time
	entries []attemptEntry
}

type attemptEntry struct {
	m         *message
	receiveNo int
	changes   int
}

// ghost is a long poll whose caller gave up.
type ghost struct {
	until      time.Time
	limit      int
	visibility time.Duration
}

// poll is a receive with its defaults filled in.
type poll struct {
	limit      int
	visibility time.Duration
	wait       time.Duration
	attempt    string
}

func (in receiveInput) poll(q *queue) (poll, error) {
	p := poll{limit: 1, visibility: q.conf.visibility, wait: q.conf.wait, attempt: in.ReceiveRequestAttemptID}
	if n := in.MaxNumberOfMessages; n != nil {
		if *n < 1 || *n > 10 {
			return p, invalidValue(*n, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
		}
		p.limit = *n
	}
	if n := in.VisibilityTimeout; n != nil {
		if *n < 0 || *n > 43200 {
			return p, invalidValue(*n, "VisibilityTimeout", "Must be >= 0 and <= 43200, if provided.")
		}
		p.visibility = time.Duration(*n) * time.Second
	}
	if n := in.WaitTimeSeconds; n != nil {
		if *n < 0 || *n > 20 {
			return p, invalidValue(*n, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
		}
		p.wait = time.Duration(*n) * time.Second
	}
	if !within(p.attempt, 128, graphic) {
		return p, invalidValue(p.attempt, "ReceiveRequestAttemptId", "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return p, nil
}

func (s *Server) receiveMessage(c *call, in receiveInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := time.Now()
	q, err := s.open(in.QueueURL, start)
	if err != nil {
		return nil, err
	}
	p, err := in.poll(q)
	if err != nil {
		return nil, err
	}
	deadline := start.Add(p.wait)
	for {
		now := time.Now()
		if _, err := s.open(in.QueueURL, now); err != nil || q.gone {
			return nil, newError("QueueDoesNotExist", "The specified queue does not exist.")
		}
		got, err := s.receive(q, p, now)
		if err != nil {
			return nil, err
		}
		if len(got) > 0 || !now.Before(deadline) {
			return s.render(q, in, got), nil
		}
		if err := s.await(c, q, s.nextMove(q.nextVisible(now, deadline)).Sub(now)); err != nil {
			if s.opts.AbandonedPolls {
				q.ghosts = append(q.ghosts, ghost{deadline, p.limit, p.visibility})
			}
			return nil, err
		}
	}
}

// await waits, without the mutex, until the queue changes, the time is over or
// the caller gives up, whose error it returns.
func (s *Server) await(c *call, q *queue, d time.Duration) error {
	w := make(chan struct{}, 1)
	q.waiters[w] = struct{}{}
	s.mu.Unlock()
	t := time.NewTimer(d)
	var err error
	select {
	case <-w:
	case <-t.C:
	case <-c.ctx.Done():
		err = c.ctx.Err()
	}
	t.Stop()
	s.mu.Lock()
	delete(q.waiters, w)
	return err
}

// receive hands out what is available now.
func (s *Server) receive(q *queue, p poll, now time.Time) ([]*message, error) {
	if q.fifo {
		if got := q.replay(p, now); got != nil {
			return got, nil
		}
	}
	if len(q.bySerial) >= s.opts.InFlightLimit && q.counts(now).InFlight >= s.opts.InFlightLimit {
		if q.fifo {
			return nil, nil
		}
		return nil, newError("OverLimit", "Too many messages in flight.")
	}
	got := s.available(q, p.limit, now)
	for _, m := range got {
		m.receives++
		m.receiveNo++
		m.receivedAt = now
		m.visibleAt = now.Add(p.visibility)
		if m.firstReceived.IsZero() {
			m.firstReceived = now
		}
		q.total.received++
	}
	if q.fifo && p.attempt != "" && len(got) > 0 {
		a := attempt{at: now}
		for _, m := range got {
			a.entries = append(a.entries, attemptEntry{m, m.receiveNo, m.changes})
		}
		q.attempts[p.attempt] = a
	}
	return got, nil
}

// replay returns the messages of the same attempt again, with their handles
// and a fresh visibility timeout, unless one of them was touched since.
func (q *queue) replay(p poll, now time.Time) []*message {
	for id, a := range q.attempts {
		if now.Sub(a.at) >= attemptWindow {
			delete(q.attempts, id)
		}
	}
	a, ok := q.attempts[p.attempt]
	if !ok {
		return nil
	}
	var got []*message
	for _, e := range a.entries {
		if e.m.gone || e.m.receiveNo != e.receiveNo || e.m.changes != e.changes || e.m.visible(now) {
			delete(q.attempts, p.attempt)
			return nil
		}
		got = append(got, e.m)
	}
	for _, m := range got {
		m.visibleAt = now.Add(p.visibility)
	}
	return got
}

// available picks up to limit messages and moves those it meets that were
// received often enough to the dead-letter queue instead.
func (s *Server) available(q *queue, limit int, now time.Time) []*message {
	if q.fifo {
		return s.availableInGroups(q, limit, now)
	}
	msgs := q.live
	if s.opts.Shuffle {
		msgs = q.snapshot()
		s.rng.Shuffle(len(msgs), func(i, j int) { msgs[i], msgs[j] = msgs[j], msgs[i] })
	}
	var got, spent []*message
	for _, m := range msgs {
		if len(got) == limit {
			break
		}
		switch {
		case m.gone || !m.visible(now):
		case s.deadLetterOf(q, m) != nil:
			spent = append(spent, m)
		default:
			got = append(got, m)
		}
	}
	for _, m := range spent { // only now: moving changes q.live
		s.deadLetter(q, m, now)
	}
	if s.opts.ShortReceives && len(got) > 1 {
		got = got[:1+s.rng.IntN(len(got))]
	}
	return got
}

// availableInGroups picks as many messages as possible of the group whose turn
// it is, then of the next. A group ends at its first message in flight.
func (s *Server) availableInGroups(q *queue, limit int, now time.Time) []*message {
	type run struct {
		msgs   []*message
		closed bool
	}
	runs := map[string]*run{}
	var order []*run
	var spent []*message
	for _, m := range q.live {
		if m.gone {
			continue
		}
		r := runs[m.group]
		if r == nil {
			r = &run{}
			runs[m.group] = r
			order = append(order, r)
		}
		switch {
		case r.closed || len(r.msgs) == limit:
		case !m.visible(now):
			r.closed = true
		case s.deadLetterOf(q, m) != nil:
			spent = append(spent, m)
		default:
			r.msgs = append(r.msgs, m)
		}
		if len(order[0].msgs) == limit {
			break
		}
	}
	for _, m := range spent {
		s.deadLetter(q, m, now)
	}
	var got []*message
	for _, r := range order {
		got = append(got, r.msgs[:min(len(r.msgs), limit-len(got))]...)
	}
	return got
}

// arrived is called when a message of the queue became visible, or may have:
// abandoned polls take first, since nobody can tell them from living ones.
func (s *Server) arrived(q *queue, now time.Time) {
	ghosts := q.ghosts
	q.ghosts = nil // receive may come back here through a dead-letter queue
	for _, g := range ghosts {
		if now.After(g.until) {
			continue
		}
		got, err := s.receive(q, poll{limit: g.limit, visibility: g.visibility}, now)
		if err != nil || len(got) == 0 {
			q.ghosts = append(q.ghosts, g)
		}
	}
	q.wake()
}

// render writes the messages as the caller asked for them.
func (s *Server) render(q *queue, in receiveInput, got []*message) receiveOutput {
	var out receiveOutput
	system := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)
	for _, m := range got {
		attrs := selectAttributes(m.attrs, in.MessageAttributeNames)
		out.Messages = append(out.Messages, received{
			MessageID: m.id, ReceiptHandle: s.newHandle(q, m), Body: m.body, MD5OfBody: digestBody(m.body),
			Attributes:        m.systemAttributes(system),
			MessageAttributes: attrs, MD5Attrs: digestAttributes(attrs),
		})
	}
	return out
}

// selectAttributes returns the attributes asked for: by name, by prefix
// ("order.*") or all of them.
func selectAttributes(attrs map[string]attribute, names []string) map[string]attribute {
	out := map[string]attribute{}
	for _, want := range names {
		prefix, isPrefix := strings.CutSuffix(want, ".*")
		for name, a := range attrs {
			if want == "All" || want == "*" || name == want || isPrefix && strings.HasPrefix(name, prefix) {
				out[name] = a
			}
		}
	}
	return out
}

func (m *message) systemAttributes(names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	all := map[string]string{
		"SenderId":                         "AIDASQSTEST",
		"SentTimestamp":                    millis(m.enqueued),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": millis(m.firstReceived),
		"MessageGroupId":                   m.group,
		"MessageDeduplicationId":           m.dedup,
		"SequenceNumber":                   m.sequence,
		"AWSTraceHeader":                   m.trace,
		"DeadLetterQueueSourceArn":         m.source,
	}
	out := map[string]string{}
	for _, want := range names {
		for name, v := range all {
			if v != "" && (want == "All" || want == name) {
				out[name] = v
			}
		}
	}
	return out
}
