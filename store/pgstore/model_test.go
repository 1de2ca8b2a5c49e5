package pgstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// TestModel sends random operations on two keys with two effects each and
// compares every answer, and every record after it, with what package rules
// computes for the instant that the server says it has decided at.
func TestModel(t *testing.T) {
	for _, size := range []int{1, 3, 6} { // singles, a batch of singles, the statement for many
		t.Run(fmt.Sprintf("batch of %d", size), func(t *testing.T) {
			st := fresh(t)
			m := &model{T: t, st: st, rnd: rand.New(rand.NewPCG(uint64(size), 7)), recs: map[store.ID]*rules.Record{}}
			for range testenv.Size(600, 20_000) {
				m.step(size)
			}
		})
	}
}

type model struct {
	*testing.T
	st   *Store
	rnd  *rand.Rand
	recs map[store.ID]*rules.Record
	log  []string
}

func pick[V any](r *rand.Rand, of ...V) V { return of[r.IntN(len(of))] }

// ids returns n distinct sorted IDs.
func (m *model) ids(n int) []store.ID {
	all := []store.ID{
		{Scope: "s", Key: "a"},
		{Scope: "s", Key: "a", Effect: "e"},
		{Scope: "s", Key: "a", Effect: "f\x00"},
		{Scope: "s", Key: "b"},
		{Scope: "s", Key: "b", Effect: "e"},
		{Scope: "s", Key: "b", Effect: "f\x00"},
	}
	for len(all) > n {
		k := m.rnd.IntN(len(all))
		all = append(all[:k], all[k+1:]...)
	}
	return all
}

func (m *model) rec(id store.ID) *rules.Record {
	if m.recs[id] == nil {
		m.recs[id] = &rules.Record{}
	}
	return m.recs[id]
}

func (m *model) parent(id store.ID) *rules.Record {
	if id.Effect == "" {
		return nil
	}
	return m.rec(id.Parent())
}

// tok is mostly a token of the record, its parent or its judge, else any other.
func (m *model) tok(id store.ID) store.Token {
	r := m.rec(id)
	t := pick(m.rnd, r.Token, r.Token, r.Judge, store.Token{1}, store.Token{2}, store.NewToken())
	if t.IsZero() {
		return store.Token{3}
	}
	return t
}

func (m *model) step(size int) {
	switch m.rnd.IntN(12) {
	case 0, 1, 2, 3, 4:
		m.claim(size)
	case 5, 6, 7, 8:
		m.settle(size)
	case 9, 10:
		m.renew(size)
	default:
		if m.rnd.IntN(4) == 0 {
			m.purge()
		} else {
			m.admin()
		}
	}
	m.compare()
}

func (m *model) duration() time.Duration {
	return pick(m.rnd, time.Microsecond, time.Microsecond, 1500*time.Microsecond, time.Hour, time.Hour)
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
	if len(m.log) > 12 {
		m.log = m.log[1:]
	}
}

func (m *model) failf(format string, args ...any) {
	m.Helper()
	for _, l := range m.log {
		m.Log(l)
	}
	m.Fatalf(format, args...)
}

func (m *model) claim(size int) {
	var reqs []store.ClaimRequest
	for _, id := range m.ids(size) {
		r := store.ClaimRequest{
			ID: id, Token: m.tok(id), Lease: m.duration(), Retention: m.duration(),
			MaxFailures: m.rnd.IntN(4), MaxCrashes: m.rnd.IntN(4),
			ParkOnTakeover: m.rnd.IntN(4) == 0, KeepFailures: m.rnd.IntN(4) == 0,
			Fingerprint: pick(m.rnd, store.Fingerprint{}, store.Fingerprint{Version: 1}, store.Fingerprint{Version: 1},
				store.Fingerprint{Version: 1, Sum: [32]byte{1}}, store.Fingerprint{Version: 2}),
			Delivery: pick(m.rnd, "", "d1", "d\x00\xff2"), Holder: pick(m.rnd, "", "h\xfe\x00"), Trace: pick(m.rnd, "", "t"),
		}
		if id.Effect != "" {
			r.Parent = pick(m.rnd, m.parent(id).Token, m.parent(id).Token, store.Token{9})
		}
		reqs = append(reqs, r)
	}
	got, err := m.st.Claim(m.Context(), reqs)
	if err != nil {
		m.failf("claim: %v", err)
	}
	before := m.copy()
	for _, i := range order(size, func(i int) time.Time { return got[i].At }) {
		r := reqs[i]
		parent := m.parentIn(before, r.ID, size)
		want, _ := rules.Claim(m.rec(r.ID), parent, &r, got[i].At)
		m.lives(before, r.ID, got[i].At, want.Verdict == store.Granted && want.Fence == 1)
		m.note("claim %+v: %+v", r, got[i])
		if !same(got[i], want) {
			m.failf("claim of %q:\n got %+v\nwant %+v", r.ID, got[i], want)
		}
	}
}

