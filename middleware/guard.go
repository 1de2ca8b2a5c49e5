package secondrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/secondrun/secondrun/store"
)

// Guard claims keys in a store within one scope. It is safe for concurrent use
// and needs no Close: what it holds open ends with the last run. [Guard.Shutdown]
// drains it.
type Guard struct {
	scope    string
	segments string // what Sub has appended to the scope
	opt      Options
	leases   *beatGroup
	tel      *telemetry
	label    string // what metrics call the scope
	*engine
}

// engine is what all guards of one store share: the calls to the store are
// collected, and what is held is extended, over all of them.
type engine struct {
	tel     *telemetry
	store   store.Store
	limits  store.Limits
	claims  *batcher[store.ClaimRequest, store.Claim]
	settles *batcher[store.Settlement, store.Status]
	beats   heartbeat
	health  breaker

	mu      sync.Mutex
	running map[*Attempt]struct{}
	late    int           // releases of claims that outlive their caller
	idle    chan struct{} // non-nil while somebody waits until nothing is left
	closing bool
}

// New returns a Guard for the named scope. The scope names the consumer: it is
// part of every record's identity, must be the same in every process and every
// version of the program, and must differ between consumers that share a
// store. It is an error when it is empty, longer than 64 KiB, or contains a
// "/", which separates the segments that [Guard.Sub] appends; or when the options
// do not fit together.
func New(scope string, st store.Store, opt *Options) (*Guard, error) {
	if st == nil {
		return nil, errors.New("secondrun: no store")
	}
	if scope == "" || len(scope) > store.MaxKey {
		return nil, fmt.Errorf("secondrun: a scope has 1 to %d bytes, this one %d", store.MaxKey, len(scope))
	}
	if strings.Contains(scope, "/") {
		return nil, fmt.Errorf("secondrun: scope %q contains a slash: use Guard.Sub for parts of a scope", scope)
	}
	o, err := opt.resolve()
	if err != nil {
		return nil, fmt.Errorf("secondrun: options of scope %q: %w", scope, err)
	}
	g := &Guard{scope: scope, opt: o, label: scope, tel: newTelemetry(o.Telemetry, scope)}
	g.engine = newEngine(st, scope, &o, g.tel, func(e Event) { g.emit(context.Background(), e) })
	g.leases = g.leaseGroup()
	return g, nil
}

// Sub returns a Guard for a part of the scope, such as one task type. The
// segment is appended so that no two chains of segments give the same scope.
// Nil options mean the parent's. Calls to the store, and the heartbeat, are
// shared with the parent, and so is Shutdown.
func (g *Guard) Sub(segment string, opt *Options) (*Guard, error) {
	o := g.opt
	if opt != nil {
		var err error
		if o, err = opt.resolve(); err != nil {
			return nil, fmt.Errorf("secondrun: options of %q in scope %q: %w", segment, g.scope, err)
		}
	}
	if segment == "" {
		return nil, errors.New("secondrun: empty segment")
	}
	segment = "/" + escapeSegment.Replace(segment)
	sub := &Guard{scope: g.scope + segment, segments: g.segments + segment, opt: o, engine: g.engine}
	if len(sub.scope) > store.MaxKey {
		return nil, fmt.Errorf("secondrun: scope is longer than %d bytes", store.MaxKey)
	}
	g.subTelemetry(sub)
	sub.leases = sub.leaseGroup()
	return sub, nil
}

var escapeSegment = strings.NewReplacer("%", "%25", "/", "%2F")

// Scope returns the whole scope.
func (g *Guard) Scope() string { return g.scope }

// Retention returns how long outcomes are kept at least: the shorter of
// Options.Retention and Options.FailureRetention. Adapters compare it with the
// broker's.
func (g *Guard) Retention() time.Duration { return min(g.opt.Retention, g.opt.FailureRetention) }

// Lease returns the length of a lease.
func (g *Guard) Lease() time.Duration { return g.opt.Lease }

