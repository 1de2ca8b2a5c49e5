package lincheck

import (
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

// TestParentGrants claims an effect that is still leased under an earlier grant
// of its parent's token: the contract says busy, the option admits a takeover as
// well, and neither admits one under the same grant.
func TestParentGrants(t *testing.T) {
	base := time.Now()
	p, e := store.Token{1}, store.Token{2}
	s := state{
		{state: store.StateClaimed, token: p, fence: 3, starts: 3, crashes: 2, leaseEnd: 100, expires: 100},
		{state: store.StateClaimed, token: e, parent: p, parentFence: 1, fence: 1, starts: 1, leaseEnd: 90},
	}
	claim := func(c store.Claim) *op {
		c.At = base.Add(10)
		return &op{
			kind: opClaim, slot: 1, req: store.ClaimRequest{Token: store.Token{3}, Parent: p, Lease: 5}, claim: c,
			from: base, to: base.Add(20), base: base,
		}
	}
	busy := claim(store.Claim{Verdict: store.Busy, Fence: 1, Starts: 1, Remaining: 80})
	takeover := claim(store.Claim{Verdict: store.Granted, Takeover: true, Fence: 2, Starts: 2, Crashes: 1, Remaining: 5})
	same := s
	same[1].parentFence = 3
	for _, c := range []struct {
		name string
		from state
		o    *op
		cfg  Config
		want int
	}{
		{"busy", s, busy, Config{}, 1},
		{"busy, admitted", s, busy, Config{ParentGrants: true}, 1},
		{"takeover", s, takeover, Config{}, 0},
		{"takeover, admitted", s, takeover, Config{ParentGrants: true}, 1},
		{"takeover under the same grant", same, takeover, Config{ParentGrants: true}, 0},
	} {
		if got := step(c.from, c.o, c.cfg); len(got) != c.want {
			t.Errorf("%s: %d states, want %d", c.name, len(got), c.want)
		}
	}
	if next := step(s, takeover, Config{ParentGrants: true}); len(next) == 1 && (next[0][1].parent != p || next[0][1].parentFence != 3) {
		t.Errorf("%+v", next[0][1])
	}
}
