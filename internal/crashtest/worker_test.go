package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/redis/go-redis/v9"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/pgstore"
	"github.com/secondrun/secondrun/store/redisstore"
	"github.com/secondrun/secondrun/store/sqlitestore"
)

const configVar = "SECONDRUN_CRASHTEST_WORKER"

// config is what a worker process is told.
type config struct {
	Name       string
	Store, DSN string // kind and address of the store
	Scope      string
	SQS, Queue string
	DeadLetter string // URL; empty means the redrive policy
	World      string // URL of the ledger
	Crash      string // where to die, see crash_test.go; empty means nowhere
	Behave     string // what the handler does; empty means the effect, then success
	Lease      time.Duration
	Grace      time.Duration
	Slots      int
	MaxCrashes int
	Consumers  int           // of the queue, side by side; 0 means 1
	Visibility time.Duration // 0 means 3 s
}

func openStore(ctx context.Context, kind, dsn string) (store.Store, func(), error) {
	switch kind {
	case "postgres":
		st, err := pgstore.Open(ctx, dsn, nil)
		if err != nil {
			return nil, nil, err
		}
		return st, st.Close, nil
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: dsn})
		st, err := redisstore.New(ctx, client, nil)
		return st, func() { _ = client.Close() }, err
	case "sqlite":
		st, err := sqlitestore.Open(ctx, dsn, nil)
		if err != nil {
			return nil, nil, err
		}
		return st, func() { _ = st.Close() }, nil
	}
	return nil, nil, fmt.Errorf("unknown store %q", kind)
}

func sqsClient(endpoint string, o ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, o...)
}

// worker is the main function of a worker process.
func worker(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	st, closeStore, err := openStore(ctx, c.Store, c.DSN)
	if err != nil {
		return err
	}
	defer closeStore()
	l := ledger{c.World, c.Name}
	st = &dyingStore{Store: st, at: c.Crash}
	if c.Behave == "chaos" {
		st = &recordingStore{st, l}
	}
	g, err := secondrun.New(c.Scope, st, &secondrun.Options{
		Lease: c.Lease, Holder: c.Name, MaxCrashes: c.MaxCrashes,
		Backoff: secondrun.Backoff{Base: 100 * time.Millisecond},
		OnEvent: func(_ context.Context, e secondrun.Event) {
			switch e.Kind {
			case secondrun.EventLeaseLost, secondrun.EventHoldLost, secondrun.EventUnrecorded,
				secondrun.EventSuppressed, secondrun.EventStoreDown, secondrun.EventStoreUp:
				l.post("event", e.ID.Key, e.Kind.String())
			case secondrun.EventSettled:
				l.post("settled", e.ID.Key, e.Code.String())
			}
		},
	})
	if err != nil {
		return err
	}
	h := secondrun.WrapResult(g, keyfn.Template("{id}"), func(ctx context.Context, m *sqsadapter.Message) (string, error) {
		return c.Name, behave(ctx, &c, l, m)
	})
	opt := &sqsadapter.Options{
		Visibility: max(c.Visibility, 3*time.Second), Wait: time.Second, Grace: c.Grace, Concurrency: c.Slots, SettleTimeout: 2 * time.Second,
	}
	if c.Behave == "chaos" {
		opt.OnPanic = func(*sqsadapter.Message, any, []byte) {}
	}
	if c.DeadLetter != "" {
		opt.DeadLetter = sqsadapter.To(c.DeadLetter)
	}
	ended := make(chan error)
	for range max(c.Consumers, 1) {
		consumer, err := sqsadapter.NewConsumer(&dyingClient{Client: sqsClient(c.SQS), at: c.Crash}, c.Queue, h, opt)
		if err != nil {
			return err
		}
		go func() { ended <- consumer.Run(ctx) }()
	}
	for range max(c.Consumers, 1) {
		err = errors.Join(err, <-ended)
	}
	return err
}

