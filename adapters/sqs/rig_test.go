package sqsadapter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a queue, a dead-letter queue, a store, and a consumer in fake time.
type rig struct {
	t      *testing.T
	srv    *sqstest.Server
	client sqsadapter.Client
	sdk    *sqs.Client
	url    string
	dead   string
	st     store.Store
	guard  *secondrun.Guard
	opt    sqsadapter.Options

	mu     sync.Mutex
	runs   []string // keys, in the order in which handlers started
	events []sqsadapter.Event
	stop   func()
}

// everyPolicy runs a test in fake time under each policy for outdated handles:
// AWS leaves it open, so nothing may depend on it.
func everyPolicy(t *testing.T, f func(r *rig)) {
	for name, stale := range map[string]sqstest.Stale{"noop": sqstest.StaleNoop, "apply": sqstest.StaleApply, "error": sqstest.StaleError} {
		t.Run("stale handles "+name, func(t *testing.T) {
			inBubble(t, &sqstest.Options{Stale: stale}, "", nil, f)
		})
	}
}

func inBubble(t *testing.T, so *sqstest.Options, suffix string, go_ *secondrun.Options, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, srv: sqstest.NewServer(so), st: memstore.New(nil)}
		r.sdk = r.srv.Client()
		r.client = r.sdk
		r.dead = r.create("dead"+suffix, nil)
		r.url = r.create("work"+suffix, map[string]string{
			"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead` + suffix + `","maxReceiveCount":"20"}`,
		})
		r.opt = sqsadapter.Options{DeadLetter: sqsadapter.To(r.dead), OnEvent: func(_ context.Context, e sqsadapter.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		}}
		r.guard = r.newGuard(go_)
		defer func() {
			if r.stop != nil {
				r.stop()
			}
		}()
		f(r)
	})
}

func (r *rig) newGuard(o *secondrun.Options) *secondrun.Guard {
	g, err := secondrun.New("work", r.st, o)
	r.must(err)
	return g
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) create(name string, attrs map[string]string) string {
	if len(name) > 5 && name[len(name)-5:] == ".fifo" {
		if attrs == nil {
			attrs = map[string]string{}
		}
		attrs["FifoQueue"] = "true"
	}
	url, err := r.srv.CreateQueue(name, attrs)
	r.must(err)
	return url
}

func (r *rig) send(keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{QueueUrl: &r.url, MessageBody: aws.String(fmt.Sprintf(`{"id":%q}`, key))})
		r.must(err)
	}
}

func (r *rig) sendFIFO(group string, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		_, err := r.client.SendMessage(r.t.Context(), &sqs.SendMessageInput{
			QueueUrl: &r.url, MessageBody: aws.String(fmt.Sprintf(`{"id":%q}`, key)),
			MessageGroupId: &group, MessageDeduplicationId: aws.String(fmt.Sprint(group, key, time.Now().UnixNano())),
		})
		r.must(err)
	}
}

// handler wraps f so that runs are noted.
func (r *rig) handler(g *secondrun.Guard, f func(ctx context.Context, key string) error) secondrun.Wrapped {
	return secondrun.Wrap(g, keyfn.JSON("id"), func(ctx context.Context, m *sqsadapter.Message) error {
		key, err := keyfn.JSON("id")(m)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.runs = append(r.runs, key)
		r.mu.Unlock()
		return f(ctx, key)
	})
}

// start starts a consumer; the returned function stops it and waits.
func (r *rig) start(f func(ctx context.Context, key string) error) (stop func()) {
	r.t.Helper()
	return r.run(r.handler(r.guard, f))
}

func (r *rig) run(h secondrun.Wrapped) (stop func()) {
	r.t.Helper()
	c, err := sqsadapter.NewConsumer(r.client, r.url, h, &r.opt)
	r.must(err)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	if r.stop == nil {
		r.stop = stop
	}
	return stop
}

func (r *rig) started() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.runs)
}

func (r *rig) count(kind sqsadapter.EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// settled asserts how often the handler ran and that the queue is empty.
func (r *rig) settled(runs int) {
	r.t.Helper()
	if n := len(r.started()); n != runs {
		r.t.Errorf("%d runs, want %d", n, runs)
	}
	if c := r.srv.Queue(r.url).Counts(); c.Visible+c.InFlight+c.Delayed != 0 {
		r.t.Errorf("the queue is not empty: %+v", c)
	}
}

func (r *rig) deadCount() int { return r.srv.Queue(r.dead).Counts().Visible }

// record returns the record of a key.
func (r *rig) record(key string) (store.Record, bool) {
	rec, ok, err := r.st.(store.Inspector).Get(r.t.Context(), store.ID{Scope: "work", Key: key})
	r.must(err)
	return rec, ok
}

// busyElsewhere holds a key for d, as another process would.
func (r *rig) busyElsewhere(key string, d time.Duration) {
	g := r.newGuard(nil)
	go func() {
		_ = secondrun.DoFunc(context.WithoutCancel(r.t.Context()), g, key, func(context.Context) error { time.Sleep(d); return nil })
	}()
	synctest.Wait()
}

func sleeps(d time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sleep lets d pass, and waits until everybody who is due has finished.
func (r *rig) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
