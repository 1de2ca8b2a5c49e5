package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

func sequenceChecks() []check {
	return []check{
		{"random operations are answered as the rules say", func(e *env) {
			for range rounds(40, 1500) {
				runSequence(e, rand.Uint64()) //nolint:gosec // no secret
			}
		}},
	}
}

// sequence is a random history of one key and two effects beside the model of
// what a store must answer. The model's clock is the store's own, as the store
// tells it with every answer.
type sequence struct {
	*env
	rnd    *rand.Rand
	key    string
	model  map[string]*rules.Record // by effect; "" is the parent
	tokens []store.Token
	log    []string
	vague  bool // the clock was too near to an end to know the answer
}

func runSequence(e *env, seed uint64) {
	e.Helper()
	s := &sequence{
		env: e, rnd: rand.New(rand.NewPCG(seed, 1)), key: fmt.Sprintf("key-%x", seed), //nolint:gosec // repeatable
		model: map[string]*rules.Record{},
	}
	for range 4 {
		s.tokens = append(s.tokens, store.NewToken())
	}
	for step := 0; step < 30 && !s.vague; step++ {
		var diff string
		switch s.rnd.IntN(10) {
		case 0, 1, 2, 3:
			diff = s.claimStep()
		case 4, 5:
			diff = s.renewStep()
		case 6, 7, 8:
			diff = s.settleStep()
		default:
			if s.rnd.IntN(4) == 0 {
				s.log = append(s.log, "wait")
				e.pass(s.short() + 2*time.Millisecond)
			}
		}
		if diff != "" && !s.vague {
			e.Fatalf("seed %#x:\n%s\n%s", seed, strings.Join(s.log, "\n"), diff)
		}
	}
}

// short is a duration that some steps wait for.
func (s *sequence) short() time.Duration { return 20 * time.Millisecond }

func (s *sequence) pick(d ...time.Duration) time.Duration { return d[s.rnd.IntN(len(d))] }

func (s *sequence) effectName() string {
	return []string{"", "", "", "charge", "receipt"}[s.rnd.IntN(5)]
}

func (s *sequence) token() store.Token {
	t := s.tokens[s.rnd.IntN(len(s.tokens))]
	if s.rnd.IntN(6) == 0 {
		t = store.NewToken()
		s.tokens[s.rnd.IntN(len(s.tokens))] = t
	}
	return t
}

// name spells a token in the log, without giving it away.
func name(t store.Token) string { return fmt.Sprintf("%x", [16]byte(t))[:4] }

// record returns the model of the effect and of its parent, nil for the parent
// itself.
func (s *sequence) record(effect string) (r, parent *rules.Record) {
	r = s.at(effect)
	if effect != "" {
		parent = s.at("")
	}
	return r, parent
}

func (s *sequence) at(effect string) *rules.Record {
	if s.model[effect] == nil {
		s.model[effect] = &rules.Record{}
	}
	return s.model[effect]
}

// newLife forgets the effects when their parent was absent and is not any more.
func (s *sequence) newLife(effect string, wasAbsent, changed bool) {
	if effect == "" && wasAbsent && changed {
		for name := range s.model {
			if name != "" {
				delete(s.model, name)
			}
		}
	}
}

// near sets vague when an end is so near that a store with another precision
// may have decided otherwise.
func (s *sequence) near(now time.Time) {
	for _, r := range s.model {
		for _, end := range []time.Time{r.LeaseEnd, r.NotBefore, r.ExpiresAt} {
			if d := end.Sub(now); d > -2*time.Millisecond && d < 2*time.Millisecond && !s.h.Exact {
				s.vague = true
			}
		}
	}
}