// behave is the handler.
func behave(ctx context.Context, c *config, l ledger, m *sqsadapter.Message) error {
	key, err := keyfn.JSON("id")(m)
	if err != nil {
		return err
	}
	l.post("start", key, c.Name)
	if c.Crash == "C04" {
		die()
	}
	switch c.Behave {
	case "chaos":
		return chaotic(ctx, c, l, key)
	case "terminal":
		return secondrun.Terminal(errors.New("no such customer"))
	case "wait": // for the end of the context, without an effect
		<-ctx.Done()
		return ctx.Err()
	case "poison":
		die()
	case "busy": // never yields
		for end := time.Now().Add(3 * c.Lease); time.Now().Before(end); {
		}
	case "gate": // the ledger answers when the test says so
		l.post("gate", key, c.Name)
		if ctx.Err() != nil {
			l.post("event", key, "cause: "+context.Cause(ctx).Error())
			return nil // ignores that it was cancelled
		}
	case "short":
		time.Sleep(5 * time.Millisecond)
	case "flaky": // fails before the effect, or after it
		if rand.IntN(5) == 0 {
			return secondrun.Transient(errors.New("not yet"))
		}
		time.Sleep(5 * time.Millisecond)
		if rand.IntN(10) == 0 {
			l.post("effect", key, c.Name)
			return secondrun.Transient(errors.New("after the effect"))
		}
	case "varied": // in a while before the effect, and a while after it
		time.Sleep(rand.N(100 * time.Millisecond))
		l.post("effect", key, c.Name)
		time.Sleep(rand.N(100 * time.Millisecond))
		return nil
	case "slow":
		time.Sleep(c.Lease * 2 / 3)
	}
	l.post("effect", key, c.Name)
	return nil
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dyingStore kills its process before or after an operation, or loses a reply.
type dyingStore struct {
	store.Store
	at   string
	lost bool
}

var errReplyLost = errors.New("connection reset after the request was sent")

func (s *dyingStore) around(before, after, lose string, call func() error) error {
	if s.at == before {
		die()
	}
	err := call()
	if s.at == after {
		die()
	}
	if s.at == lose && !s.lost && err == nil {
		s.lost = true
		return errReplyLost
	}
	return err
}

func (s *dyingStore) Claim(ctx context.Context, q []store.ClaimRequest) (a []store.Claim, err error) {
	err = s.around("C01", "C03", "C02", func() error { a, err = s.Store.Claim(ctx, q); return err })
	return a, err
}

func (s *dyingStore) Renew(ctx context.Context, q []store.Lease, d time.Duration) (a []store.Status, err error) {
	err = s.around("C10 before", "C10 after", "C10 reply", func() error { a, err = s.Store.Renew(ctx, q, d); return err })
	return a, err
}

func (s *dyingStore) Settle(ctx context.Context, q []store.Settlement) (a []store.Status, err error) {
	before, after, lose := "C05", "C07", "C06"
	switch q[0].Kind {
	case store.Release:
		before, after, lose = "C11 before", "C11 after", "-"
	case store.Fail, store.Retry, store.Park:
		before, after, lose = "C12 before", "C12 after", "-"
	}
	err = s.around(before, after, lose, func() error { a, err = s.Store.Settle(ctx, q); return err })
	return a, err
}

// dyingClient kills its process between the dead-letter copy and the delete, or
// loses the reply to a delete.
type dyingClient struct {
	*sqs.Client
	at   string
	lost bool
}

func (c *dyingClient) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	out, err := c.Client.SendMessage(ctx, in, o...)
	if c.at == "C12 copied" {
		die()
	}
	return out, err
}

func (c *dyingClient) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	out, err := c.Client.DeleteMessageBatch(ctx, in, o...)
	if c.at == "C08" && !c.lost && err == nil {
		c.lost = true
		return nil, errReplyLost
	}
	return out, err
}

// ledger is a worker's way to the world outside.
type ledger struct{ url, name string }

func (l ledger) post(what, key, text string) {
	form := url.Values{"what": {what}, "key": {key}, "by": {l.name}, "text": {text}}
	res, err := http.PostForm(l.url, form) //nolint:noctx // the effect does not stop with the handler
	if err == nil {
		_ = res.Body.Close()
	}
}
