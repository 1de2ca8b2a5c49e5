package lincheck

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/secondrun/secondrun/store"
)

// Sequences checks random sequences of calls, one after the other, against the
// model step by step, and shrinks what fails. It must run inside a
// [testing/synctest] bubble, and open must return a new store that asks
// [time.Now] for the time: time passes only as a step of the sequence, and so
// leases and retentions often end exactly now.
func Sequences(t rapid.TB, open func() (st store.Store, closed func())) {
	rapid.Check(noDeadline{t}, func(rt *rapid.T) {
		st, closed := open()
		defer closed()
		q := &sequence{
			h:      &history{st: st, scope: "sequence", began: time.Now()},
			states: []state{{}}, claims: map[int][]store.ClaimRequest{},
		}
		rt.Repeat(q.actions())
	})
}

// noDeadline hides that t is a *testing.T, which has no deadline in a bubble
// and must not be asked for it.
type noDeadline struct{ rapid.TB }

// sequence is one sequence on its way. It has one key.
type sequence struct {
	h      *history
	states []state // what the record may be
	claims map[int][]store.ClaimRequest
	count  int
}

func (q *sequence) actions() map[string]func(*rapid.T) {
	out := map[string]func(*rapid.T){
		"claim":  func(t *rapid.T) { q.do(t, q.claim(t, 0)) },
		"again":  func(t *rapid.T) { q.do(t, &op{kind: opClaim, req: q.known(t, 0)}) },
		"effect": q.effect,
		"renew":  q.renew,
		"settle": func(t *rapid.T) { q.settle(t, 0) },
		"settle effect": func(t *rapid.T) {
			q.settle(t, rapid.IntRange(1, effects).Draw(t, "slot"))
		},
		"time passes": func(t *rapid.T) { time.Sleep(ms(t, "passes", 1, 1, 2, 3, 5)) },
	}
	if _, ok := q.h.st.(store.Inspector); ok {
		out["get"] = func(t *rapid.T) { q.do(t, &op{kind: opGet, slot: rapid.IntRange(0, effects).Draw(t, "slot")}) }
	}
	if _, ok := q.h.st.(store.Admin); ok {
		out["admin"] = func(t *rapid.T) {
			q.do(t, &op{kind: rapid.SampledFrom([]kind{opReopen, opForget, opForceRelease}).Draw(t, "admin")})
		}
	}
	if p, ok := q.h.st.(store.Purger); ok {
		out["purge"] = func(t *rapid.T) {
			for cursor, more := "", true; more; more = cursor != "" {
				var err error
				if _, cursor, err = p.Purge(t.Context(), cursor); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return out
}

// do runs o and compares the answer with the model.
func (q *sequence) do(t *rapid.T, o *op) {
	o.base, o.from, o.to = q.h.began, time.Now(), time.Now()
	if err := q.h.send(t.Context(), []*op{o}); err != nil {
		t.Fatal(err)
	}
	t.Log(o)
	var next []state
	for _, s := range q.states {
		next = append(next, step(s, o, Config{})...)
	}
	if len(next) == 0 {
		t.Fatalf("the contract does not allow the last answer; the record was\n%+v", q.states[0])
	}
	q.states = next
}

func ms(t *rapid.T, label string, from ...int) time.Duration {
	return time.Duration(rapid.SampledFrom(from).Draw(t, label)) * time.Millisecond
}

// token returns a new token, the same in every run of a sequence.
func (q *sequence) token() store.Token {
	q.count++
	return store.Token{0: byte(q.count), 1: byte(q.count >> 8), 15: 1}
}

func (q *sequence) claim(t *rapid.T, slot int) *op {
	r := store.ClaimRequest{
		ID: q.h.id(place{0, slot}), Token: q.token(),
		Lease: ms(t, "lease", 2, 1, 5, 10), Retention: ms(t, "retention", 20, 1, 2, 5, 100),
		MaxFailures: rapid.IntRange(0, 2).Draw(t, "failures"), MaxCrashes: rapid.IntRange(0, 2).Draw(t, "crashes"),
		ParkOnTakeover: rapid.IntRange(0, 7).Draw(t, "park") == 7, KeepFailures: rapid.IntRange(0, 3).Draw(t, "keep") == 3,
		Delivery: rapid.SampledFrom([]string{"", "d1", "d2"}).Draw(t, "delivery"), Holder: fmt.Sprint("h", q.count),
	}
	if v := rapid.SampledFrom([]uint16{0, 0, 0, 1, 2}).Draw(t, "fingerprint"); v > 0 && slot == 0 {
		r.Fingerprint = store.Fingerprint{Version: v, Sum: [32]byte{byte(rapid.IntRange(1, 2).Draw(t, "sum"))}}
	}
	if slot > 0 {
		r.Retention, r.MaxFailures, r.MaxCrashes, r.KeepFailures = 0, 0, 0, false
	}
	q.claims[slot] = append(q.claims[slot], r)
	return &op{kind: opClaim, slot: slot, req: r}
}

// known draws an earlier claim, preferably the latest.
func (q *sequence) known(t *rapid.T, slot int) store.ClaimRequest {
	n := len(q.claims[slot])
	if n == 0 {
		t.Skip("no claim yet")
	}
	return q.claims[slot][n-1-rapid.IntRange(0, min(n, 4)-1).Draw(t, "age")]
}

func (q *sequence) effect(t *rapid.T) {
	slot := rapid.IntRange(1, effects).Draw(t, "slot")
	parent := q.known(t, 0)
	o := q.claim(t, slot)
	o.req.Parent = parent.Token
	q.claims[slot][len(q.claims[slot])-1].Parent = parent.Token
	q.do(t, o)
}

func (q *sequence) renew(t *rapid.T) {
	slot := rapid.IntRange(0, effects).Draw(t, "slot")
	r := q.known(t, slot)
	q.do(t, &op{kind: opRenew, slot: slot, lease: store.Lease{ID: r.ID, Token: r.Token}, d: ms(t, "d", 1, 2, 5)})
}

func (q *sequence) settle(t *rapid.T, slot int) {
	r := q.known(t, slot)
	s := store.Settlement{
		ID: r.ID, Token: r.Token, Payload: fmt.Append(nil, "p", q.count),
		Kind:      rapid.SampledFrom([]store.Kind{store.Succeed, store.Fail, store.Retry, store.Release, store.Park}).Draw(t, "kind"),
		NotBefore: ms(t, "wait", 0, 1, 2), Retention: ms(t, "retention", 20, 1, 2, 5),
	}
	if slot > 0 {
		s.Retention = 0
	}
	q.do(t, &op{kind: opSettle, slot: slot, settlement: s})
}
