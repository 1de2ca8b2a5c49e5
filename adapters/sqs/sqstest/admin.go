package sqstest

import (
	"maps"
	"strconv"
	"strings"
	"time"
)

// cooldown is how long AWS refuses a second purge, and the name of a deleted
// queue.
const cooldown = 60 * time.Second

// CreateQueue creates a queue, as the operation of that name does, and returns
// its in-process URL. A name that ends with ".fifo" makes a FIFO queue; the
// attribute FifoQueue is added if missing. The error is an *[Error].
func (s *Server) CreateQueue(name string, attributes map[string]string) (string, error) {
	attrs := maps.Clone(attributes)
	if strings.HasSuffix(name, ".fifo") {
		if attrs == nil {
			attrs = map[string]string{}
		}
		attrs["FifoQueue"] = "true"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.create(name, attrs, nil, time.Now())
	if err != nil {
		return "", err
	}
	return s.url(InProcessURL, q), nil
}

type createQueueInput struct {
	QueueName  string
	Attributes map[string]string
	Tags       map[string]string `json:"tags"`
}

type queueURLOutput struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) createQueue(c *call, in createQueueInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.create(in.QueueName, in.Attributes, in.Tags, time.Now())
	if err != nil {
		return nil, err
	}
	return queueURLOutput{s.url(c.base, q)}, nil
}

func (s *Server) create(name string, attrs, tags map[string]string, now time.Time) (*queue, error) {
	fifo := attrs["FifoQueue"] == "true"
	if !validName(name, fifo) {
		return nil, newError("InvalidParameterValue",
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if q := s.queues[name]; q != nil {
		have := q.attributesOf(now)
		for _, k := range sortedKeys(attrs) {
			if have[k] != attrs[k] {
				return nil, newError("QueueNameExists",
					"A queue already exists with the same name and a different value for attribute %s", k)
			}
		}
		return q, nil
	}
	if at, ok := s.deleted[name]; ok && s.opts.Cooldowns && now.Sub(at) < cooldown {
		return nil, newError("QueueDeletedRecently",
			"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	conf, err := s.configure(name, fifo, attrs)
	if err != nil {
		return nil, err
	}
	s.lastID++
	q := &queue{
		id: s.lastID, name: name, arn: s.arn(name), fifo: fifo, created: now, modified: now,
		set: map[string]string{}, conf: conf, tags: map[string]string{},
		bySerial: map[uint64]*message{}, sent: map[string]sentOnce{}, attempts: map[string]attempt{},
		waiters: map[chan struct{}]struct{}{},
	}
	maps.Copy(q.set, attrs)
	maps.Copy(q.tags, tags)
	s.queues[name] = q
	return q, nil
}

func validName(name string, fifo bool) bool {
	base, suffixed := strings.CutSuffix(name, ".fifo")
	return base != "" && len(name) <= 80 && suffixed == fifo && within(base, 80, wordByte)
}

func (s *Server) getQueueURL(c *call, in struct{ QueueName string }) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.QueueName == "" {
		return nil, missing("QueueName")
	}
	q, err := s.find(in.QueueName)
	if err != nil {
		return nil, err
	}
	return queueURLOutput{s.url(c.base, q)}, nil
}

type listInput struct {
	QueueURL        string `json:"QueueUrl"`
	QueueNamePrefix string
	MaxResults      int
	NextToken       string
}

type listOutput struct {
	QueueURLs []string `json:"QueueUrls,omitempty"`
	NextToken string   `json:",omitempty"`
}

func (s *Server) listQueues(c *call, in listInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range sortedKeys(s.queues) {
		if strings.HasPrefix(name, in.QueueNamePrefix) {
			names = append(names, name)
		}
	}
	return s.page(c, names, in)
}

// page returns the URLs of the names that follow the token, which is the last
// name of the page before.
func (s *Server) page(c *call, names []string, in listInput) (listOutput, error) {
	if in.MaxResults < 0 || in.MaxResults > 1000 {
		return listOutput{}, invalidValue(in.MaxResults, "MaxResults", "Must be between 1 and 1000.")
	}
	limit := 1000
	if in.MaxResults > 0 {
		limit = in.MaxResults
	}
	var out listOutput
	last := ""
	for _, name := range names {
		if in.NextToken != "" && name <= in.NextToken {
			continue
		}
		if len(out.QueueURLs) == limit {
			if in.MaxResults > 0 {
				out.NextToken = last
			}
			break
		}
		out.QueueURLs = append(out.QueueURLs, s.url(c.base, s.queues[name]))
		last = name
	}
	return out, nil
}

type queueInput struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) deleteQueue(_ *call, in queueInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	q.gone = true
	delete(s.queues, q.name)
	s.deleted[q.name] = now
	q.wake()
	return nil, nil
}

func (s *Server) purgeQueue(_ *call, in queueInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	if s.opts.Cooldowns && !q.purged.IsZero() && now.Sub(q.purged) < cooldown {
		return nil, newError("PurgeQueueInProgress",
			"Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	for _, m := range q.snapshot() {
		q.remove(m)
	}
	clear(q.sent)
	clear(q.attempts)
	return nil, nil
}

func (s *Server) getQueueAttributes(_ *call, in struct {
	QueueURL       string `json:"QueueUrl"`
	AttributeNames []string
},
) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	all := q.attributesOf(now)
	out := map[string]string{}
	for _, name := range in.AttributeNames {
		if name == "All" {
			out = all
			break
		}
		if v, ok := all[name]; ok {
			out[name] = v
		} else if err := checkAttribute(name, "", true); err != nil && strings.HasPrefix(err.Error(), "InvalidAttributeName") {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return map[string]any{"Attributes": out}, nil
}

func (s *Server) setQueueAttributes(_ *call, in struct {
	QueueURL   string `json:"QueueUrl"`
	Attributes map[string]string
},
) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	q, err := s.open(in.QueueURL, now)
	if err != nil {
		return nil, err
	}
	if _, ok := in.Attributes["FifoQueue"]; ok {
		return nil, newError("InvalidAttributeName", "Unknown Attribute FifoQueue.")
	}
	set := maps.Clone(q.set)
	maps.Copy(set, in.Attributes)
	conf, err := s.configure(q.name, q.fifo, set)
	if err != nil {
		return nil, err
	}
	q.set, q.conf, q.modified = set, conf, now
	return nil, nil
}

func (s *Server) tagQueue(_ *call, in struct {
	QueueURL string `json:"QueueUrl"`
	Tags     map[string]string
},
) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	maps.Copy(q.tags, in.Tags)
	if len(q.tags) > 50 {
		return nil, newError("InvalidParameterValue", "Too many tags added for queue %s: %s.", q.name, strconv.Itoa(len(q.tags)))
	}
	return nil, nil
}

func (s *Server) untagQueue(_ *call, in struct {
	QueueURL string `json:"QueueUrl"`
	TagKeys  []string
},
) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	for _, k := range in.TagKeys {
		delete(q.tags, k)
	}
	return nil, nil
}

func (s *Server) listQueueTags(_ *call, in queueInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return map[string]any{"Tags": maps.Clone(q.tags)}, nil
}
