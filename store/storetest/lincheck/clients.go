package lincheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/secondrun/secondrun/store"
)

// history is one run.
type history struct {
	st    store.Store
	cfg   Config
	scope string
	began time.Time
	quota atomic.Int64 // items left
	calls sync.WaitGroup

	mu     sync.Mutex
	ops    []porcupine.Operation
	err    error
	recent map[place][]store.ClaimRequest // claims of all clients, newest last
	owner  map[place]store.ClaimRequest   // the last that was granted
}

// place is a record: a key and a slot.
type place struct{ key, slot int }

func run(ctx context.Context, st store.Store, cfg Config, seed uint64) *history {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	h := &history{
		st: st, cfg: cfg, scope: "lincheck-" + hex.EncodeToString(b[:]), began: time.Now(),
		recent: map[place][]store.ClaimRequest{}, owner: map[place]store.ClaimRequest{},
	}
	h.quota.Store(int64(cfg.Ops))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range cfg.Clients {
		c := &client{h: h, id: i, rng: mathrand.New(mathrand.NewPCG(seed, uint64(i)))} //nolint:gosec // a seed is wanted
		wg.Go(func() {
			<-start
			for h.quota.Load() > 0 && ctx.Err() == nil && !h.failed() {
				c.act(ctx)
			}
		})
	}
	stop := make(chan struct{})
	purged := make(chan struct{})
	go func() {
		defer close(purged)
		h.purge(ctx, stop)
	}()
	close(start)
	wg.Wait()
	h.calls.Wait()
	close(stop)
	<-purged
	return h
}

// purge purges beside the clients, who must not see any of it.
func (h *history) purge(ctx context.Context, stop <-chan struct{}) {
	p, ok := h.st.(store.Purger)
	for cursor := ""; ok; {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		_, next, err := p.Purge(ctx, cursor)
		if err != nil {
			h.fail(fmt.Errorf("purge: %w", err))
			return
		}
		cursor = next
	}
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
}

func (h *history) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err != nil
}

// client is one of the concurrent clients.
type client struct {
	h     *history
	id    int
	rng   *mathrand.Rand
	count int
}

func (c *client) chance(percent int) bool { return c.rng.IntN(100) < percent }

func pick[T any](c *client, from ...T) T { return from[c.rng.IntN(len(from))] }

// act does one call, or a few that belong together.
func (c *client) act(ctx context.Context) {
	if c.chance(20) { // let leases end
		time.Sleep(time.Duration(c.rng.IntN(4000)) * time.Microsecond)
	}
	ops := c.batch(c.plan())
	if len(ops) == 0 {
		return
	}
	if c.chance(8) { // the reply is lost: go on while the call runs, and repeat it
		c.h.calls.Go(func() { c.h.call(context.WithoutCancel(ctx), c.id+c.h.cfg.Clients, ops) })
		for range 1 + c.rng.IntN(2) {
			c.h.call(ctx, c.id, again(ops))
		}
		return
	}
	c.h.call(ctx, c.id, ops)
	if c.chance(5) { // the reply is lost after the fact
		c.h.call(ctx, c.id, again(ops))
	}
}

func again(ops []*op) []*op {
	out := make([]*op, len(ops))
	for i, o := range ops {
		out[i] = &op{kind: o.kind, key: o.key, slot: o.slot, req: o.req, lease: o.lease, d: o.d, settlement: o.settlement}
	}
	return out
}

// plan chooses what kind of call comes next.
func (c *client) plan() kind {
	n := c.rng.IntN(100)
	_, admin := c.h.st.(store.Admin)
	_, inspector := c.h.st.(store.Inspector)
	switch {
	case n < 44:
		return opClaim
	case n < 56:
		return opRenew
	case n < 92:
		return opSettle
	case n < 96 && inspector:
		return opGet
	case n < 100 && n >= 96 && admin:
		return pick(c, opReopen, opForget, opForceRelease)
	}
	return opClaim
}

// batch makes the items of one call, distinct and sorted.
func (c *client) batch(k kind) []*op {
	n := 1
	if k <= opSettle && c.chance(25) {
		n = 1 + c.rng.IntN(4)
	}
	var ops []*op
	used := map[place]bool{}
	for range n {
		p := place{key: c.rng.IntN(c.h.cfg.Keys)}
		if k <= opSettle || k == opGet {
			p.slot = pick(c, 0, 0, 0, 1, 2)
		}
		if o := c.item(k, p); o != nil && !used[p] {
			used[p] = true
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, func(a, b *op) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.slot, b.slot)) })
	if k == opRenew {
		d := pick(c, 2, 4, 8, 200)
		for _, o := range ops {
			o.d = time.Duration(d) * time.Millisecond
		}
	}
	return ops
}

