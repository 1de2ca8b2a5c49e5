package storetest

import (
	"time"

	"github.com/secondrun/secondrun/store"
)

func statsChecks() []check {
	return []check{
		{"Stats of nothing", func(e *env) { e.counted(store.Stats{}) }},
		{"Stats by state", statsByState},
		{"Stats of other scopes", statsScopes},
		{"Stats of what is past its retention", statsExpired},
		{"Stats of a lease that is over", statsOverdue},
	}
}

// counted compares what the store counts, Expired and Overdue excepted: they
// are physical.
func (e *env) counted(want store.Stats) store.Stats {
	e.Helper()
	c, ok := e.st.(store.Counter)
	if !ok {
		e.Skip("the store does not implement store.Counter")
	}
	got, err := c.Stats(e.ctx, e.scope)
	if err != nil {
		e.Fatalf("Stats: %v", err)
	}
	want.Expired, want.Overdue = got.Expired, got.Overdue
	if got != want {
		e.Errorf("Stats:\n got %+v\nwant %+v", got, want)
	}
	return got
}

func statsByState(e *env) {
	e.counted(store.Stats{})
	first(e)
	p := first(e)
	e.granted(e.effectReq(p.owner, "effect")) // effects are not counted
	for kind, n := range map[store.Kind]int{store.Succeed: 3, store.Fail: 1, store.Retry: 2, store.Release: 1, store.Park: 2} {
		for range n {
			first(e).settled(e, kind, true)
		}
	}
	r := first(e).settled(e, store.Retry, false).owner
	judge := e.req(r.ID.Key)
	judge.MaxFailures = 1
	e.verdict(judge, store.Exhausted)
	got := e.counted(store.Stats{Claimed: 2, Released: 1, Succeeded: 3, Transient: 2, Terminal: 1, Exhausted: 1, Parked: 2})
	if got.Overdue != 0 {
		e.Errorf("Overdue = %v", got.Overdue)
	}
}

func statsScopes(e *env) {
	e.counted(store.Stats{})
	for _, scope := range []string{e.scope + "x", e.scope[:len(e.scope)-1], "x" + e.scope, e.scope + "\x00"} {
		r := e.req("k")
		r.ID.Scope = scope
		e.granted(r)
	}
	e.counted(store.Stats{})
}

func statsExpired(e *env) {
	e.counted(store.Stats{})
	expire(e, store.Succeed)
	first(e)
	e.counted(store.Stats{Claimed: 1})
}

func statsOverdue(e *env) {
	e.counted(store.Stats{})
	s := first(e)
	e.over(s.owner)
	e.pass(50 * time.Millisecond)
	got := e.counted(store.Stats{Claimed: 1})
	if got.Overdue < 50*time.Millisecond || got.Overdue > time.Hour {
		e.Errorf("Overdue = %v, want 50ms at least", got.Overdue)
	}
	s.next(e, true)
	if got := e.counted(store.Stats{Claimed: 1}); got.Overdue != 0 {
		e.Errorf("Overdue after a takeover = %v", got.Overdue)
	}
}