// WaitHealthy returns nil when the store answers, as far as is known. While it
// does not, WaitHealthy probes it and returns once it does, or with the cause
// of ctx. Adapters call it before they receive.
//
// It does not wait where handlers run without the store anyway (FailOpen,
// Observe).
func (g *Guard) WaitHealthy(ctx context.Context) error {
	if g.runsUnguarded() {
		return context.Cause(ctx)
	}
	return g.health.wait(ctx)
}

// Healthy reports whether the store answered lately: what a readiness check
// can show.
func (g *Guard) Healthy() bool { return !g.health.open() }

func newEngine(st store.Store, scope string, o *Options, tel *telemetry, emit func(Event)) *engine {
	e := &engine{tel: tel, store: st, limits: store.Limits{}, running: make(map[*Attempt]struct{})}
	if l, ok := st.(store.Limiter); ok {
		e.limits = l.Limits()
	}
	e.limits.Batch = or(e.limits.Batch, 256)
	e.limits.Parallel = or(e.limits.Parallel, 2)
	e.health.turn = make(chan struct{}, 1)
	e.health.ask = prober(st, scope, o.CallTimeout, emit)
	e.health.changed = func(open bool, err error) {
		kind := EventStoreUp
		if open {
			kind = EventStoreDown
		}
		emit(Event{Kind: kind, Err: err})
	}
	e.claims = &batcher[store.ClaimRequest, store.Claim]{
		call:     measured(e, emit, "claim", st.Claim),
		id:       func(q *store.ClaimRequest) store.ID { return q.ID },
		same:     sameClaim,
		timeout:  o.CallTimeout,
		parallel: e.limits.Parallel, max: e.limits.Batch,
		inCall: make(map[store.ID]struct{}),
	}
	e.settles = &batcher[store.Settlement, store.Status]{
		call:     measured(e, emit, "settle", st.Settle),
		id:       func(q *store.Settlement) store.ID { return q.ID },
		timeout:  o.CallTimeout,
		parallel: e.limits.Parallel, max: e.limits.Batch,
		inCall: make(map[store.ID]struct{}),
	}
	tel.observe(e)
	return e
}

// sameClaim reports whether a claim that was waiting when another one of the
// same key was sent may share its answer: only where the answer changes
// nothing and would be the same.
func sameClaim(sent, waiting *store.ClaimRequest, a *store.Claim) bool {
	return a.Err == nil && (a.Verdict == store.Done || a.Verdict == store.Busy) &&
		sent.Fingerprint == waiting.Fingerprint && sent.Parent == waiting.Parent
}

// measured reports every call to the events and to the breaker.
func measured[Q, A any](e *engine, emit func(Event), op string, call func(context.Context, []Q) ([]A, error)) func(context.Context, []Q) ([]A, error) {
	return func(ctx context.Context, qs []Q) ([]A, error) {
		start := time.Now()
		ctx, span := e.tel.startStore(ctx, op, len(qs))
		as, err := call(ctx, qs)
		if err == nil && len(as) != len(qs) {
			err = fmt.Errorf("%w: %d answers to %d items of %s", store.ErrPermanent, len(as), len(qs), op)
		}
		endStore(span, err)
		e.health.report(op == "claim", err)
		emit(Event{Kind: EventStoreCall, Op: op, Batch: len(qs), Duration: time.Since(start), Err: err})
		return as, err
	}
}

// leaseGroup extends the leases of one guard.
func (g *Guard) leaseGroup() *beatGroup {
	lease := g.opt.Lease
	measured := measured(g.engine, func(e Event) { g.emit(context.Background(), e) }, "renew",
		func(ctx context.Context, ls []store.Lease) ([]store.Status, error) {
			return g.store.Renew(ctx, ls, lease)
		})
	renew := func(ls []store.Lease) ([]store.Status, error) {
		ctx, cancel := context.WithTimeout(context.Background(), g.opt.CallTimeout)
		defer cancel()
		return measured(ctx, ls)
	}
	return &beatGroup{
		lasts: lease, margin: min(lease/10, 2*time.Second), max: g.limits.Batch,
		timeout: g.opt.CallTimeout, cause: ErrLeaseLost,
		extend: func(_ context.Context, beats []*beat) []error {
			errs := renewAll(beats, renew)
			g.tel.renewed(errs)
			return errs
		},
		failed: func(b *beat, err error) {
			g.emit(context.Background(), Event{Kind: EventRenewFailed, ID: leaseOf(b).ID, Err: err})
		},
	}
}

