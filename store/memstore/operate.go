package memstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

const (
	defaultPage = 100
	maxPage     = 1000
	purgeStep   = 1000
)

// Get implements [store.Inspector]. The only error is that of ctx.
func (s *Store) Get(ctx context.Context, id store.ID) (store.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, false, err
	}
	k, name := s.split(id)
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, r := sh.find(k, name, sh.wheel.now())
	if r == nil {
		return store.Record{}, false, nil
	}
	return e.show(name, r), true, nil
}

// find returns the record that is not absent, and its entry.
func (sh *shard) find(k key, name string, now time.Time) (*entry, *rules.Record) {
	e := sh.lookup(k)
	if e == nil || e.rec.Absent(now) {
		return nil, nil
	}
	if name == "" {
		return e, &e.rec
	}
	for _, f := range e.effects {
		if f.name == name && f.rec.State != 0 {
			return e, &f.rec
		}
	}
	return nil, nil
}

// show returns what operators see of r, which is the record of e or of its
// effect. An effect is kept as long as its parent, and shows that.
func (e *entry) show(name string, r *rules.Record) store.Record {
	rec := store.Record{
		ID: store.DecodeID(e.key.scope, e.key.key, name), State: r.State, Failure: r.Failure, Fence: r.Fence,
		Starts: r.Starts, Failures: r.Failures, Crashes: r.Crashes, NotBefore: r.NotBefore, ExpiresAt: e.rec.ExpiresAt,
		Fingerprint: r.Fingerprint, Delivery: r.Delivery, Holder: r.Holder, Trace: r.Trace, Payload: clone(r.Payload),
	}
	if r.State == store.StateClaimed {
		rec.LeaseUntil = r.LeaseEnd
	}
	return rec
}

// List implements [store.Inspector]. Records come in the order of their encoded
// keys and effects. Every page looks at all records of the store, one shard at
// a time: it is for people, not for loops. The only error is that of ctx.
func (s *Store) List(ctx context.Context, q store.ListQuery) (page []store.Record, next string, err error) {
	scope, _, _ := store.ID{Scope: q.Scope}.Encode()
	limit := cmp.Or(max(q.Limit, 0), defaultPage)
	limit = min(limit, maxPage)
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		page = s.shards[i].list(page, scope, q.State, q.Cursor)
		if len(page) > limit {
			slices.SortFunc(page, byCursor)
			clear(page[limit+1:])
			page = page[:limit+1] // one more tells whether there is another page
		}
	}
	slices.SortFunc(page, byCursor)
	if len(page) > limit {
		page = page[:limit]
		next = cursorOf(page[limit-1])
	}
	return page, next, nil
}

// list appends the records of a scope and a state behind cursor.
func (sh *shard) list(page []store.Record, scope string, state store.State, cursor string) []store.Record {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.wheel.now()
	add := func(e *entry, name string, r *rules.Record) {
		if (state == 0 || r.State == state) && (cursor == "" || cursor < e.key.key+sep+name) {
			page = append(page, e.show(name, r))
		}
	}
	for _, e := range sh.entries {
		for ; e != nil; e = e.same {
			if e.key.scope != scope || e.rec.Absent(now) {
				continue
			}
			add(e, "", &e.rec)
			for _, f := range e.effects {
				add(e, f.name, &f.rec)
			}
		}
	}
	return page
}

// sep is between the key and the effect of a cursor. It is less than all that
// encoded parts hold, so that cursors sort like keys and effects.
const sep = "\x00"

func cursorOf(r store.Record) string {
	_, k, effect := r.ID.Encode()
	return k + sep + effect
}

func byCursor(a, b store.Record) int { return strings.Compare(cursorOf(a), cursorOf(b)) }

// Purge implements [store.Purger]. A step frees up to a thousand records of one
// shard; the cursor is the shard's number. Records may be freed only when they
// have been absent for an eighth of their retention. Only needed by who wants
// memory back without new claims. Errors are that of ctx and a cursor that Purge
// did not return.
func (s *Store) Purge(ctx context.Context, cursor string) (removed int, next string, err error) {
	if err := ctx.Err(); err != nil {
		return 0, "", err
	}
	n, err := strconv.Atoi(cmp.Or(cursor, "0"))
	if err != nil || n < 0 || n >= shards {
		return 0, "", errCursor
	}
	sh := &s.shards[n]
	sh.mu.Lock()
	removed, more := sh.sweep(sh.wheel.now(), purgeStep)
	sh.mu.Unlock()
	switch {
	case more:
		return removed, strconv.Itoa(n), nil
	case n == shards-1:
		return removed, "", nil
	default:
		return removed, strconv.Itoa(n + 1), nil
	}
}

var (
	errCursor = errors.New("memstore: not a cursor of Purge")
	errReason = errors.New("memstore: a reason is required")
)

// Reopen implements [store.Admin]. Errors are that of ctx and an empty reason.
func (s *Store) Reopen(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, "reopen", id, reason, func(_ *shard, e *entry, r *rules.Record) bool {
		if r.State != store.StateFailed {
			return false
		}
		reopen(r)
		if r == &e.rec {
			for _, f := range e.effects {
				if f.rec.State == store.StateFailed {
					reopen(&f.rec)
				}
			}
		}
		return true
	})
}

// Forget implements [store.Admin]. Errors are that of ctx and an empty reason.
func (s *Store) Forget(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, "forget", id, reason, func(sh *shard, e *entry, r *rules.Record) bool {
		if r == &e.rec {
			sh.wheel.drop(e)
			sh.remove(e)
			return true
		}
		e.effects = slices.DeleteFunc(e.effects, func(f *effect) bool { return r == &f.rec })
		return true
	})
}

// ForceRelease implements [store.Admin]. Errors are that of ctx and an empty
// reason.
func (s *Store) ForceRelease(ctx context.Context, id store.ID, reason string) (bool, error) {
	return s.change(ctx, "force-release", id, reason, func(_ *shard, _ *entry, r *rules.Record) bool {
		if r.State != store.StateClaimed {
			return false
		}
		release(r)
		return true
	})
}

// change lets f change the record of id, if there is one, and reports it.
func (s *Store) change(
	ctx context.Context, action string, id store.ID, reason string, f func(*shard, *entry, *rules.Record) bool,
) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if reason == "" {
		return false, errReason
	}
	k, name := s.split(id)
	sh := s.shard(k)
	sh.mu.Lock()
	now := sh.wheel.now()
	e, r := sh.find(k, name, now)
	if r == nil {
		sh.mu.Unlock()
		return false, nil
	}
	before := e.show(name, r)
	changed := f(sh, e, r)
	sh.mu.Unlock()
	if changed && s.audit != nil {
		s.audit(store.Audit{Action: action, ID: id, Reason: reason, Before: before, At: now})
	}
	return changed, nil
}

// release makes r grantable at once and its last owner a stranger.
func release(r *rules.Record) {
	r.State, r.Failure = store.StateReleased, 0
	r.Token, r.Judge = store.Token{}, store.Token{}
	r.LeaseEnd, r.NotBefore = time.Time{}, time.Time{}
	r.Payload = nil
}

func reopen(r *rules.Record) {
	release(r)
	r.Failures, r.Crashes = 0, 0
}
