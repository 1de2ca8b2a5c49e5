package secondrun

import (
	"context"
	"errors"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// While a key format changes, consumers of the old and of the new format run
// side by side. The new ones claim every message under both keys, in one call
// of the store, run only if both are granted, and settle both alike: whoever
// looks under either key finds the claim or the outcome. See
// [keyfn.Evolution].
//
// The attempt's own claim is the one in the current format. The others are its
// twins.
type twin struct {
	version int
	id      store.ID
	req     store.ClaimRequest
	claim   store.Claim
	sent    time.Time
	err     error
	lease   store.Lease
	beat    *beat
}

// WithEvolution returns a copy of h that derives its keys from e, which takes
// the place of the key function: use it while consumers with an older key
// format are still running. The scope of each format takes the place of the
// Guard's; segments that were added by [Guard.Sub] are kept.
//
// It costs a record, a claim and a settlement more for every older format.
// Effects, and [EffectKey], belong to the newest of the older formats while it
// lasts, so that old and new consumers share them. It panics when e is nil.
func (h *Handler[M]) WithEvolution(e *keyfn.Evolution) *Handler[M] {
	if e == nil {
		panic("secondrun: WithEvolution: the evolution is nil")
	}
	p := *h.p
	p.evolution = e
	return &Handler[M]{&p}
}

// WithEvolution is [Handler.WithEvolution].
func (h *ResultHandler[M, R]) WithEvolution(e *keyfn.Evolution) *ResultHandler[M, R] {
	return &ResultHandler[M, R]{*h.Handler.WithEvolution(e)}
}

// evolve derives the keys of all formats and prepares the twins.
func (a *Attempt) evolve(m keyfn.Message, fp store.Fingerprint) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = keyPanic(v)
		}
	}()
	keys, err := a.p.evolution.Keys(m)
	if err != nil {
		return err
	}
	a.id = a.g.identify(keys.Current.Scope+a.g.segments, keys.Current.Text)
	a.req = a.g.request(a.id, a.d, fp)
	for _, k := range keys.Claim {
		id := a.g.identify(k.Scope+a.g.segments, k.Text)
		if id == a.id {
			continue
		}
		t := &twin{version: k.Version, id: id, req: a.g.request(id, a.d, fp)}
		a.twins = append(a.twins, t)
	}
	return nil
}

// ids are all IDs that the attempt claims.
func (a *Attempt) ids() []store.ID {
	ids := make([]store.ID, 0, 1+len(a.twins))
	ids = append(ids, a.id)
	for _, t := range a.twins {
		ids = append(ids, t.id)
	}
	return ids
}

// elder is the twin that effects belong to; nil without twins.
func (a *Attempt) elder() *twin {
	var elder *twin
	for _, t := range a.twins {
		if elder == nil || t.version > elder.version {
			elder = t
		}
	}
	return elder
}

// unite makes one answer of those to the attempt's claims: granted if all are.
// Otherwise what was granted is given back, and an outcome under any key
// answers for all of them. A success is recorded under all of them.
func (a *Attempt) unite(err error) error {
	claims := []asked{{a: a, req: &a.req}}
	answer, best := a.claim, rank(&a.claim, err)
	answers := []*store.Claim{&a.claim}
	for _, t := range a.twins {
		claims, answers = append(claims, asked{a: a, twin: t, req: &t.req}), append(answers, &t.claim)
		if r := rank(&t.claim, t.err); r < best {
			answer, err, best = t.claim, t.err, r
		}
	}
	if best == rankGranted {
		return nil
	}
	for i, x := range claims {
		switch {
		case answers[i].Verdict != store.Granted || answers[i].Err != nil:
		case answer.Verdict == store.Done:
			a.g.adopt(*x.req, answer.Payload)
		default:
			a.g.giveBackClaim(*x.req, answers[i].Takeover)
		}
	}
	a.claim = answer
	return err
}

const rankGranted = 5

// rank orders the answers that can be given for all claims: the lowest counts.
func rank(c *store.Claim, err error) int {
	switch {
	case err != nil:
		return 3
	case c.Verdict == store.Done:
		return 0
	case c.Verdict == store.Granted:
		return rankGranted
	case c.Verdict == store.Busy, c.Verdict == store.Refused:
		return 2
	}
	return 1 // failed, exhausted, conflict
}

// adopt records a success that was found under another key, so that it is not
// forgotten when that key's format is given up. If it fails, the next delivery
// does it.
func (g *Guard) adopt(q store.ClaimRequest, payload []byte) {
	g.settleOnce(store.Settlement{ID: q.ID, Token: q.Token, Kind: store.Succeed, Payload: payload, Retention: g.opt.Retention})
}

// giveBackClaim releases a claim that the attempt does without. One over which
// the outside world would have to be asked is left to expire.
func (g *Guard) giveBackClaim(q store.ClaimRequest, takeover bool) {
	if takeover && g.opt.Takeover.Probe != nil {
		return
	}
	g.release(q)
}

func (a *Attempt) dropTwins() {
	for _, t := range a.twins {
		a.g.beats.stop(t.beat)
	}
}

// settleTwins settles the twins as the attempt itself. It returns ErrLeaseLost
// when one of them was taken over, or why the store did not answer.
func (a *Attempt) settleTwins(ctx context.Context, s store.Settlement, deadline time.Time) error {
	for _, t := range a.twins {
		s.ID, s.Token = t.id, t.req.Token
		st, err := a.g.settle(ctx, s, deadline)
		if err != nil {
			return err
		}
		if st.Code == store.Lost {
			return ErrLeaseLost
		}
	}
	return nil
}

// recordTwins settles the twins before the attempt's own claim: every consumer
// looks under their keys. When one is lost, or not answered, nothing more may
// be recorded, and decided says what to do instead.
func (a *Attempt) recordTwins(ctx context.Context, o *outcome, s store.Settlement, deadline time.Time) (d Decision, decided bool) {
	err := a.settleTwins(ctx, s, deadline)
	switch {
	case err == nil:
		return d, false
	case errors.Is(err, ErrLeaseLost):
		s.Kind, s.Payload, s.NotBefore = store.Release, nil, 0
		_, _ = a.g.settle(ctx, s, deadline) // best effort: the lease ends anyway
		return a.decideSettled(o, store.Status{Code: store.Lost}), true
	default:
		return a.unrecorded(ctx, o, err), true
	}
}

// followTransaction settles the twins as a transaction of the handler has
// settled the attempt's own claim.
func (a *Attempt) followTransaction(ctx context.Context, o *outcome, s store.Settlement, d Decision, deadline time.Time) Decision {
	if d.Action == Ack {
		a.shared.mu.Lock()
		s.Kind, s.Payload, s.NotBefore, s.Retention = store.Succeed, a.shared.committed, 0, a.g.opt.Retention
		a.shared.mu.Unlock()
	}
	if other, decided := a.recordTwins(ctx, o, s, deadline); decided && d.Action != Ack {
		return other
	}
	return d
}
