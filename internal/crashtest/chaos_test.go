package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/internal/testenv"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// TestChaos lets workers be killed, stopped and cut off at random while they
// handle messages that succeed, fail, panic, take longer than the lease, or
// come twice, and then holds the ledger of what they did against the records.
// `make soak` takes a minute and a half for each store.
func TestChaos(t *testing.T) {
	seed := testenv.Seed(t)
	for _, kind := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			b.setReceives(1000)
			b.conf.MaxCrashes = 1000
			c := &chaos{bench: b, rand: rand.New(rand.NewPCG(seed, 1)), seen: map[string]store.Record{}} //nolint:gosec // a test
			c.open()
			c.behindProxy()
			c.run(testenv.Size(80, 400), time.Duration(testenv.Size(10, 90))*time.Second)
			c.check()
		})
	}
}

// TestCutReplies cuts the connections to the store at random, for moments, and
// disturbs nothing else: then nothing happens twice.
func TestCutReplies(t *testing.T) {
	seed := testenv.Seed(t)
	for _, kind := range []string{"postgres", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			b.setReceives(1000)
			b.conf.Lease = 10 * time.Second
			c := &chaos{bench: b, rand: rand.New(rand.NewPCG(seed, 2)), seen: map[string]store.Record{}, gentle: true} //nolint:gosec // a test
			c.open()
			c.behindProxy()
			c.run(testenv.Size(150, 1500), time.Duration(testenv.Size(8, 60))*time.Second)
			c.check()
		})
	}
}

type chaos struct {
	*bench
	rand      *rand.Rand
	st        store.Store
	proxy     *faultproxy.Proxy // nil for sqlite
	gentle    bool              // processes live, and all keys are good
	keys      []string
	processes []*process
	seen      map[string]store.Record // successes
}

// open opens the store for the checks, without the proxy.
func (c *chaos) open() {
	st, closeStore, err := openStore(context.Background(), c.conf.Store, c.conf.DSN)
	must(c.t, err)
	c.t.Cleanup(closeStore)
	c.st = st
}

func (c *chaos) behindProxy() {
	switch c.conf.Store {
	case "postgres":
		u, err := url.Parse(c.conf.DSN)
		must(c.t, err)
		c.proxy = proxy(c.t, u.Host)
		u.Host = c.proxy.Addr()
		c.conf.DSN = u.String()
	case "redis":
		c.proxy = proxy(c.t, c.conf.DSN)
		c.conf.DSN = c.proxy.Addr()
	}
}

func (c *chaos) worker(n int) *process {
	return c.start(fmt.Sprintf("w%d-%d", n, c.rand.IntN(1e6)), nil, func(f *config) { f.Behave = "chaos" })
}

func (c *chaos) run(messages int, long time.Duration) {
	kinds := []string{"ok", "ok", "ok", "flaky", "slow", "stubborn", "panic", "terminal"}
	if c.gentle {
		kinds = kinds[:3]
	}
	for n := range 4 {
		c.processes = append(c.processes, c.worker(n))
	}
	end := time.Now().Add(long)
	pause := long / time.Duration(messages)
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range messages {
			key := fmt.Sprintf("%s-%d", kinds[i%len(kinds)], i)
			c.mu.Lock()
			c.keys = append(c.keys, key)
			c.mu.Unlock()
			c.send(key)
			if i%3 == 0 {
				c.send(key)
			}
			time.Sleep(pause)
		}
	})
	c.await(1, line{what: "start"})
	for time.Now().Before(end) {
		c.disturb()
		c.observe()
		time.Sleep(time.Duration(100+c.rand.IntN(500)) * time.Millisecond)
	}
	sender.Wait()
	c.calm()
	c.drained(90 * time.Second)
	c.observe()
}

// disturb does one bad thing.
func (c *chaos) disturb() {
	n, what := c.rand.IntN(len(c.processes)), c.rand.IntN(10)
	if c.gentle {
		what = 6
	}
	p := c.processes[n]
	switch {
	case what < 3:
		p.kill()
		c.processes[n] = c.worker(n)
	case what < 5:
		p.signal(syscall.SIGSTOP)
		time.Sleep(time.Duration(c.rand.IntN(4000)) * time.Millisecond)
		p.signal(syscall.SIGCONT)
	case what < 6:
		p.signal(syscall.SIGTERM)
		<-p.done
		c.processes[n] = c.worker(n)
	case c.proxy == nil:
	case what < 9:
		faults := []faultproxy.Fault{faultproxy.CutReply, faultproxy.HalfReply, faultproxy.CutRequest, faultproxy.Reset}
		c.proxy.Arm(faults[c.rand.IntN(len(faults))], 1+c.rand.IntN(8))
	default:
		c.proxy.Refuse()
		time.Sleep(time.Duration(c.rand.IntN(1500)) * time.Millisecond)
		must(c.t, c.proxy.Accept())
	}
	for n, p := range c.processes { // a panic without OnPanic, or a start while the store was away
		select {
		case <-p.done:
			c.processes[n] = c.worker(n)
		default:
		}
	}
}

func (c *chaos) calm() {
	if c.proxy != nil {
		c.proxy.Arm(0, 0)
		must(c.t, c.proxy.Accept())
	}
	for n := range 3 {
		c.processes = append(c.processes, c.worker(10+n))
	}
}

