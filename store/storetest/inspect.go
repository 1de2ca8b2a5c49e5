package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
)

// look returns the record of id as the store shows it, nil when it is absent or
// the store cannot show it.
func (e *env) look(id store.ID) *store.Record {
	e.Helper()
	i, ok := e.st.(store.Inspector)
	if !ok {
		return nil
	}
	rec, ok, err := i.Get(e.ctx, id)
	if err != nil {
		e.Fatalf("Get: %v", err)
	}
	if !ok {
		return nil
	}
	return &rec
}

// shown compares a record with what it must be, times excepted. It does nothing
// where the store cannot show its records.
func (e *env) shown(got *store.Record, want store.Record) {
	e.Helper()
	if _, ok := e.st.(store.Inspector); !ok {
		return
	}
	if got == nil {
		e.Fatalf("Get: absent, want %+v", want)
	}
	g := *got
	g.LeaseUntil, g.NotBefore, g.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	same := bytes.Equal(g.Payload, want.Payload)
	g.Payload, want.Payload = nil, nil
	g.ID, want.ID = store.DecodeID(g.ID.Encode()), store.DecodeID(want.ID.Encode())
	if a, b := fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", want); a != b || !same {
		e.Errorf("Get:\n got %s payload %.40q\nwant %s (payloads equal: %t)", a, got.Payload, b, same)
	}
}

func inspectChecks() []check {
	checks := []check{
		{"Get of what is absent", getAbsent},
		{"Get of an effect", getEffect},
		{"List pages", listPages},
		{"List of a state", listStates},
		{"List leaves out what is absent", listAbsent},
		{"List of another scope", listScopes},
		{"reading changes nothing", readingChangesNothing},
	}
	prepared := situations()
	for _, name := range slices.Sorted(maps.Keys(prepared)) {
		checks = append(checks, check{"Get " + name, func(e *env) { getTimes(e, prepared[name](e), name) }})
	}
	return checks
}

func getAbsent(e *env) {
	i := e.inspector()
	if rec, ok, err := i.Get(e.ctx, e.id("never seen")); ok || err != nil {
		e.Errorf("Get = %+v, %t, %v", rec, ok, err)
	}
	p := e.parent()
	if rec, ok, err := i.Get(e.ctx, e.effect(p.ID.Key, "never seen")); ok || err != nil {
		e.Errorf("Get = %+v, %t, %v", rec, ok, err)
	}
}

func getEffect(e *env) {
	e.inspector()
	p := e.parent()
	r := e.effectReq(p, "f")
	e.granted(r)
	e.settled(settlement(r, store.Succeed, "charged"), store.OK)
	e.shown(e.look(r.ID), store.Record{
		ID: r.ID, State: store.StateSucceeded, Fence: 1, Starts: 1,
		Delivery: r.Delivery, Holder: r.Holder, Trace: r.Trace, Payload: []byte("charged"),
	})
}

// getTimes compares the three times of a record with the store's own clock.
func getTimes(e *env, s situation, name string) {
	e.inspector()
	now := e.claim(e.req("clock-" + random())).At
	rec := e.look(s.owner.ID)
	if rec == nil {
		e.Fatal("Get: absent")
	}
	about := func(what string, got time.Time, in time.Duration) {
		if d := got.Sub(now) - in; d > 10*time.Second || d < -30*time.Second {
			e.Errorf("%s = %v, want about %v after %v", what, got, in, now)
		}
	}
	about("ExpiresAt", rec.ExpiresAt, keep)
	if rec.State == store.StateClaimed {
		in := time.Duration(0)
		if !strings.HasPrefix(name, "lease over") {
			in = long
		}
		about("LeaseUntil", rec.LeaseUntil, in)
		if in == 0 && rec.LeaseUntil.After(now) {
			e.Errorf("LeaseUntil = %v is after %v", rec.LeaseUntil, now)
		}
	}
	if strings.HasSuffix(name, "waiting") {
		about("NotBefore", rec.NotBefore, long)
	} else if rec.NotBefore.After(now) {
		e.Errorf("NotBefore = %v, want none", rec.NotBefore)
	}
	if rec.Fence != s.c.Fence || rec.Starts != s.c.Starts || rec.Failures != s.c.Failures || rec.Crashes != s.c.Crashes ||
		rec.Failure != s.c.Failure || rec.Fingerprint != fingerprint(1, 'a') {
		e.Errorf("Get: %+v, want %s", rec, show(s.c))
	}
}

