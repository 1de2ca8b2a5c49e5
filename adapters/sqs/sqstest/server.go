package sqstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// InProcessURL is the base of the queue URLs that [Server.Client] sees. Its
// host never resolves, so a request that leaves the process by mistake fails.
const InProcessURL = "http://sqstest.invalid"

// Stale says what happens to a receipt handle that is no longer the message's
// newest, or whose visibility timeout has passed, on a standard queue. AWS
// leaves this open, so a correct consumer works under each of the three. FIFO
// queues refuse such handles whatever the policy.
type Stale int

const (
	// StaleNoop answers 200 and changes nothing. It is the default, and what
	// makes an answer of 200 no proof of ownership.
	StaleNoop Stale = iota
	// StaleApply answers 200 and does it: an extension hides the message
	// again, even from its new holder, and a delete removes it under him.
	StaleApply
	// StaleError refuses: MessageNotInflight for an extension after the
	// timeout, InvalidParameterValue for a handle that was superseded. A
	// delete after the timeout still works as long as nobody received the
	// message again.
	StaleError
)

// Options change a [Server]. The zero value of each field is the default, and
// nil means all of them.
type Options struct {
	// Region and Account appear in ARNs and URLs; "us-east-1" and
	// "000000000000" by default.
	Region, Account string
	// Seed fixes everything random: ids, order, short batches, redeliveries.
	// Zero draws one; [Server.Seed] tells which. With a fixed seed the message
	// ids of two servers are the same.
	Seed uint64
	// Stale is the policy for outdated handles on standard queues.
	Stale Stale
	// Shuffle delivers the messages of standard queues in random order.
	// Without it they come in the order of arrival, which AWS does not promise.
	Shuffle bool
	// ShortReceives makes a receive on a standard queue return a random number
	// of the messages it could have, at least one.
	ShortReceives bool
	// RedeliverDeleted is the probability, 0 to 1, with which a deleted message
	// of a standard queue comes back once, when its visibility timeout would
	// have ended. [Server.Redeliver] does it on demand.
	RedeliverDeleted float64
	// AbandonedPolls lets a long poll whose caller gave up go on until its
	// wait ends. Messages sent meanwhile go to it, nobody sees them, and they
	// stay in flight for the visibility timeout.
	AbandonedPolls bool
	// Cooldowns refuses a purge within 60 s of the last one, and creating a
	// queue within 60 s of deleting one of that name, as AWS does.
	Cooldowns bool
	// OmitQueryErrors leaves out the x-amzn-query-error header, as other
	// emulators do. The SDK then reports InvalidParameterValueException where
	// it otherwise reports InvalidParameterValue.
	OmitQueryErrors bool
	// InFlightLimit is the number of in-flight messages per queue from which a
	// receive fails with OverLimit (standard) or returns nothing (FIFO);
	// 120,000 by default.
	InFlightLimit int
	// KeepDeleted is how many deleted messages per queue stay available to
	// [Queue.Messages] and [Server.Redeliver]; 10,000 by default, negative for
	// none. Counts are not affected.
	KeepDeleted int
	// KeepCalls is how many calls [Server.Calls] remembers, the newest;
	// 10,000 by default, negative for none. [Server.CallCount] is not affected.
	KeepCalls int
}

// Server is an SQS in memory. It is an [http.Handler] and, through
// [Server.Do], the SDK's HTTP client at the same time. It starts no goroutine
// and keeps no timer running between calls, so it needs no Close. All methods
// are safe for concurrent use.
type Server struct {
	opts Options
	key  [16]byte // authenticates receipt handles

	mu       sync.Mutex
	rng      *rand.Rand
	queues   map[string]*queue
	lastID   uint64
	deleted  map[string]time.Time // names of deleted queues
	tasks    []*moveTask
	faults   []*faultRule
	calls    []*Call
	counts   map[string]int
	requests uint64
}

// NewServer returns an empty server; nil means the default [Options].
func NewServer(o *Options) *Server {
	s := &Server{
		queues:  map[string]*queue{},
		deleted: map[string]time.Time{},
		counts:  map[string]int{},
	}
	if o != nil {
		s.opts = *o
	}
	orString(&s.opts.Region, "us-east-1")
	orString(&s.opts.Account, "000000000000")
	orInt(&s.opts.InFlightLimit, 120_000)
	orInt(&s.opts.KeepDeleted, 10_000)
	orInt(&s.opts.KeepCalls, 10_000)
	for s.opts.Seed == 0 {
		s.opts.Seed = rand.Uint64()
	}
	s.rng = rand.New(rand.NewPCG(s.opts.Seed, 0x5345434f4e445255)) //nolint:gosec // reproducible on purpose
	for i := range s.key {
		s.key[i] = byte(s.rng.Uint32())
	}
	return s
}

// Seed returns the seed in use, to repeat a run that failed.
func (s *Server) Seed() uint64 { return s.opts.Seed }

// Client returns an SDK client that calls the server in process, with dummy
// credentials. The functions may change its options, for instance the retryer.
func (s *Server) Client(optFns ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region:       s.opts.Region,
		BaseEndpoint: aws.String(InProcessURL),
		HTTPClient:   s,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "sqstest", SecretAccessKey: "sqstest", Source: "sqstest"}, nil
		}),
	}, optFns...)
}

// Do answers a request of the SDK without a socket, in the caller's goroutine.
// It is the method of the SDK's HTTP client interface. A dropped request or
// reply ([Fault]) and a context that ends give an error, as a broken connection
// would.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	body, err := readBody(r.Body)
	if err == nil {
		err = r.Context().Err() // as a transport, which would not send it
	}
	if err != nil {
		return nil, err
	}
	rep, err := s.handle(r.Context(), r.Header.Get(targetHeader), r.URL.Scheme+"://"+r.URL.Host, body)
	if err != nil {
		return nil, err
	}
	return rep.response(r), nil
}

// ServeHTTP answers one request. A dropped request or reply closes the
// connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "sqstest speaks the AWS JSON 1.0 protocol: POST / with X-Amz-Target", http.StatusMethodNotAllowed)
		return
	}
	body, err := readBody(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	rep, err := s.handle(r.Context(), r.Header.Get(targetHeader), scheme+r.Host, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	rep.write(w)
}

// ListenAndServe serves HTTP on the address ("" for a free port of
// 127.0.0.1) until the context ends, and returns nil then. Before the first
// request it calls ready, if not nil, with the URL to use as endpoint. There
// is no authentication: listen on loopback addresses only.
func (s *Server) ListenAndServe(ctx context.Context, addr string, ready func(url string)) error {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	hs := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done() // ends the long polls too: they watch this context
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if hs.Shutdown(grace) != nil {
			_ = hs.Close()
		}
	}()
	if ready != nil {
		ready("http://" + ln.Addr().String())
	}
	err = hs.Serve(ln)
	cancel()
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func orString(p *string, v string) {
	if *p == "" {
		*p = v
	}
}

func orInt(p *int, v int) {
	if *p == 0 {
		*p = v
	}
}
