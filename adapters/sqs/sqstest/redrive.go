package sqstest

import (
	"slices"
	"time"
)

// deadLetterOf returns the queue that a message must move to instead of being
// delivered, or nil. The dead-letter queue may have been deleted; then the
// message goes on being delivered.
func (s *Server) deadLetterOf(q *queue, m *message) *queue {
	if p := q.conf.redrive; p != nil && m.receives >= p.max {
		return s.byARN(p.Target)
	}
	return nil
}

// deadLetter moves a message as a redrive policy does: it keeps its id, its
// count and, in a standard queue, its age. In a FIFO queue the age starts
// anew and the deduplication id becomes the message id.
func (s *Server) deadLetter(q *queue, m *message, now time.Time) {
	target := s.deadLetterOf(q, m)
	q.remove(m)
	q.total.moved++
	moved := *m
	moved.gone, moved.receiveNo, moved.changes = false, 0, 0
	moved.visibleAt, moved.source = now, q.arn
	if target.fifo {
		moved.dedup, moved.enqueued, moved.sequence = m.id, now, target.nextSequence()
	}
	target.add(&moved)
	s.arrived(target, now)
}

// moveTask is one StartMessageMoveTask. Without a rate it is over before its
// start is answered; with one it moves on whenever the server is looked at.
type moveTask struct {
	handle      string
	source      string // ARNs
	destination string
	rate        int
	started     time.Time
	moved       int
	toMove      int
	status      string
	failure     string
}

func (t *moveTask) running() bool { return t.status == "RUNNING" }

// due is when the next message moves; at n messages per second the first n go
// at once.
func (t *moveTask) due() time.Time {
	if t.rate == 0 {
		return t.started
	}
	return t.started.Add(time.Duration(t.moved/t.rate) * time.Second)
}

// advance lets running move tasks catch up with the time.
func (s *Server) advance(now time.Time) {
	for _, t := range s.tasks {
		for t.running() && !t.due().After(now) {
			s.step(t, now)
		}
	}
}

// nextMove returns when the next message is moved, or the limit if earlier.
func (s *Server) nextMove(limit time.Time) time.Time {
	for _, t := range s.tasks {
		if t.running() && t.due().Before(limit) {
			limit = t.due()
		}
	}
	return limit
}

// step moves one message or ends the task.
func (s *Server) step(t *moveTask, now time.Time) {
	src := s.byARN(t.source)
	if src == nil {
		t.status, t.failure = "FAILED", "AWS.SimpleQueueService.NonExistentQueue"
		return
	}
	src.expire(now)
	i := slices.IndexFunc(src.live, func(m *message) bool { return !m.gone && m.visible(now) })
	if i < 0 || t.moved == t.toMove {
		t.status = "COMPLETED"
		return
	}
	m := src.live[i]
	dst := t.destination
	if dst == "" {
		dst = m.source
	}
	q := s.byARN(dst)
	switch {
	case dst == "":
		t.status, t.failure = "FAILED", "CouldNotDetermineMessageSource"
		return
	case q == nil:
		t.status, t.failure = "FAILED", "AWS.SimpleQueueService.NonExistentQueue"
		return
	}
	src.remove(m)
	t.moved++
	if t.moved == t.toMove {
		t.status = "COMPLETED"
	}
	s.resend(q, m, now)
}

// resend makes a redriven message: new id, new age, count zero.
func (s *Server) resend(q *queue, m *message, now time.Time) {
	again := &message{
		id: s.uuid(), body: m.body, attrs: m.attrs, trace: m.trace, group: m.group, dedup: m.dedup,
		enqueued: now, visibleAt: now,
	}
	if q.fifo {
		again.sequence = q.nextSequence()
	}
	q.add(again)
	s.arrived(q, now)
}

type startMoveInput struct {
	SourceARN      string `json:"SourceArn"`
	DestinationARN string `json:"DestinationArn"`
	Rate           *int   `json:"MaxNumberOfMessagesPerSecond"`
}