// order returns the items of a call in the order in which they were decided.
func order(n int, at func(int) time.Time) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return at(a).Compare(at(b)) })
	return out
}

// copy returns the records as they are: one statement sees what was there
// before it.
func (m *model) copy() map[store.ID]*rules.Record {
	out := map[store.ID]*rules.Record{}
	for id, r := range m.recs {
		c := *r
		out[id] = &c
	}
	return out
}

// parentIn returns the parent as an item of a batch sees it: one statement has
// one snapshot, statements of their own see what those before them did.
func (m *model) parentIn(before map[store.ID]*rules.Record, id store.ID, size int) *rules.Record {
	if size > maxSingles && id.Effect != "" {
		return before[id.Parent()]
	}
	return m.parent(id)
}

// lives removes the effects of a record that has begun a new life.
func (m *model) lives(before map[store.ID]*rules.Record, id store.ID, now time.Time, first bool) {
	b := before[id]
	if id.Effect != "" || !first || b != nil && !b.Absent(now) {
		return
	}
	for other, r := range m.recs {
		if other.Effect != "" && other.Parent() == id {
			*r = rules.Record{}
		}
	}
}

func same(got, want store.Claim) bool {
	if got.Verdict == store.Conflict {
		got.Failure = want.Failure
	}
	ok := bytes.Equal(got.Payload, want.Payload)
	got.Payload, want.Payload = nil, nil
	return ok && reflect.DeepEqual(got, want)
}

func (m *model) settle(size int) {
	var in []store.Settlement
	for _, id := range m.ids(size) {
		in = append(in, store.Settlement{
			ID: id, Token: m.tok(id), Kind: store.Kind(1 + m.rnd.IntN(5)), Payload: pick(m.rnd, nil, []byte{}, []byte("p\x00")),
			NotBefore: pick(m.rnd, 0, m.duration()), Retention: m.duration(),
		})
	}
	got, err := m.st.Settle(m.Context(), in)
	if err != nil {
		m.failf("settle: %v", err)
	}
	before := m.copy()
	for _, i := range order(size, func(i int) time.Time { return got[i].At }) {
		s := in[i]
		parent := m.parentIn(before, s.ID, size)
		want, changed := rules.Settle(m.rec(s.ID), parent, &s, got[i].At)
		m.lives(before, s.ID, got[i].At, want.Code == store.Absent && changed)
		m.note("settle %+v: %+v", s, got[i])
		if !reflect.DeepEqual(got[i], want) {
			m.failf("settle of %q:\n got %+v\nwant %+v", s.ID, got[i], want)
		}
	}
}

func (m *model) renew(size int) {
	var in []store.Lease
	for _, id := range m.ids(size) {
		in = append(in, store.Lease{ID: id, Token: m.tok(id)})
	}
	d := m.duration()
	got, err := m.st.Renew(m.Context(), in, d)
	if err != nil {
		m.failf("renew: %v", err)
	}
	before := m.copy()
	for i, l := range in {
		want, _ := rules.Renew(m.rec(l.ID), before[l.ID.Parent()], &l, d, got[i].At)
		m.note("renew %+v %v: %+v", l, d, got[i])
		if !reflect.DeepEqual(got[i], want) {
			m.failf("renew of %q:\n got %+v\nwant %+v", l.ID, got[i], want)
		}
	}
}