func (s *sequence) claimStep() string {
	effect := s.effectName()
	r := s.req(s.key)
	r.ID.Effect, r.Token = effect, s.token()
	r.Lease = s.pick(long, long, s.short())
	r.Retention = s.pick(keep, keep, keep, s.short())
	r.MaxFailures, r.MaxCrashes = s.rnd.IntN(3), s.rnd.IntN(3)
	r.ParkOnTakeover, r.KeepFailures = s.rnd.IntN(4) == 0, s.rnd.IntN(3) == 0
	r.Delivery = []string{"", "a", "b"}[s.rnd.IntN(3)]
	r.Holder, r.Trace = fmt.Sprint("holder ", len(s.log)), fmt.Sprint("trace ", len(s.log))
	if effect != "" {
		r.Parent, r.Retention = s.at("").Token, 0
		if s.rnd.IntN(4) == 0 {
			r.Parent = s.token()
		}
		if r.Parent.IsZero() {
			r.Parent = store.NewToken()
		}
	} else if s.rnd.IntN(2) == 0 {
		r.Fingerprint = fingerprint(uint16(1+s.rnd.IntN(2)), byte(s.rnd.IntN(2)))
	}
	got := s.claimOn(s.client(), r)
	s.near(got.At)
	rec, parent := s.record(effect)
	wasAbsent := rec.Absent(got.At)
	again := rec.State == store.StateClaimed && rec.Token == r.Token
	want, changed := rules.Claim(rec, parent, &r, got.At)
	s.newLife(effect, wasAbsent, changed)
	s.log = append(s.log, fmt.Sprintf("claim %q token %s parent %s lease %v retention %v max %d %d park %t keep %t delivery %q print %d.%d: %s",
		effect, name(r.Token), name(r.Parent), r.Lease, r.Retention, r.MaxFailures, r.MaxCrashes, r.ParkOnTakeover, r.KeepFailures,
		r.Delivery, r.Fingerprint.Version, r.Fingerprint.Sum[0], got.Verdict))
	if again {
		got.Holder, got.Trace = want.Holder, want.Trace
	}
	if d := got.Remaining - want.Remaining; d < 2*time.Millisecond && d > -2*time.Millisecond {
		got.Remaining = want.Remaining
	}
	e := *s.env
	e.h.Exact = true
	if err := e.differs(got, want); err != nil {
		return fmt.Sprintf("%v\n got %s\nwant %s", err, show(got), show(want))
	}
	return ""
}

func (s *sequence) renewStep() string {
	l := store.Lease{ID: s.effect(s.key, s.effectName()), Token: s.token()}
	d := s.pick(long, 2*long, s.short())
	out, err := s.client().Renew(s.ctx, []store.Lease{l}, d)
	s.item("Renew", len(out), err)
	s.near(out[0].At)
	rec, parent := s.record(l.ID.Effect)
	want, _ := rules.Renew(rec, parent, &l, d, out[0].At)
	s.log = append(s.log, fmt.Sprintf("renew %q token %s by %v: %s", l.ID.Effect, name(l.Token), d, out[0].Code))
	return sameStatus(out[0], want)
}

func (s *sequence) settleStep() string {
	set := store.Settlement{
		ID: s.effect(s.key, s.effectName()), Token: s.token(), Kind: kinds[s.rnd.IntN(len(kinds))],
		Payload: fmt.Append(nil, "payload ", len(s.log)), NotBefore: s.pick(0, 0, long, s.short()), Retention: s.pick(keep, keep, s.short()),
	}
	rec, parent := s.record(set.ID.Effect)
	if rec.Failure == store.FailedParked && set.Kind == store.Succeed {
		set.Kind = store.Park // whether the owner itself has parked it is not known any more
	}
	out, err := s.client().Settle(s.ctx, []store.Settlement{set})
	s.item("Settle", len(out), err)
	s.near(out[0].At)
	wasAbsent := rec.Absent(out[0].At)
	want, changed := rules.Settle(rec, parent, &set, out[0].At)
	s.newLife(set.ID.Effect, wasAbsent, changed)
	if want.Code == store.Absent && changed { // its counters are not part of the contract
		s.vague = true
	}
	s.log = append(s.log, fmt.Sprintf("%s %q token %s not before %v retention %v: %s",
		set.Kind, set.ID.Effect, name(set.Token), set.NotBefore, set.Retention, out[0].Code))
	if s.vague {
		return ""
	}
	return sameStatus(out[0], want)
}

func (s *sequence) client() store.Store {
	if s.rnd.IntN(2) == 0 {
		return s.peer
	}
	return s.st
}

func sameStatus(got, want store.Status) string {
	if got.Err != nil || got.Code != want.Code || got.State != want.State || got.Failure != want.Failure {
		return fmt.Sprintf(" got %s %s %s %v\nwant %s %s %s", got.Code, got.State, got.Failure, got.Err, want.Code, want.State, want.Failure)
	}
	return ""
}