func (s *Server) startMoveTask(_ *call, in startMoveInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.advance(now)
	t := &moveTask{source: in.SourceARN, destination: in.DestinationARN, started: now, status: "RUNNING"}
	if in.Rate != nil {
		if *in.Rate < 1 || *in.Rate > 500 {
			return nil, invalidValue(*in.Rate, "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500.")
		}
		t.rate = *in.Rate
	}
	if err := s.checkMove(t, now); err != nil {
		return nil, err
	}
	t.handle = s.uuid()
	t.toMove = s.byARN(t.source).counts(now).Visible
	s.tasks = append(s.tasks, t)
	if len(s.tasks) > 1000 {
		s.tasks = slices.DeleteFunc(s.tasks, func(t *moveTask) bool { return !t.running() })
	}
	s.advance(now)
	return map[string]string{"TaskHandle": t.handle}, nil
}

func (s *Server) checkMove(t *moveTask, now time.Time) error {
	src := s.byARN(t.source)
	if src == nil {
		return newError("ResourceNotFoundException", "The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	src.expire(now)
	if len(s.sources(src)) == 0 {
		return newError("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
	}
	if t.destination != "" {
		dst := s.byARN(t.destination)
		switch {
		case dst == nil:
			return newError("ResourceNotFoundException", "The resource that you specified for the DestinationArn parameter doesn't exist.")
		case dst == src:
			return newError("InvalidParameterValue", "Source queue arn and destination queue arn cannot be the same.")
		case dst.fifo != src.fifo:
			return newError("InvalidParameterValue", "Source queue and destination queue must be of the same type.")
		}
	}
	for _, o := range s.tasks {
		if o.source == t.source && o.running() {
			return newError("InvalidParameterValue",
				"There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
		}
	}
	return nil
}

type moveTaskEntry struct {
	TaskHandle     string `json:",omitempty"` // only while the task can be cancelled
	Status         string
	SourceARN      string `json:"SourceArn"`
	DestinationARN string `json:"DestinationArn,omitempty"`
	Rate           int    `json:"MaxNumberOfMessagesPerSecond,omitempty"`
	Moved          int    `json:"ApproximateNumberOfMessagesMoved"`
	ToMove         int    `json:"ApproximateNumberOfMessagesToMove"`
	FailureReason  string `json:",omitempty"`
	Started        int64  `json:"StartedTimestamp"` // milliseconds
}

func (s *Server) listMoveTasks(_ *call, in struct {
	SourceARN  string `json:"SourceArn"`
	MaxResults *int
},
) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(time.Now())
	if s.byARN(in.SourceARN) == nil {
		return nil, newError("ResourceNotFoundException", "The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	limit := 1
	if in.MaxResults != nil {
		if limit = *in.MaxResults; limit < 1 || limit > 10 {
			return nil, invalidValue(limit, "MaxResults", "Must be between 1 and 10.")
		}
	}
	results := []moveTaskEntry{}
	for _, t := range slices.Backward(s.tasks) {
		if t.source != in.SourceARN || len(results) == limit {
			continue
		}
		e := moveTaskEntry{
			Status: t.status, SourceARN: t.source, DestinationARN: t.destination, Rate: t.rate,
			Moved: t.moved, ToMove: t.toMove, FailureReason: t.failure, Started: t.started.UnixMilli(),
		}
		if t.running() {
			e.TaskHandle = t.handle
		}
		results = append(results, e)
	}
	return map[string]any{"Results": results}, nil
}

func (s *Server) cancelMoveTask(_ *call, in struct{ TaskHandle string }) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(time.Now())
	for _, t := range s.tasks {
		if t.handle != in.TaskHandle {
			continue
		}
		if !t.running() {
			return nil, newError("UnsupportedOperation", "Only active tasks can be cancelled.")
		}
		t.status = "CANCELLED"
		return map[string]int{"ApproximateNumberOfMessagesMoved": t.moved}, nil
	}
	return nil, newError("ResourceNotFoundException", "Task does not exist.")
}

// sources returns the names of the queues whose dead letters go to q, sorted.
func (s *Server) sources(q *queue) []string {
	var names []string
	for _, name := range sortedKeys(s.queues) {
		if p := s.queues[name].conf.redrive; p != nil && p.Target == q.arn {
			names = append(names, name)
		}
	}
	return names
}

func (s *Server) listSources(c *call, in listInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	page, err := s.page(c, s.sources(q), in)
	if err != nil {
		return nil, err
	}
	// This operation alone spells the member in lower case.
	out := map[string]any{"queueUrls": append([]string{}, page.QueueURLs...)}
	if page.NextToken != "" {
		out["NextToken"] = page.NextToken
	}
	return out, nil
}
