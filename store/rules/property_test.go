package rules_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// life is what must hold for one record from absent to absent.
type life struct {
	fence   int64
	success []byte
	who     store.Token
}

// player does one operation for each few bytes of a script and watches the
// record.
type player struct {
	t      *testing.T
	script []byte
	now    time.Time
	rec    rules.Record
	life   life
}

func (p *player) byte() int {
	if len(p.script) == 0 {
		return 0
	}
	b := p.script[0]
	p.script = p.script[1:]
	return int(b)
}

func (p *player) duration() time.Duration {
	return []time.Duration{1, 1000, 50_000, 1 << 40}[p.byte()%4]
}

func (p *player) play() {
	for len(p.script) > 0 {
		if p.rec.Absent(p.now) {
			p.life = life{}
		}
		switch op := p.byte(); op % 8 {
		case 0, 1, 2:
			p.claim(op >> 3)
		case 3, 4, 5:
			p.settle(op >> 3)
		case 6:
			rules.Renew(&p.rec, nil, &store.Lease{Token: p.token()}, p.duration(), p.now)
		default:
			p.now = p.now.Add(p.duration())
			continue
		}
		p.check()
	}
}

func (p *player) token() store.Token { return store.Token{byte(1 + p.byte()%4)} }

func (p *player) claim(flags int) {
	tok := p.token()
	req := store.ClaimRequest{
		Token: tok, Lease: p.duration(), Retention: p.duration(), MaxFailures: flags % 3, MaxCrashes: flags / 3 % 3,
		ParkOnTakeover: flags&8 != 0, KeepFailures: flags&16 != 0, Delivery: []string{"", "a"}[flags&1],
		Fingerprint: store.Fingerprint{Version: uint16(flags & 1), Sum: [32]byte{byte(flags & 2)}},
	}
	before, leased := p.rec, p.rec.State == store.StateClaimed && p.now.Before(p.rec.LeaseEnd)
	c, changed := rules.Claim(&p.rec, nil, &req, p.now)
	if c.Verdict == store.Granted && leased && before.Token != tok {
		p.t.Fatalf("granted while the lease of another is running")
	}
	if c.Verdict == store.Granted && p.rec.Token != tok {
		p.t.Fatalf("granted to a token that does not own the record")
	}
	if changed && c.Verdict == store.Granted && p.rec.Fence != p.life.fence+1 {
		p.t.Fatalf("fence %d after %d", p.rec.Fence, p.life.fence)
	}
	if p.life.success != nil && c.Verdict != store.Done && c.Verdict != store.Conflict {
		p.t.Fatalf("%s after a success", c.Verdict)
	}
	if c.Verdict == store.Done && string(c.Payload) != string(p.life.success) {
		p.t.Fatalf("done with %q, recorded was %q", c.Payload, p.life.success)
	}
}

func (p *player) settle(flags int) {
	s := store.Settlement{
		Token: p.token(), Kind: kinds[flags%5], Payload: []byte{byte(len(p.script)), byte(len(p.script) >> 8)},
		NotBefore: p.duration() - 1, Retention: p.duration(),
	}
	before := p.rec
	st, changed := rules.Settle(&p.rec, nil, &s, p.now)
	if st.Code == store.OK && before.Token != s.Token {
		p.t.Fatalf("%s by a token that does not own the record", s.Kind)
	}
	if changed && s.Kind == store.Succeed {
		if p.life.success != nil {
			p.t.Fatalf("a second success in one life")
		}
		p.life.success, p.life.who = s.Payload, s.Token
	}
}

// check looks at the record after every operation.
func (p *player) check() {
	if p.rec.State == 0 {
		return
	}
	if p.rec.Fence < p.life.fence {
		p.t.Fatalf("fence %d after %d", p.rec.Fence, p.life.fence)
	}
	p.life.fence = p.rec.Fence
	if p.life.success != nil && !p.rec.Absent(p.now) &&
		(p.rec.State != store.StateSucceeded || string(p.rec.Payload) != string(p.life.success) || p.rec.Token != p.life.who) {
		p.t.Fatalf("the success was overwritten: %+v", p.rec)
	}
}

func play(t *testing.T, script []byte) {
	t.Helper()
	p := &player{t: t, script: script, now: now}
	p.play()
}

func TestOneSuccessAndAGrowingFence(t *testing.T) {
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
		script := make([]byte, 200)
		for i := range script {
			script[i] = byte(rnd.Uint32())
		}
		play(t, script)
	}
}

func FuzzClaim(f *testing.F) {
	f.Add([]byte{0, 0, 3, 3, 3, 0, 0, 3, 0, 1, 3, 3})
	f.Add([]byte{0, 0, 1, 3, 7, 2, 1, 1, 3, 3, 3, 0, 0, 3, 3, 1, 0, 3})
	f.Fuzz(play)
}