// observe reads the records: a success never changes again.
func (c *chaos) observe() {
	for cursor := ""; ; {
		page, next, err := c.st.(store.Inspector).List(context.Background(), store.ListQuery{Scope: c.conf.Scope, Cursor: cursor})
		must(c.t, err)
		for _, r := range page {
			id := r.ID.Key + "/" + r.ID.Effect
			was, known := c.seen[id]
			if known && (r.State != store.StateSucceeded || string(r.Payload) != string(was.Payload) || r.Fence != was.Fence) {
				c.t.Errorf("%s: the success was changed: %+v, now %+v", id, was, r)
			}
			if r.State == store.StateSucceeded {
				c.seen[id] = r
			}
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// check holds the ledger against the records.
func (c *chaos) check() {
	c.mu.Lock()
	w := witness{
		lines: append([]line(nil), c.lines...), starts: map[string]int{}, successes: map[string]int{},
		success: map[string]time.Time{}, charges: map[string]map[string]int{},
	}
	c.mu.Unlock()
	w.read()
	for _, l := range w.lines {
		if at, ok := w.success[l.key]; ok && l.what == "grant" && instant(l.text).After(at) {
			c.t.Errorf("%s: granted to %s at %v, after the success of %v", l.key, l.by, instant(l.text), at)
		}
	}
	for id, n := range w.successes {
		if n > 1 {
			c.t.Errorf("%s: %d successes", id, n)
		}
	}
	for _, key := range c.keys {
		c.checkKey(key, &w)
	}
	for _, m := range c.dead.Messages() {
		if !strings.Contains(m.Body, `"terminal-`) {
			c.t.Errorf("in the dead-letter queue: %s", m.Body)
		}
	}
	c.t.Logf("%d keys, %d starts, %d charges repeated with their idempotency key, %d dead letters",
		len(c.keys), c.count(line{what: "start"}), w.again, c.dead.Counts().Visible)
	if c.t.Failed() {
		c.t.Log("ledger:\n" + c.history())
	}
}

// witness is what the ledger says.
type witness struct {
	lines             []line
	starts, successes map[string]int            // by key; by key and effect
	success           map[string]time.Time      // by key and effect
	charges           map[string]map[string]int // by key and idempotency key
	again             int                       // charges made more than once
}

func (w *witness) read() {
	for _, l := range w.lines {
		switch l.what {
		case "start":
			w.starts[l.key]++
		case "charge":
			if w.charges[l.key] == nil {
				w.charges[l.key] = map[string]int{}
			}
			if w.charges[l.key][l.text]++; w.charges[l.key][l.text] > 1 {
				w.again++
			}
		case "success":
			w.successes[l.key]++
			w.success[l.key] = instant(l.text)
		}
	}
}

func (c *chaos) checkKey(key string, w *witness) {
	rec, ok, err := c.st.(store.Inspector).Get(context.Background(), store.ID{Scope: c.conf.Scope, Key: key})
	must(c.t, err)
	want, starts, charges := store.StateSucceeded, w.starts[key], w.charges[key]
	if strings.HasPrefix(key, "terminal") {
		want = store.StateFailed
	}
	if !ok || rec.State != want {
		c.t.Errorf("%s: lost: %v %+v", key, ok, rec)
	}
	if starts > rec.Starts || c.gentle && starts != 1 {
		c.t.Errorf("%s: %d starts, %d counted", key, starts, rec.Starts)
	}
	if len(charges) > 1 || want == store.StateSucceeded && len(charges) != 1 {
		c.t.Errorf("%s: idempotency keys of its charges: %v", key, charges)
	}
}

func instant(text string) time.Time {
	us, _ := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(us)
}

// chaotic is the handler of TestChaos. What a key begins with says what it does.
func chaotic(ctx context.Context, c *config, l ledger, key string) error {
	kind, _, _ := strings.Cut(key, "-")
	if kind == "terminal" {
		return secondrun.Terminal(errors.New("no such customer"))
	}
	err := secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error {
		name, err := secondrun.EffectKey(ctx, "charge")
		l.post("charge", key, name)
		time.Sleep(rand.N(250 * time.Millisecond)) //nolint:gosec // a test
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case kind == "slow":
		select {
		case <-time.After(c.Lease * 5 / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	case kind == "stubborn": // ignores its context
		time.Sleep(c.Lease * 3 / 2)
		return nil
	case kind == "panic" && rand.IntN(3) == 0: //nolint:gosec // a test
		panic("chaos")
	case kind == "flaky" && rand.IntN(2) == 0: //nolint:gosec // a test
		return secondrun.Transient(errors.New("try later"))
	}
	return secondrun.OnceFunc(ctx, "mail", func(context.Context) error {
		l.post("mail", key, "")
		return nil
	})
}

// recordingStore reports what the store granted and took as a success, with the
// instants of the store.
type recordingStore struct {
	store.Store
	l ledger
}

func (s *recordingStore) Claim(ctx context.Context, q []store.ClaimRequest) ([]store.Claim, error) {
	a, err := s.Store.Claim(ctx, q)
	for i := range a {
		if a[i].Verdict == store.Granted && a[i].Remaining == q[i].Lease { // not a repeated answer
			s.l.post("grant", q[i].ID.Key+"/"+q[i].ID.Effect, strconv.FormatInt(a[i].At.UnixMicro(), 10))
		}
	}
	return a, err
}

func (s *recordingStore) Settle(ctx context.Context, q []store.Settlement) ([]store.Status, error) {
	a, err := s.Store.Settle(ctx, q)
	for i := range a {
		if q[i].Kind == store.Succeed && (a[i].Code == store.OK || a[i].Code == store.Absent) {
			s.l.post("success", q[i].ID.Key+"/"+q[i].ID.Effect, strconv.FormatInt(a[i].At.UnixMicro(), 10))
		}
	}
	return a, err
}
