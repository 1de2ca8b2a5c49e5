package crashtest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
)

// TestSQS_KilledAndStopped: eight consumers in three processes, which are
// killed and stopped at random, work through a queue of an independent server in
// which every tenth message is a duplicate. Nothing is lost, and an effect
// happens twice only where a process died, or stood still for longer than its
// lease, between the effect and its record. `make soak` sends 20,000 messages.
func TestSQS_KilledAndStopped(t *testing.T) {
	for _, kind := range []string{"postgres", "redis"} {
		t.Run(kind, func(t *testing.T) {
			endpoint := testenv.Get(t, testenv.SQSVar)
			b := newBench(t, kind)
			b.useServer(endpoint)
			n := testenv.Size(600, 20_000)
			keys := b.sendWithDuplicates(n)
			m := b.mayhem([]int{3, 3, 2}, true, func(c *config) { c.Behave, c.Slots = "varied", 3 })
			b.emptied(time.Duration(n)*20*time.Millisecond + 2*time.Minute)
			m.stop()
			b.judge(m, keys, n)
		})
	}
}

// useServer moves the bench's queues to another server.
func (b *bench) useServer(endpoint string) {
	b.conf.SQS = endpoint
	transport := &http.Transport{}
	b.t.Cleanup(transport.CloseIdleConnections)
	b.conf.Lease, b.conf.Visibility, b.conf.Grace = 4*time.Second, 4*time.Second, 5*time.Second
	b.client = sqsClient(endpoint, func(o *sqs.Options) { o.HTTPClient = &http.Client{Transport: transport} })
	client, name := b.client, "crashtest-"+rand.Text()
	b.conf.DeadLetter = b.create(client, name+"-dead", nil)
	b.conf.Queue = b.create(client, name, nil)
	b.t.Cleanup(func() {
		for _, url := range []string{b.conf.Queue, b.conf.DeadLetter} {
			_, _ = client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &url})
		}
	})
}

// sendWithDuplicates sends n messages, every tenth of which repeats an earlier
// one, and returns the keys.
func (b *bench) sendWithDuplicates(n int) (keys []string) {
	var batch []types.SendMessageBatchRequestEntry
	for i := range n {
		key := fmt.Sprintf("k-%d", i)
		if i%10 == 9 {
			key = keys[mathrand.IntN(len(keys))]
		} else {
			keys = append(keys, key)
		}
		batch = append(batch, types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(len(batch))), MessageBody: aws.String(fmt.Sprintf(`{"id":%q}`, key)),
		})
		if len(batch) < 10 && i < n-1 {
			continue
		}
		out, err := b.client.SendMessageBatch(b.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &b.conf.Queue, Entries: batch})
		if err != nil || len(out.Failed) > 0 {
			b.t.Fatal(err, out)
		}
		batch = nil
	}
	return keys
}

// counts asks the server how many messages a queue has, in flight or not.
func (b *bench) counts(url string) int {
	out, err := b.client.GetQueueAttributes(b.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		i, _ := strconv.Atoi(out.Attributes[name])
		n += i
	}
	return n
}

func (b *bench) emptied(limit time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		n := b.counts(b.conf.Queue)
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d messages are left after %v\n%s", n, limit, b.history())
		}
	}
}

// mayhem is worker processes that are killed, and replaced, and stopped.
type mayhem struct {
	b       *bench
	stops   bool
	change  func(*config)
	end     chan struct{}
	done    sync.WaitGroup
	running []*process
	sizes   []int
	names   []string
	spawned int

	kills, stopped int
	hit            map[string]bool // the processes that were killed or stopped
}

// mayhem starts a process for each size, with so many consumers.
func (b *bench) mayhem(sizes []int, stops bool, change func(*config)) *mayhem {
	m := &mayhem{b: b, stops: stops, change: change, sizes: sizes, end: make(chan struct{}), hit: map[string]bool{}}
	m.running, m.names = make([]*process, len(sizes)), make([]string, len(sizes))
	for i := range sizes {
		m.spawn(i)
	}
	rng := mathrand.New(mathrand.NewPCG(testenv.Seed(b.t), 0)) //nolint:gosec // to be repeated
	m.done.Go(func() { m.rage(rng) })
	return m
}