// item makes one item for p, nil when there is nothing to do there.
func (c *client) item(k kind, p place) *op {
	o := &op{kind: k, key: p.key, slot: p.slot}
	switch k {
	case opClaim:
		var ok bool
		o.req, ok = c.request(p)
		if !ok {
			return nil
		}
		c.h.remember(p, o.req)
	case opRenew:
		r, ok := c.known(p)
		if !ok {
			return nil
		}
		o.lease = store.Lease{ID: r.ID, Token: r.Token}
	case opSettle:
		r, ok := c.known(p)
		if !ok {
			return nil
		}
		o.settlement = c.settlement(r)
	}
	return o
}

func (h *history) id(p place) store.ID {
	return store.ID{Scope: h.scope, Key: fmt.Sprint("key-", p.key), Effect: []string{"", "charge", "receipt"}[p.slot]}
}

func (h *history) remember(p place, r store.ClaimRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := append(h.recent[p], r)
	if len(list) > 6 {
		list = list[1:]
	}
	h.recent[p] = list
}

// known returns a recent claim of p by anybody, mostly the one that was granted
// last.
func (c *client) known(p place) (store.ClaimRequest, bool) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if r, ok := c.h.owner[p]; ok && c.chance(70) {
		return r, true
	}
	list := c.h.recent[p]
	if len(list) == 0 {
		return store.ClaimRequest{}, false
	}
	return list[c.rng.IntN(len(list))], true
}

// parent returns a claim to run an effect under, mostly one that may be held.
func (c *client) parent(key int) (store.ClaimRequest, bool) {
	for range 3 {
		if r, ok := c.known(place{key: key}); ok && c.h.granted(key, r.Token) {
			return r, true
		}
	}
	return c.known(place{key: key})
}

func (h *history) granted(key int, t store.Token) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner[place{key: key}].Token == t
}

// request makes a claim: of a new delivery, or once more that of an old one.
func (c *client) request(p place) (store.ClaimRequest, bool) {
	if c.chance(15) {
		if r, ok := c.known(p); ok {
			return r, true
		}
	}
	ms := func(from ...int) time.Duration { return time.Duration(pick(c, from...)) * time.Millisecond }
	c.count++
	r := store.ClaimRequest{
		ID: c.h.id(p), Lease: ms(1, 2, 4, 8, 200), Retention: ms(1, 5, 10, 20, 1000),
		ParkOnTakeover: c.chance(10), KeepFailures: c.chance(15),
		Delivery: pick(c, "", "", "d1", "d2"), Holder: fmt.Sprint("client-", c.id), Trace: fmt.Sprint(c.id, "-", c.count),
	}
	for i := 0; i < len(r.Token); i += 8 {
		v := c.rng.Uint64() | 1
		for j := range 8 {
			r.Token[i+j] = byte(v >> (8 * j))
		}
	}
	if p.slot > 0 {
		parent, ok := c.parent(p.key)
		r.Parent, r.Retention = parent.Token, 0
		return r, ok
	}
	if c.chance(50) {
		r.MaxFailures, r.MaxCrashes = c.rng.IntN(4), c.rng.IntN(4)
	}
	if c.chance(20) {
		r.Fingerprint = store.Fingerprint{Version: uint16(pick(c, 1, 1, 1, 2)), Sum: [32]byte{byte(pick(c, 1, 1, 2))}} //nolint:gosec // small
	}
	return r, true
}

func (c *client) settlement(r store.ClaimRequest) store.Settlement {
	c.count++
	s := store.Settlement{
		ID: r.ID, Token: r.Token,
		Kind: pick(c, store.Succeed, store.Succeed, store.Succeed, store.Fail, store.Fail, store.Retry, store.Retry, store.Retry,
			store.Release, store.Release, store.Park),
		Payload:   fmt.Appendf(nil, "%d-%d", c.id, c.count),
		Retention: time.Duration(pick(c, 1, 1, 2, 3, 5, 8, 1000)) * time.Millisecond,
	}
	if c.chance(50) {
		s.NotBefore = time.Duration(1+c.rng.IntN(4)) * time.Millisecond
	}
	if r.ID.Effect != "" {
		s.Retention = 0
	}
	return s
}
