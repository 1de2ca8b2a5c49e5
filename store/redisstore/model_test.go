package redisstore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
	"github.com/secondrun/secondrun/store/rules"
)

// model is what the rules say that the records of one key are.
type model struct {
	parent  rules.Record
	effects map[string]*rules.Record
}

func (m *model) record(id store.ID) *rules.Record {
	if id.Effect == "" {
		return &m.parent
	}
	if m.effects[id.Effect] == nil {
		m.effects[id.Effect] = &rules.Record{}
	}
	return m.effects[id.Effect]
}

func (m *model) claim(r *store.ClaimRequest, now time.Time) store.Claim {
	if m.parent.Absent(now) {
		m.parent, m.effects = rules.Record{}, map[string]*rules.Record{}
	}
	c, _ := rules.Claim(m.record(r.ID), &m.parent, r, now)
	return c
}

// TestModel compares every answer with what package rules computes for the
// instant at which the store says it decided. Leases, waits and retentions end
// all the time, so that boundaries are met too.
func TestModel(t *testing.T) {
	s := open(t, standalone(t), nil)
	for seed := range testenv.Size(40, 4000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &walk{t: t, s: s, rand: rand.New(rand.NewPCG(uint64(seed), 1)), key: fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())} //nolint:gosec // a seed
			w.m.effects = map[string]*rules.Record{}
			for range 8 {
				w.tokens = append(w.tokens, store.NewToken())
			}
			for range 150 {
				w.step()
			}
		})
	}
}

type walk struct {
	t      *testing.T
	s      *redisstore.Store
	m      model
	rand   *rand.Rand
	key    string
	tokens []store.Token
}

func (w *walk) token() store.Token { return w.tokens[w.rand.IntN(len(w.tokens))] }
func (w *walk) chance(n int) bool  { return w.rand.IntN(n) == 0 }
func (w *walk) ms(n int) time.Duration {
	return time.Duration(1+w.rand.IntN(n*1000)) * time.Microsecond
}

func (w *walk) id() store.ID {
	id := store.ID{Scope: "model", Key: w.key}
	if w.chance(3) {
		id.Effect = []string{"charge", "email"}[w.rand.IntN(2)]
	}
	return id
}

func (w *walk) step() {
	w.t.Helper()
	switch w.rand.IntN(8) {
	case 0, 1, 2, 3:
		w.claim()
	case 4:
		w.renew()
	case 5, 6:
		w.settle()
	case 7:
		time.Sleep(w.ms(4)) // the server's clock must pass
	}
}

func (w *walk) claim() {
	w.t.Helper()
	r := store.ClaimRequest{
		ID: w.id(), Token: w.token(), Lease: w.ms(8), Retention: w.ms(16),
		MaxFailures: w.rand.IntN(4), MaxCrashes: w.rand.IntN(4),
		ParkOnTakeover: w.chance(6), KeepFailures: w.chance(6),
		Holder: fmt.Sprint("h", w.rand.IntN(3)), Delivery: []string{"", "d1", "d2"}[w.rand.IntN(3)],
	}
	if w.chance(2) {
		r.Trace = fmt.Sprintf("00-%032x-%016x-01", w.rand.Uint64(), w.rand.Uint64())
	}
	if w.chance(3) {
		r.Fingerprint = store.Fingerprint{Version: uint16(1 + w.rand.IntN(2))} //nolint:gosec // 1 or 2
		r.Fingerprint.Sum[0] = byte(w.rand.IntN(2))                            //nolint:gosec // 0 or 1
	}
	if r.ID.Effect != "" {
		r.Retention, r.Parent = 0, w.m.parent.Token
		if w.chance(5) || r.Parent.IsZero() {
			r.Parent = w.token()
		}
	}
	out, err := w.s.Claim(w.t.Context(), []store.ClaimRequest{r})
	if err != nil || out[0].Err != nil {
		w.t.Fatal(err, out)
	}
	want := w.m.claim(&r, out[0].At)
	if r.ID.Effect != "" && w.m.parent.Absent(out[0].At) {
		want = store.Claim{Verdict: store.Refused, At: out[0].At}
	}
	got := out[0]
	if !bytes.Equal(got.Payload, want.Payload) || got.At != want.At {
		w.t.Fatalf("claim %+v\n got %+v\nwant %+v", r, got, want)
	}
	got.Payload, want.Payload = nil, nil
	if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); a != b {
		w.t.Fatalf("claim %+v\n got %s\nwant %s", r, a, b)
	}
}

func (w *walk) renew() {
	w.t.Helper()
	l, d := store.Lease{ID: w.id(), Token: w.token()}, w.ms(8)
	if w.chance(2) {
		l.Token = w.m.record(l.ID).Token
	}
	out, err := w.s.Renew(w.t.Context(), []store.Lease{l}, d)
	if err != nil {
		w.t.Fatal(err)
	}
	want, _ := rules.Renew(w.m.record(l.ID), &w.m.parent, &l, d, out[0].At)
	if out[0] != want {
		w.t.Fatalf("renew: got %+v, want %+v", out[0], want)
	}
}

func (w *walk) settle() {
	w.t.Helper()
	st := store.Settlement{
		ID: w.id(), Token: w.token(), Kind: store.Kind(1 + w.rand.IntN(5)), //nolint:gosec // 1 to 5
		Payload: []byte(fmt.Sprint("p", w.rand.IntN(9))), Retention: w.ms(16),
	}
	if w.chance(2) {
		st.Token = w.m.record(st.ID).Token
	}
	if st.Token.IsZero() {
		st.Token = w.token()
	}
	if w.chance(2) {
		st.NotBefore = w.ms(5)
	}
	out, err := w.s.Settle(w.t.Context(), []store.Settlement{st})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.m.parent.Absent(out[0].At) {
		w.m.parent, w.m.effects = rules.Record{}, map[string]*rules.Record{}
	}
	want, _ := rules.Settle(w.m.record(st.ID), &w.m.parent, &st, out[0].At)
	if out[0] != want {
		w.t.Fatalf("settle %+v: got %+v, want %+v", st, out[0], want)
	}
}
