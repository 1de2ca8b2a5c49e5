// Package storetest checks that a store keeps the contract of package store.
// It is the same suite for the stores of this module and for yours, and needs
// nothing but the standard library:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			st := openMyStore(t) // closed by t.Cleanup
//			return storetest.Harness{Store: st}
//		})
//	}
//
// What the contract leaves open is left open here as well:
//
//   - A nil and an empty payload may come back as each other. Where the
//     difference matters, it is made by what the middleware puts into the payload.
//   - The counters of a conflict and of a refused claim, and those of a record
//     that a late success created.
//   - Holder and Trace of a takeover whose answer is repeated: the displaced run
//     need not be remembered.
//   - A success by an owner that has parked its own record.
//   - In races, a store may answer Busy, or Locked to a renewal, for a record
//     that another transaction has locked.
//
// The environment variable SECONDRUN_SOAK, set to anything, makes the rounds of
// the races and of the random sequences many times longer.
package storetest

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/store"
)

// Harness is one store under test.
type Harness struct {
	// Store is the store under test. The suite never closes it.
	Store store.Store
	// Peer is a second client on the same data, like another process has. Nil
	// means Store.
	Peer store.Store
	// Wait lets at least d pass on the store's clock. Nil means to sleep.
	Wait func(d time.Duration)
	// Exact says that Wait moves a controlled clock by exactly d, and that the
	// clock stands still otherwise. The boundary cases, in which a lease or a
	// retention ends now, run only then.
	Exact bool
	// Audits returns what the audit hook saw so far, oldest first. Nil when the
	// store does not implement [store.Admin].
	Audits func() []store.Audit
}

// Run runs the whole suite. It calls open once for every top-level subtest. The
// suite uses a random scope for everything that it does, so that open may
// return the same database every time. Subtests of one Harness run in parallel,
// unless it is Exact.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			h := open(t)
			logMissing(t, h)
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					if !h.Exact {
						t.Parallel()
					}
					c.run(newEnv(t, h))
				})
			}
		})
	}
}

// RunInBubble runs the whole suite on the fake clock of [testing/synctest]: no
// time is really spent on waiting. It is for stores that live in the memory of
// the process and ask [time.Now] for the time. It calls open once for every
// single check, inside of the check's own bubble, and sets Wait and Exact itself.
func RunInBubble(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := open(t)
						h.Wait, h.Exact = time.Sleep, true
						c.run(newEnv(t, h))
					})
				})
			}
		})
	}
}

// group is a theme of the contract: a top-level subtest.
type group struct {
	name   string
	checks []check
}

// check tests a sentence of the contract or a few that belong together. It must
// not start subtests, see RunInBubble.
type check struct {
	name string
	run  func(e *env)
}

func groups() []group {
	return []group{
		{"claims", claimChecks()},
		{"grants", grantChecks()},
		{"settlements", settleChecks()},
		{"retention", retentionChecks()},
		{"effects", effectChecks()},
		{"batches", batchChecks()},
		{"keys", keyChecks()},
		{"replies", replyChecks()},
		{"races", raceChecks()},
		{"sequences", sequenceChecks()},
		{"inspector", inspectChecks()},
		{"counter", statsChecks()},
		{"purger", purgeChecks()},
		{"admin", adminChecks()},
		{"rest", restChecks()},
	}
}

// logMissing says which abilities the store does not have, so that a skipped
// check is no surprise.
func logMissing(t *testing.T, h Harness) {
	t.Helper()
	_, pinger := h.Store.(store.Pinger)
	_, inspector := h.Store.(store.Inspector)
	_, counter := h.Store.(store.Counter)
	_, purger := h.Store.(store.Purger)
	_, admin := h.Store.(store.Admin)
	_, limiter := h.Store.(store.Limiter)
	for _, i := range []struct {
		name string
		has  bool
	}{
		{"Pinger", pinger},
		{"Inspector", inspector},
		{"Counter", counter},
		{"Purger", purger},
		{"Admin", admin},
		{"Limiter", limiter},
	} {
		if !i.has {
			t.Logf("the store does not implement store.%s", i.name)
		}
	}
}

// rounds returns quick in an ordinary run and long in a soak.
func rounds(quick, long int) int {
	if os.Getenv("SECONDRUN_SOAK") != "" {
		return long
	}
	return quick
}
