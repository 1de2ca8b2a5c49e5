package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

const (
	defaultWaitTimeout = 500 * time.Millisecond
	batch              = 256
)

// Options are what is optional in [New]. A nil *Options and the zero value mean
// the defaults.
type Options struct {
	// Prefix begins every key: [A-Za-z0-9:_-]{1,64}. Empty means "secondrun".
	// Stores with one prefix on one server share their records.
	Prefix string

	// WaitReplicas is the number of replicas that must acknowledge a claim or a
	// settlement before it is answered. With fewer after WaitTimeout the item
	// fails with [ErrTooFewReplicas]; it is applied nevertheless and can be
	// repeated with the same token. Answers from a finished record wait too,
	// as a message is acknowledged because of them. Zero means not to wait:
	// a failover may then lose acknowledged writes. Even with it one can, when
	// the replica that is promoted is not one of those that acknowledged.
	WaitReplicas int
	// WaitTimeout is how long to wait for them. Zero means 500 ms. It must be
	// less than the client's ReadTimeout.
	WaitTimeout time.Duration

	// AllowEviction accepts a server that may evict records when its memory is
	// full; see the package documentation. An evicted record is a handler that
	// runs again.
	AllowEviction bool

	// OnWarning, if not nil, is called by [New] for everything that weakens the
	// guarantee without being an error, in plain English. It may be called by
	// several goroutines, one at a time.
	OnWarning func(text string)

	// Audit, if not nil, is called for every successful use of [store.Admin]
	// before the use returns.
	Audit func(store.Audit)
}

// Store keeps records in Redis. It is safe for concurrent use. It has no
// goroutines and nothing to close; the client is the caller's.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil unless client is one
	scripts scripts
	prefix  string
	limits  store.Limits

	waitReplicas int
	waitTimeout  time.Duration
	audit        func(store.Audit)
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Pinger    = (*Store)(nil)
	_ store.Limiter   = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Admin     = (*Store)(nil)
)

// New returns a store on client, which may be a standalone, Sentinel or Cluster
// client, after it has checked every master: that it is reachable, that its
// version is 7 or later, that it accepts claims, and that it does not evict
// records. Errors that configuration must mend wrap [store.ErrPermanent]; what
// could not be checked goes to [Options.OnWarning].
//
// The client's pool needs at least 4 connections (per node) for each guard; see
// [Store.Limits].
func New(ctx context.Context, client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if client == nil {
		return nil, fmt.Errorf("redisstore: no client: %w", store.ErrPermanent)
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.WaitTimeout <= 0 {
		o.WaitTimeout = defaultWaitTimeout
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return nil, err
	}
	s := &Store{
		client: client, scripts: newScripts(), prefix: o.Prefix,
		waitReplicas: max(o.WaitReplicas, 0), waitTimeout: o.WaitTimeout, audit: o.Audit,
	}
	s.cluster, _ = client.(*redis.ClusterClient)
	c := &checker{store: s, opts: &o}
	if err := c.client(client); err != nil {
		return nil, err
	}
	if err := s.eachMaster(ctx, c.server); err != nil {
		return nil, err
	}
	if err := s.Ping(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Limits answers what suits the client's pool: with Parallel claim calls and as
// many settle calls in flight two connections (per node) remain for renewals,
// so that these never wait behind them. Parallel is 2 with the default pool
// size and 1 with a pool of fewer than 6 connections. That is the share of one
// guard made by secondrun.New, with those made of it by Guard.Sub: for each
// further one, and for other code that uses the client, the pool must be that
// much larger.
func (s *Store) Limits() store.Limits { return s.limits }

// Ping answers nil when every master accepts claims. It fails on a replica, on
// a server that is loading, out of memory, or has fewer replicas than it wants,
// and on a cluster that is down.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.eachMaster(ctx, s.pingMaster); err != nil || s.cluster == nil {
		return err
	}
	// Only a call with a key is told that the cluster is down.
	return s.ping(ctx, s.client, s.prefix+":{ping}")
}

func (s *Store) pingMaster(ctx context.Context, c redis.UniversalClient) error { return s.ping(ctx, c) }

func (s *Store) ping(ctx context.Context, c redis.UniversalClient, keys ...string) error {
	err := c.EvalSha(ctx, s.scripts.ping.sha, keys).Err()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = c.Eval(ctx, s.scripts.ping.text, keys).Err()
	}
	return classify(err)
}

// Claim implements [store.Store] with one script per item and one round trip
// (per node).
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	b := s.newBatch(s.scripts.claim, len(reqs))
	for i := range reqs {
		r := &reqs[i]
		if max(len(r.Delivery), len(r.Holder), len(r.Trace)) > store.MaxText {
			b.refuse(errTooLong)
			continue
		}
		b.add(ctx, r.ID, r.Parent, r.Token[:], micros(r.Lease), micros(r.Retention), r.MaxFailures, r.MaxCrashes,
			flags(r), r.Fingerprint.Bytes(), r.Delivery, encodeMeta(r.Holder, r.Trace))
	}
	if err := b.run(ctx, s.waitReplicas > 0); err != nil {
		return nil, err
	}
	out := make([]store.Claim, len(reqs))
	for i := range out {
		a := b.answer(i)
		if a.err == nil {
			out[i], a.err = a.claim(&reqs[i])
		}
		if a.err != nil {
			out[i] = store.Claim{Err: a.err}
		}
	}
	if err := b.whole(func(i int) error { return out[i].Err }); err != nil {
		return nil, err
	}
	return out, nil
}

func flags(r *store.ClaimRequest) (f int) {
	if r.ParkOnTakeover {
		f++
	}
	if r.KeepFailures {
		f += 2
	}
	return f
}

// Renew implements [store.Store] as Claim does. It never answers Locked.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	b := s.newBatch(s.scripts.renew, len(leases))
	for i := range leases {
		b.add(ctx, leases[i].ID, store.Token{}, leases[i].Token[:], micros(d))
	}
	if err := b.run(ctx, false); err != nil {
		return nil, err
	}
	return b.statuses()
}

// Settle implements [store.Store] as Claim does.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	b := s.newBatch(s.scripts.settle, len(settlements))
	for i := range settlements {
		t := &settlements[i]
		switch {
		case len(t.Payload) > store.MaxPayload:
			b.refuse(errTooLong)
		case t.Kind < store.Succeed || t.Kind > store.Park:
			b.refuse(fmt.Errorf("redisstore: unknown kind of settlement: %w", store.ErrPermanent))
		default:
			payload := t.Payload
			if payload == nil {
				payload = []byte{}
			}
			b.add(ctx, t.ID, store.Token{}, t.Token[:], int(t.Kind), micros(t.Retention), micros(t.NotBefore), payload)
		}
	}
	if err := b.run(ctx, s.waitReplicas > 0); err != nil {
		return nil, err
	}
	return b.statuses()
}

// eachMaster calls fn for every master; the answer is one of the errors.
func (s *Store) eachMaster(ctx context.Context, fn func(context.Context, redis.UniversalClient) error) error {
	if s.cluster == nil {
		return fn(ctx, s.client)
	}
	var mu sync.Mutex
	var first error
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		err := fn(ctx, c)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			first = err
		}
		return err
	})
	if first != nil {
		return first
	}
	return classify(err)
}
