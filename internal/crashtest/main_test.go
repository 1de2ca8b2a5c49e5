package crashtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/pgstore"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(configVar); text != "" {
		if err := worker(text); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "12") // these tests wait for leases, they do not compute
	leaktest.Main(m)
}

// bench is one test's world: a queue, a store, and the ledger of what the
// workers did.
type bench struct {
	t      *testing.T
	srv    *sqstest.Server
	conf   config
	queue  *sqstest.Queue
	client *sqs.Client // where the queue is on another server
	dead   *sqstest.Queue

	mu     sync.Mutex
	lines  []line
	gate   map[string]chan struct{} // by worker
	change chan struct{}            // closed at every line
}

// line is one entry of the ledger.
type line struct{ what, key, by, text string }

var stores = []string{"postgres", "redis", "sqlite"}

// newBench prepares the named store and an SQS queue with a dead-letter queue.
func newBench(t *testing.T, kind string) *bench {
	b := &bench{t: t, gate: map[string]chan struct{}{}, change: make(chan struct{})}
	b.conf = config{Store: kind, Lease: time.Second, Grace: 500 * time.Millisecond, Slots: 10, Scope: "crashtest-" + rand.Text()}
	switch kind {
	case "postgres":
		b.conf.DSN = testenv.Get(t, testenv.PostgresVar)
		if err := pgstore.Migrate(t.Context(), b.conf.DSN, nil); err != nil {
			t.Fatal(err)
		}
	case "redis":
		b.conf.DSN = testenv.Get(t, testenv.RedisVar)
	case "sqlite":
		b.conf.DSN = filepath.Join(t.TempDir(), "records.db")
	}
	b.srv = sqstest.NewServer(nil)
	web := httptest.NewServer(b.srv)
	t.Cleanup(web.Close)
	world := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(world.Close)
	t.Cleanup(b.openGates) // before the server waits for its requests
	b.conf.SQS, b.conf.World = web.URL, world.URL
	b.queue, b.dead = b.srv.Queue("work"), b.srv.Queue("dead")
	client := sqsClient(web.URL)
	b.conf.DeadLetter = b.create(client, "dead", nil)
	b.conf.Queue = b.create(client, "work", nil)
	b.setReceives(50)
	return b
}

// setReceives sets after how many receives the queue gives a message up.
func (b *bench) setReceives(n int) {
	policy := fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"%d"}`, n)
	_, err := sqsClient(b.conf.SQS).SetQueueAttributes(b.t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: &b.conf.Queue, Attributes: map[string]string{"RedrivePolicy": policy},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(client *sqs.Client, name string, attrs map[string]string) string {
	out, err := client.CreateQueue(b.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attrs})
	if err != nil {
		b.t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl)
}

func (b *bench) send(keys ...string) {
	client := sqsClient(b.conf.SQS)
	for _, key := range keys {
		body := fmt.Sprintf(`{"id":%q}`, key)
		if _, err := client.SendMessage(b.t.Context(), &sqs.SendMessageInput{QueueUrl: &b.conf.Queue, MessageBody: &body}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) serve(_ http.ResponseWriter, r *http.Request) {
	l := line{r.FormValue("what"), r.FormValue("key"), r.FormValue("by"), r.FormValue("text")}
	b.mu.Lock()
	b.lines = append(b.lines, l)
	close(b.change)
	b.change = make(chan struct{})
	gate := b.gateLocked(l.by)
	b.mu.Unlock()
	if l.what == "gate" {
		<-gate
	}
}

func (b *bench) gateLocked(worker string) chan struct{} {
	if b.gate[worker] == nil {
		b.gate[worker] = make(chan struct{})
	}
	return b.gate[worker]
}

// open lets a worker's handler through its gate, now or when it comes there.
func (b *bench) open(worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := b.gateLocked(worker)
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (b *bench) openGates() {
	b.mu.Lock()
	var names []string
	for name := range b.gate {
		names = append(names, name)
	}
	b.mu.Unlock()
	for _, name := range names {
		b.open(name)
	}
}

// count counts the lines that fit; empty fields fit all.
func (b *bench) count(want line) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if l.what == want.what && (want.key == "" || l.key == want.key) && (want.by == "" || l.by == want.by) &&
			(want.text == "" || strings.HasPrefix(l.text, want.text)) {
			n++
		}
	}
	return n
}

// await waits until n lines fit.
func (b *bench) await(n int, want line) {
	b.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		b.mu.Lock()
		change := b.change
		b.mu.Unlock()
		if b.count(want) >= n {
			return
		}
		select {
		case <-change:
		case <-timeout:
			b.t.Fatalf("%+v: %d times, want %d\n%s", want, b.count(want), n, b.history())
		}
	}
}

// drained waits until the queue is empty.
func (b *bench) drained(limit time.Duration) {
	b.t.Helper()
	end := time.Now().Add(limit)
	for {
		c := b.queue.Counts()
		if c.Visible+c.InFlight+c.Delayed == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("the queue is not empty after %v: %+v\n%s", limit, c, b.history())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *bench) history() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for _, l := range b.lines[max(0, len(b.lines)-60):] {
		fmt.Fprintf(&s, "  %s %s by %s: %s\n", l.what, l.key, l.by, l.text)
	}
	return s.String()
}

// process is a running worker.
type process struct {
	*exec.Cmd
	t    *testing.T
	done chan struct{}
	err  error
}

// start starts a worker process; change adapts its configuration.
func (b *bench) start(name string, env []string, change func(*config)) *process {
	b.t.Helper()
	c := b.conf
	c.Name = name
	if change != nil {
		change(&c)
	}
	text, err := json.Marshal(c)
	if err != nil {
		b.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe), t: b.t, done: make(chan struct{})} //nolint:gosec,noctx // ourselves, ended by the cleanup
	p.Env = append(append(os.Environ(), configVar+"="+string(text)), env...)
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { p.err = p.Wait(); close(p.done) }()
	b.t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.done
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// killed waits until the process has died of SIGKILL.
func (p *process) killed() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatal("the worker did not come to the point where it dies")
	}
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Fatalf("the worker ended by itself: %v", p.err)
	}
}

// result returns who produced the recorded success of key.
func (b *bench) result(key string) string {
	b.t.Helper()
	st, closeStore, err := openStore(context.Background(), b.conf.Store, b.conf.DSN)
	if err != nil {
		b.t.Fatal(err)
	}
	defer closeStore()
	rec, ok, err := st.(store.Inspector).Get(context.Background(), store.ID{Scope: b.conf.Scope, Key: key})
	if err != nil || !ok || rec.State != store.StateSucceeded {
		b.t.Fatalf("record of %s: %+v, %v, %v", key, rec, ok, err)
	}
	return rec.Holder
}

func forEachStore(t *testing.T, f func(t *testing.T, b *bench)) {
	for _, kind := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, newBench(t, kind))
		})
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