func (m *mayhem) spawn(i int) {
	m.spawned++
	m.names[i] = fmt.Sprintf("worker-%d", m.spawned)
	m.running[i] = m.b.start(m.names[i], nil, func(c *config) {
		m.change(c)
		c.Consumers = m.sizes[i]
	})
}

func (m *mayhem) rage(rng *mathrand.Rand) {
	for {
		select {
		case <-m.end:
			return
		case <-time.After(time.Duration(300+rng.IntN(600)) * time.Millisecond):
		}
		i := rng.IntN(len(m.running))
		m.hit[m.names[i]] = true
		if !m.stops || m.kills <= m.stopped {
			m.kills++
			m.running[i].kill()
			m.spawn(i)
			continue
		}
		m.stopped++
		p := m.running[i].Process
		away := m.b.conf.Lease + time.Duration(rng.IntN(2000))*time.Millisecond
		_ = p.Signal(syscall.SIGSTOP)
		m.done.Go(func() {
			time.Sleep(away)
			_ = p.Signal(syscall.SIGCONT) // it may have been killed
		})
	}
}

// stop ends the workers in peace.
func (m *mayhem) stop() {
	m.b.t.Helper()
	close(m.end)
	m.done.Wait()
	for _, p := range m.running {
		p.signal(syscall.SIGTERM)
	}
	for i, p := range m.running {
		select {
		case <-p.done:
		case <-time.After(time.Minute):
			m.b.t.Errorf("%s does not stop", m.names[i])
		}
		if p.err != nil {
			m.b.t.Errorf("%s: %v", m.names[i], p.err)
		}
	}
}

// judge holds the ledger against what may happen.
func (b *bench) judge(m *mayhem, keys []string, sent int) {
	t := b.t
	effects := map[string][]string{} // by whom, by key
	ended := map[[2]string]string{}  // what became of the run of a key by a worker
	for _, l := range b.lines {      // all have been written: the workers are gone
		switch {
		case l.what == "effect":
			effects[l.key] = append(effects[l.key], l.by)
		case l.what == "settled" && l.text == "ok":
			ended[[2]string{l.by, l.key}] = "recorded"
		case l.what == "event" && l.text == "lease-lost" && ended[[2]string{l.by, l.key}] == "":
			ended[[2]string{l.by, l.key}] = "lost"
		}
	}
	lost, twice, unexplained := 0, 0, 0
	for _, key := range keys {
		unrecorded := 0
		for _, by := range effects[key] {
			if end := ended[[2]string{by, key}]; end == "lost" || end == "" && m.hit[by] {
				unrecorded++
			}
		}
		switch extra := len(effects[key]) - 1; {
		case extra < 0:
			lost++
			t.Errorf("%s: no effect", key)
		case extra > unrecorded:
			unexplained++
			t.Errorf("%s: effects by %v, of which %d were not recorded", key, effects[key], unrecorded)
		default:
			twice += extra
		}
	}
	b.allSucceeded(keys)
	if dead := b.counts(b.conf.DeadLetter); dead != 0 {
		t.Errorf("%d messages in the dead-letter queue", dead)
	}
	t.Logf("%d messages of %d keys, %d kills, %d stops: %d lost, %d effects repeated where a process died or stood still between effect and record, %d keys with other repetitions",
		sent, len(keys), m.kills, m.stopped, lost, twice, unexplained)
}

func (b *bench) allSucceeded(keys []string) {
	st, closeStore, err := openStore(context.Background(), b.conf.Store, b.conf.DSN)
	if err != nil {
		b.t.Fatal(err)
	}
	defer closeStore()
	for _, key := range keys {
		rec, ok, err := st.(store.Inspector).Get(context.Background(), store.ID{Scope: b.conf.Scope, Key: key})
		if err != nil || !ok || rec.State != store.StateSucceeded {
			b.t.Errorf("record of %s: %v, %v, %v", key, rec.State, ok, err)
		}
	}
}