// renewFunc is one call of the store, with a timeout of its own.
type renewFunc func([]store.Lease) ([]store.Status, error)

func renewAll(beats []*beat, renew renewFunc) []error {
	slices.SortFunc(beats, func(a, b *beat) int { return leaseOf(a).ID.Compare(leaseOf(b).ID) })
	leases := make([]store.Lease, len(beats))
	for i, b := range beats {
		leases[i] = leaseOf(b)
	}
	errs := make([]error, len(beats))
	statuses, err := renew(leases)
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = renewed(statuses[i])
		}
	}
	if err != nil && len(leases) > 1 {
		renewSingly(leases, errs, renew)
	}
	return errs
}

// renewSingly repeats a failed call item by item, so that one item that the
// store cannot digest does not cost the others their leases. A store that
// fails several times in a row is down.
func renewSingly(leases []store.Lease, errs []error, renew renewFunc) {
	failed := 0
	for i := range leases {
		if failed == opensAfter {
			return
		}
		statuses, err := renew(leases[i : i+1])
		if err != nil {
			failed++
			continue
		}
		failed, errs[i] = 0, renewed(statuses[0])
	}
}

func leaseOf(b *beat) store.Lease { return *b.value.(*store.Lease) }

var errLocked = errors.New("record is locked by a transaction")

func renewed(s store.Status) error {
	switch {
	case s.Err != nil:
		return s.Err
	case s.Code == store.OK, s.Code == store.Already:
		return nil
	case s.Code == store.Locked:
		return errLocked
	}
	return &gone{ErrLeaseLost}
}

// Shutdown stops granting claims and waits until no handler of this Guard, or
// of one that shares its store through Sub, is running. When ctx ends first,
// the running handlers are cancelled with [ErrShutdown] and get until their
// Options.Grace to return; the leases of those that do not are left to expire.
// It returns nil when everything has returned.
func (g *Guard) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	if g.waitIdle(ctx) == nil {
		return nil
	}
	g.mu.Lock()
	running := slices.Collect(maps.Keys(g.running))
	g.mu.Unlock()
	for _, a := range running {
		a.abort(ErrShutdown)
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.opt.Grace)
	defer cancel()
	return g.waitIdle(grace)
}

func (e *engine) waitIdle(ctx context.Context) error {
	e.mu.Lock()
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	idle := e.idle
	e.signalLocked()
	e.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *engine) signalLocked() {
	if len(e.running)+e.late == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// enter registers a run; false when the engine takes no more.
func (e *engine) enter(ctx context.Context, a *Attempt) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closedLocked(ctx) {
		return false
	}
	e.running[a] = struct{}{}
	return true
}

// closed reports whether the engine takes no more claims. A handler that is
// still running may claim what it needs to finish.
func (e *engine) closed(ctx context.Context) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closedLocked(ctx)
}

func (e *engine) closedLocked(ctx context.Context) bool {
	if !e.closing {
		return false
	}
	for r := runFrom(ctx); r != nil; r = r.outer {
		if _, ok := e.running[r.attempt]; ok {
			return false
		}
	}
	return true
}

func (e *engine) leave(a *Attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, a)
	e.signalLocked()
}

// later runs f beside its caller; Shutdown waits for it. f must be bounded.
func (e *engine) later(f func()) {
	e.mu.Lock()
	e.late++
	e.mu.Unlock()
	go func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.late--
			e.signalLocked()
		}()
		f()
	}()
}