// list collects all pages of q.
func (e *env) list(q store.ListQuery) []store.Record {
	e.Helper()
	i := e.inspector()
	var all []store.Record
	for range 10_000 {
		page, next, err := i.List(e.ctx, q)
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if q.Limit > 0 && len(page) > q.Limit {
			e.Fatalf("List: a page of %d records, limit %d", len(page), q.Limit)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		q.Cursor = next
	}
	e.Fatal("List: the pages do not end")
	return nil
}

// listed fails the check unless all are exactly the records of want, once each.
func (e *env) listed(all []store.Record, want map[store.ID]store.State) {
	e.Helper()
	seen := map[store.ID]bool{}
	for _, rec := range all {
		id := store.DecodeID(rec.ID.Encode())
		if state, ok := want[id]; !ok || state != rec.State || seen[id] {
			e.Errorf("List: %.40q is %s, want %s; seen before: %t", id, rec.State, state, seen[id])
		}
		seen[id] = true
	}
	if len(seen) != len(want) {
		e.Errorf("List: %d records, want %d", len(seen), len(want))
	}
}

// fill makes records of all states, some with effects and with odd keys.
func (e *env) fill(n int) map[store.ID]store.State {
	e.Helper()
	want := map[store.ID]store.State{}
	note := func(id store.ID, s store.State) { want[store.DecodeID(id.Encode())] = s }
	for i := range n {
		r := e.req(fmt.Sprintf("key %03d", i))
		if i < len(odd) && i%2 == 1 {
			r.ID.Key = odd[i]
		}
		e.granted(r)
		if i%3 == 0 {
			f := e.effectReq(r, "f")
			e.granted(f)
			note(f.ID, store.StateClaimed)
		}
		note(r.ID, store.StateClaimed)
		if k := i % 6; k < 5 {
			e.settled(settlement(r, kinds[k], "payload"), store.OK)
			state, _ := after(kinds[k])
			note(r.ID, state)
		}
	}
	return want
}

func listPages(e *env) {
	e.inspector()
	want := e.fill(25)
	for _, limit := range []int{0, 1, 2, 7, len(want), 1000} {
		e.listed(e.list(store.ListQuery{Scope: e.scope, Limit: limit}), want)
	}
	for _, rec := range e.list(store.ListQuery{Scope: e.scope, Limit: 3}) {
		one := e.look(rec.ID)
		if one == nil || fmt.Sprintf("%+v", *one) != fmt.Sprintf("%+v", rec) {
			e.Errorf("List and Get differ:\n%+v\n%+v", rec, one)
		}
	}
}

func listStates(e *env) {
	e.inspector()
	want := e.fill(18)
	for _, state := range []store.State{store.StateClaimed, store.StateReleased, store.StateSucceeded, store.StateFailed} {
		only := map[store.ID]store.State{}
		for id, s := range want {
			if s == state {
				only[id] = s
			}
		}
		e.listed(e.list(store.ListQuery{Scope: e.scope, State: state, Limit: 2}), only)
	}
}

func listAbsent(e *env) {
	e.inspector()
	want := e.fill(6)
	for range 3 {
		expire(e, store.Succeed)
	}
	e.ended() // with an effect
	e.listed(e.list(store.ListQuery{Scope: e.scope, Limit: 2}), want)
}

func listScopes(e *env) {
	e.inspector()
	want := e.fill(6)
	for _, scope := range []string{e.scope + "x", e.scope[:len(e.scope)-1], e.scope + "\x00", "%" + e.scope[1:], "x" + e.scope} {
		r := e.req("k")
		r.ID.Scope = scope
		e.granted(r)
		e.listed(e.list(store.ListQuery{Scope: scope}), map[store.ID]store.State{store.DecodeID(r.ID.Encode()): store.StateClaimed})
	}
	e.listed(e.list(store.ListQuery{Scope: e.scope}), want)
	e.listed(e.list(store.ListQuery{Scope: e.scope + " nobody's"}), nil)
}

func readingChangesNothing(e *env) {
	e.inspector()
	s := first(e)
	a := e.look(s.owner.ID)
	e.list(store.ListQuery{Scope: e.scope})
	a.Payload = append(a.Payload, 'x') // the caller's
	e.answered(s.owner, afresh)
	s = s.settled(e, store.Succeed, false)
	copy(e.look(s.owner.ID).Payload, "XXXX")
	if c := e.verdict(e.req(s.owner.ID.Key), store.Done); !bytes.Equal(c.Payload, s.c.Payload) {
		e.Errorf("payload %q", c.Payload)
	}
}
