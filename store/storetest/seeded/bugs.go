package seeded

import (
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// Bug is a store with one known bug.
type Bug struct {
	Name  string
	Store func() store.Store // a new, empty one
}

// Bugs returns the nine, in a fixed order.
func Bugs() []Bug {
	bug := func(name string, h func() hooks) Bug {
		return Bug{Name: name, Store: func() store.Store { return newSimple(h()) }}
	}
	return []Bug{
		bug("unfenced complete", unfencedComplete),
		bug("state-gated complete", stateGatedComplete),
		bug("unfenced release", unfencedRelease),
		bug("stranger renews", strangerRenews),
		bug("check then act", checkThenAct),
		bug("no self-recognition", noSelfRecognition),
		bug("early expiry", earlyExpiry),
		bug("done is overwritten", doneIsOverwritten),
		bug("stale duplicate", staleDuplicate),
	}
}

// unfencedComplete takes a success from anybody unless there is one.
func unfencedComplete() hooks {
	return hooks{settle: func(r *rules.Record, s *store.Settlement) {
		if s.Kind == store.Succeed && r.State != 0 && r.State != store.StateSucceeded {
			r.State, r.Token = store.StateClaimed, s.Token
		}
	}}
}

// stateGatedComplete takes a success from anybody while the record is claimed.
func stateGatedComplete() hooks {
	return hooks{settle: func(r *rules.Record, s *store.Settlement) {
		if s.Kind == store.Succeed && r.State == store.StateClaimed {
			r.Token = s.Token
		}
	}}
}

// unfencedRelease lets anybody release a claim.
func unfencedRelease() hooks {
	return hooks{settle: func(r *rules.Record, s *store.Settlement) {
		if s.Kind == store.Release && r.State == store.StateClaimed {
			s.Token = r.Token
		}
	}}
}

// strangerRenews lets anybody renew a claim.
func strangerRenews() hooks {
	return hooks{renew: func(r *rules.Record, l *store.Lease) {
		if r.State == store.StateClaimed {
			l.Token = r.Token
		}
	}}
}

// checkThenAct decides a claim in one step and writes it in another.
func checkThenAct() hooks {
	return hooks{gap: func() { time.Sleep(100 * time.Microsecond) }}
}

// noSelfRecognition tells the owner that it is in its own way.
func noSelfRecognition() hooks {
	return hooks{claim: func(_ key, r *rules.Record, req *store.ClaimRequest, now time.Time) (store.Claim, bool) {
		if r.State == store.StateClaimed && r.Token == req.Token && now.Before(r.LeaseEnd) {
			other := *req
			other.Token = store.NewToken()
			c, _ := rules.Claim(r, &rules.Record{State: store.StateClaimed, Token: req.Parent, LeaseEnd: r.LeaseEnd}, &other, now)
			return c, true
		}
		return store.Claim{}, false
	}}
}

// earlyExpiry takes the last tenth of a lease for over.
func earlyExpiry() hooks {
	leases := map[key]time.Duration{}
	return hooks{
		claim: func(id key, r *rules.Record, req *store.ClaimRequest, now time.Time) (store.Claim, bool) {
			if r.State == store.StateClaimed && r.Token != req.Token && !now.Before(r.LeaseEnd.Add(-leases[id]/10)) {
				r.LeaseEnd = now
			}
			return store.Claim{}, false
		},
		after: func(id key, r *rules.Record, c store.Claim, now time.Time) {
			if c.Verdict == store.Granted {
				leases[id] = r.LeaseEnd.Sub(now)
			}
		},
	}
}

// doneIsOverwritten lets the owner record another success.
func doneIsOverwritten() hooks {
	return hooks{settle: func(r *rules.Record, s *store.Settlement) {
		if s.Kind == store.Succeed && r.State == store.StateSucceeded && r.Token == s.Token {
			r.State = store.StateClaimed
		}
	}}
}

// staleDuplicate answers from a copy of the last answer that it gave to a
// duplicate, for as long as 50 ms, as a cache or a replica does.
func staleDuplicate() hooks {
	type answer struct {
		c  store.Claim
		at time.Time
	}
	cache := map[key]answer{}
	return hooks{
		claim: func(id key, r *rules.Record, req *store.ClaimRequest, now time.Time) (store.Claim, bool) {
			a, ok := cache[id]
			if !ok || r.Token == req.Token || now.Sub(a.at) >= 50*time.Millisecond {
				return store.Claim{}, false
			}
			return a.c, true
		},
		after: func(id key, _ *rules.Record, c store.Claim, now time.Time) {
			if c.Verdict == store.Busy || c.Verdict == store.Done {
				cache[id] = answer{c, now}
			}
		},
	}
}