// purge must not be seen.
func (m *model) purge() {
	m.note("purge")
	for cursor := ""; ; {
		_, next, err := m.st.Purge(m.Context(), cursor)
		if err != nil {
			m.failf("purge: %v", err)
		}
		if cursor = next; next == "" {
			return
		}
	}
}

func (m *model) admin() {
	id := m.ids(1)[0]
	r, parent := m.rec(id), m.parent(id)
	now := time.Now()
	for _, x := range []*rules.Record{r, parent} { // the instant is the server's: nothing may end just now
		if x != nil && x.State != 0 && (x.ExpiresAt.Sub(now).Abs() < time.Second || x.LeaseEnd.Sub(now).Abs() < time.Second) {
			return
		}
	}
	absent := r.State == 0 || parent == nil && r.Absent(now) || parent != nil && parent.Absent(now)
	var ok, want bool
	var err error
	switch m.rnd.IntN(3) {
	case 0:
		ok, err = m.st.Reopen(m.Context(), id, "test")
		if want = !absent && r.State == store.StateFailed; want {
			m.reopen(id)
		}
	case 1:
		ok, err = m.st.Forget(m.Context(), id, "test")
		if want = !absent; want {
			m.forget(id)
		}
	default:
		ok, err = m.st.ForceRelease(m.Context(), id, "test")
		if want = !absent && r.State == store.StateClaimed; want {
			release(r)
		}
	}
	m.note("admin %v: %v", id, ok)
	if err != nil || ok != want {
		m.failf("admin of %q: %v %v, want %v", id, ok, err, want)
	}
}

func release(r *rules.Record) {
	r.State, r.Failure, r.Token, r.Judge, r.NotBefore, r.Payload = store.StateReleased, 0, store.Token{}, store.Token{}, time.Time{}, nil
}

func (m *model) reopen(id store.ID) {
	for other, r := range m.recs {
		if (other == id || id.Effect == "" && other.Parent() == id) && r.State == store.StateFailed {
			release(r)
			r.Failures, r.Crashes = 0, 0
		}
	}
}

func (m *model) forget(id store.ID) {
	for other, r := range m.recs {
		if other == id || id.Effect == "" && other.Parent() == id {
			*r = rules.Record{}
		}
	}
}

// compare looks at every record.
func (m *model) compare() {
	m.Helper()
	for id, r := range m.recs {
		scope, key, effect := id.Encode()
		got, live, now, err := scanRecord(m.st.work.QueryRow(m.Context(), m.st.sql.get, scope, key, effect))
		missing := err != nil
		parent := m.parent(id)
		if missing {
			now = time.Now().Add(-time.Second)
		}
		absent := r.State == 0 || id.Effect == "" && r.Absent(now) || id.Effect != "" && parent.Absent(now)
		switch {
		case missing && (absent || r.Absent(time.Now().Add(time.Second)) || parent != nil && parent.Absent(time.Now().Add(time.Second))):
			continue
		case missing:
			m.failf("record %q is missing: %v, want %+v", id, err, r)
		case live == absent:
			m.failf("record %q: live %v, want %+v", id, live, r)
		case live && (got.State != r.State || got.Failure != r.Failure || got.Fence != r.Fence || got.Starts != r.Starts ||
			got.Failures != r.Failures || got.Crashes != r.Crashes || got.Fingerprint != r.Fingerprint ||
			got.Delivery != r.Delivery || got.Holder != r.Holder || got.Trace != r.Trace || !bytes.Equal(got.Payload, r.Payload) ||
			id.Effect == "" && !got.ExpiresAt.Equal(r.ExpiresAt) || r.State == store.StateClaimed && !got.LeaseUntil.Equal(r.LeaseEnd)):
			m.failf("record %q:\n got %+v\nwant %+v", id, got, r)
		}
	}
}
