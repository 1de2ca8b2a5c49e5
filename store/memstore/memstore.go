// Package memstore keeps records in the memory of one process. It is not
// durable and not shared: a restart forgets every outcome, and a second process
// knows nothing of the first. It is meant for tests, for tools that run once,
// and as the reference that other stores are compared with. Where a message can
// come back after a restart, use another store.
//
// The clock is the monotonic one of package time: steps of the system's clock
// change nothing, and a store that was made inside of a [testing/synctest]
// bubble lives in the bubble's time.
//
// An answer is a slice, as the contract wants it, and so costs an allocation;
// a payload that is handed out costs another one. Everything else is reused.
package memstore

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"time"

	"github.com/secondrun/secondrun/store"
)

// shards is the number of parts with a lock of their own. It is much more than
// the number of processors, so that two claims seldom meet.
const shards = 64

// Options are the optional settings of [New]. Nil and the zero value mean the
// defaults.
type Options struct {
	// Audit is called for every successful use of [store.Admin], before the
	// call returns and without a lock. Nil reports to nobody.
	Audit func(store.Audit)
}

// Store is a store in memory. It starts no goroutines and needs no closing.
// Records past their retention are freed bit by bit by later grants, or by
// [Store.Purge] where there are none.
//
// A Store keeps the strings of a request as they are, without a copy: a key that
// is a part of a larger string keeps all of it in memory.
type Store struct {
	audit  func(store.Audit)
	seed   maphash.Seed
	shards [shards]shard
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Pinger    = (*Store)(nil)
	_ store.Limiter   = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Purger    = (*Store)(nil)
	_ store.Admin     = (*Store)(nil)
)

// New returns an empty store.
func New(o *Options) *Store {
	s := &Store{seed: maphash.MakeSeed()}
	if o != nil {
		s.audit = o.Audit
	}
	epoch := time.Now()
	for i := range s.shards {
		s.shards[i].init(epoch)
	}
	return s
}

// Claim implements [store.Store]. The only error is that of ctx.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Claim, len(reqs))
	for i := range reqs {
		k, effect := s.split(reqs[i].ID)
		s.shard(k).claim(k, effect, &reqs[i], &out[i])
	}
	return out, nil
}

// Renew implements [store.Store]. The only error is that of ctx.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Status, len(leases))
	for i := range leases {
		k, effect := s.split(leases[i].ID)
		out[i] = s.shard(k).renew(k, effect, &leases[i], d)
	}
	return out, nil
}

// Settle implements [store.Store]. The only error is that of ctx.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]store.Status, len(settlements))
	for i := range settlements {
		k, effect := s.split(settlements[i].ID)
		out[i] = s.shard(k).settle(k, effect, &settlements[i])
	}
	return out, nil
}

// Ping implements [store.Pinger]. The only error is that of ctx.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

// Limits implements [store.Limiter]: a call waits for nobody, so that nothing is
// gained by collecting calls into batches.
func (s *Store) Limits() store.Limits { return store.Limits{Parallel: math.MaxInt32} }

// Len returns the number of records in memory, effects left out. It includes
// records past their retention that are not freed yet.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.live
		sh.mu.Unlock()
	}
	return n
}

// key is the encoded ID without its effect, and its hash. A map of hashes is
// much smaller than one of strings, and each of the four accesses of a record's
// life misses the cache less often.
type key struct {
	hash       uint64
	scope, key string
}

func (s *Store) split(id store.ID) (k key, effect string) {
	k.scope, k.key, effect = id.Encode()
	k.hash = maphash.String(s.seed, k.key) ^ bits.RotateLeft64(maphash.String(s.seed, k.scope), 32)
	return k, effect
}

// shard returns the shard of k. The effects of a record are in its entry, and so
// in the same shard.
func (s *Store) shard(k key) *shard { return &s.shards[k.hash%shards] }