// TestSQS_FIFOOrder: fifty groups, handlers that fail at random, and processes
// that are killed: within its group no message starts, or takes effect, after
// one that follows it.
func TestSQS_FIFOOrder(t *testing.T) {
	const groups = 50
	for _, kind := range []string{"postgres", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			b.conf.Lease, b.conf.Visibility, b.conf.Slots = 2*time.Second, 3*time.Second, 30
			client, fifo := sqsClient(b.conf.SQS), map[string]string{"FifoQueue": "true"}
			b.conf.DeadLetter = b.create(client, "dead.fifo", fifo)
			b.conf.Queue = b.create(client, "work.fifo", fifo)
			b.queue, b.dead = b.srv.Queue("work.fifo"), b.srv.Queue("dead.fifo")
			each := testenv.Size(5, 60)
			for i := range each {
				for g := range groups {
					b.sendFIFO(client, fmt.Sprintf("g%02d", g), fmt.Sprintf("g%02d/%04d", g, i))
				}
			}
			m := b.mayhem([]int{1, 1, 1}, false, func(c *config) { c.Behave = "flaky" })
			b.drained(time.Duration(each)*20*time.Second + time.Minute)
			m.stop()
			b.ordered(groups, each)
			if n := b.dead.Counts().Visible; n != 0 {
				t.Errorf("%d messages in the dead-letter queue", n)
			}
			t.Logf("%d groups of %d messages, %d kills: order kept", groups, each, m.kills)
		})
	}
}

func (b *bench) sendFIFO(client *sqs.Client, group, key string) {
	body := fmt.Sprintf(`{"id":%q}`, key)
	_, err := client.SendMessage(b.t.Context(), &sqs.SendMessageInput{
		QueueUrl: &b.conf.Queue, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &key,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// ordered checks the order of starts and of effects in each group, and that
// every message took effect.
func (b *bench) ordered(groups, each int) {
	for _, what := range []string{"start", "effect"} {
		seen := map[string][]string{}
		for _, l := range b.lines {
			if l.what == what {
				group, _, _ := strings.Cut(l.key, "/")
				seen[group] = append(seen[group], l.key)
			}
		}
		if len(seen) != groups {
			b.t.Errorf("%ss in %d of %d groups", what, len(seen), groups)
		}
		for group, keys := range seen {
			if !slices.IsSorted(keys) {
				b.t.Errorf("%ss of %s: %v", what, group, keys)
			}
			if n := len(slices.Compact(keys)); n != each {
				b.t.Errorf("%d of %d messages of %s: %s", n, each, group, what)
			}
		}
	}
}

// TestH12_PoisonInGroup: the messages behind one that kills every process that
// runs it do not perish with it.
func TestH12_PoisonInGroup(t *testing.T) {
	b := newBench(t, "sqlite")
	b.conf.MaxCrashes = 2
	client, fifo := sqsClient(b.conf.SQS), map[string]string{"FifoQueue": "true"}
	b.conf.DeadLetter = b.create(client, "dead.fifo", fifo)
	b.conf.Queue = b.create(client, "work.fifo", fifo)
	b.queue, b.dead = b.srv.Queue("work.fifo"), b.srv.Queue("dead.fifo")
	for _, key := range []string{"1-poison", "2", "3"} {
		b.sendFIFO(client, "g", key)
	}
	for n := 1; n <= 3; n++ {
		b.start("worker-"+itoa(n), nil, func(c *config) { c.Behave = "poison" }).killed()
	}
	b.start("last", nil, nil)
	b.drained(time.Minute)
	for _, key := range []string{"2", "3"} {
		if n := b.count(line{what: "effect", key: key}); n != 1 {
			t.Errorf("%s: %d effects", key, n)
		}
	}
	if got := b.dead.Bodies(); len(got) != 1 || !strings.Contains(got[0], "poison") {
		t.Errorf("dead letters: %q", got)
	}
}
