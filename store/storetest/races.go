package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/secondrun/secondrun/store"
)

const racers = 16

func raceChecks() []check {
	return []check{
		{"one grant of a fresh key", freshRace},
		{"one grant of a fresh key for one token", sameTokenRace},
		{"one takeover", takeoverRace},
		{"one grant of a released and of a failed record", regrantRace},
		{"one judge", judgeRace},
		{"old owner against new owner", settleRace},
		{"a renewal against a takeover", renewRace},
		{"a release against claims", releaseRace},
		{"one grant although every first reply is lost", lossyRace},
		{"one grant of an effect, and none for an old parent", effectRace},
		{"a new life has no effects of the old one", newLifeRace},
		{"overlapping batches", batchRace},
		{"everything at once", mixRace},
	}
}

// race calls f once from each of n goroutines, which alternate between the two
// clients, and waits for all. f reports with Errorf only.
func (e *env) race(n int, f func(st store.Store, i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		st := e.st
		if i%2 == 1 {
			st = e.peer
		}
		wg.Go(func() {
			<-start
			f(st, i)
		})
	}
	close(start)
	wg.Wait()
}

// contend lets racers with tokens of their own claim at once, and returns the
// answers.
func (e *env) contend(key string, change func(*store.ClaimRequest)) []store.Claim {
	e.Helper()
	out := make([]store.Claim, racers)
	e.race(racers, func(st store.Store, i int) {
		r := e.req(key)
		if change != nil {
			change(&r)
		}
		out[i] = e.ask1(st, r)
	})
	return out
}

// count fails the check unless v comes exactly n times and all others are rest,
// or busy: a store may answer that for a record that another transaction has
// locked, whatever else it could say.
func (e *env) count(out []store.Claim, v store.Verdict, n int, rest store.Verdict) {
	e.Helper()
	found := 0
	for _, c := range out {
		switch c.Verdict {
		case v:
			found++
		case rest, store.Busy:
		default:
			e.Fatalf("%s, want %s or %s", show(c), v, rest)
		}
	}
	if found != n {
		e.Fatalf("%d times %s, want %d", found, v, n)
	}
}

func freshRace(e *env) {
	for range rounds(15, 625) { // a soak makes 10,000 claims
		e.count(e.contend("key-"+random(), nil), store.Granted, 1, store.Busy)
	}
}

func sameTokenRace(e *env) {
	for range rounds(5, 100) {
		r := e.req("key-" + random())
		for _, c := range e.contend(r.ID.Key, func(c *store.ClaimRequest) { c.Token = r.Token }) {
			if c.Verdict != store.Granted && c.Verdict != store.Busy { // busy: locked
				e.Fatalf("%s, want granted", show(c))
			}
		}
		e.answered(r, afresh)
		if c := e.verdict(e.req(r.ID.Key), store.Busy); c.Fence != 1 || c.Starts != 1 {
			e.Fatalf("%s, want one start", show(c))
		}
	}
}

func takeoverRace(e *env) {
	for range rounds(3, 50) {
		s := first(e).over(e)
		out := e.contend(s.owner.ID.Key, nil)
		e.count(out, store.Granted, 1, store.Busy)
		for _, c := range out {
			if c.Verdict == store.Granted && (!c.Takeover || c.Fence != 2 || c.Crashes != 1) {
				e.Fatalf("%s, want the one takeover", show(c))
			}
		}
		e.settled(settlement(s.owner, store.Succeed, ""), store.Lost)
	}
}

func regrantRace(e *env) {
	for range rounds(4, 100) {
		for _, k := range []store.Kind{store.Release, store.Retry, store.Fail} {
			s := first(e).settled(e, k, false)
			e.count(e.contend(s.owner.ID.Key, nil), store.Granted, 1, store.Busy)
			if c := e.verdict(e.req(s.owner.ID.Key), store.Busy); c.Fence != 2 {
				e.Fatalf("%s, want fence 2", show(c))
			}
		}
	}
}

func judgeRace(e *env) {
	for range rounds(4, 100) {
		s := first(e).settled(e, store.Retry, false)
		out := e.contend(s.owner.ID.Key, func(r *store.ClaimRequest) { r.MaxFailures, r.KeepFailures = 1, true })
		e.count(out, store.Exhausted, 1, store.Failed)
	}
}

// settleRace lets an owner whose lease is over settle while others take over
// and settle as well.
func settleRace(e *env) {
	for range rounds(6, 100) {
		s := first(e).over(e)
		next := e.req(s.owner.ID.Key)
		var taken store.Claim
		var codes [2]store.Code
		e.race(2, func(st store.Store, i int) {
			if i == 0 {
				codes[0] = e.settle1(st, settlement(s.owner, store.Succeed, "old"))
				return
			}
			taken = e.ask1(st, next)
			codes[1] = e.settle1(st, settlement(next, store.Succeed, "new"))
		})
		c := e.verdict(e.req(s.owner.ID.Key), store.Done)
		switch {
		case (taken.Verdict == store.Done || taken.Verdict == store.Busy) && codes == [2]store.Code{store.OK, store.Lost} && string(c.Payload) == "old" && c.Fence == 1:
		case taken.Verdict == store.Granted && codes == [2]store.Code{store.Lost, store.OK} && string(c.Payload) == "new" && c.Fence == 2:
		default:
			e.Fatalf("old: %s, new: %s and %s, in the end %s", codes[0], taken.Verdict, codes[1], show(c))
		}
	}
}

// renewRace lets an owner whose lease is over renew while another claims: one
// of the two wins, and both know it.
func renewRace(e *env) {
	for range rounds(6, 100) {
		s := first(e).over(e)
		var taken store.Claim
		var code store.Code
		e.race(2, func(st store.Store, i int) {
			if i == 0 {
				for code = store.Locked; code == store.Locked; {
					code = e.renew1(st, s.owner, long)
				}
			} else {
				taken = e.ask1(st, e.req(s.owner.ID.Key))
			}
		})
		if (code != store.OK || taken.Verdict != store.Busy) && (code != store.Lost || taken.Verdict != store.Granted) {
			e.Fatalf("renewed: %s, claimed: %s", code, show(taken))
		}
	}
}

func releaseRace(e *env) {
	for range rounds(6, 100) {
		s := first(e)
		var out [racers]store.Claim
		e.race(racers, func(st store.Store, i int) {
			if i == 0 {
				if code := e.settle1(st, settlement(s.owner, store.Release, "")); code != store.OK {
					e.Errorf("Release: %s", code)
				}
			}
			out[i] = e.ask1(st, e.req(s.owner.ID.Key))
		})
		e.count(out[:], store.Granted, 1, store.Busy) // the one who releases asks again, so that there is one
		if c := e.verdict(e.req(s.owner.ID.Key), store.Busy); c.Fence != 2 {
			e.Fatalf("%s, want fence 2", show(c))
		}
	}
}

func lossyRace(e *env) {
	for range rounds(6, 100) {
		var reqs [racers]store.ClaimRequest
		key := "key-" + random()
		e.race(racers, func(st store.Store, i int) {
			reqs[i] = e.req(key)
			if _, err := (lossy{st}).Claim(e.ctx, []store.ClaimRequest{reqs[i]}); !errors.Is(err, errLost) {
				e.Errorf("Claim: %v", err)
			}
			e.ask1(st, reqs[i])
		})
		var out []store.Claim
		for _, r := range reqs {
			out = append(out, e.claim(r))
		}
		e.count(out, store.Granted, 1, store.Busy)
		if c := e.verdict(e.req(key), store.Busy); c.Fence != 1 || c.Starts != 1 {
			e.Fatalf("%s, want one start", show(c))
		}
	}
}

// effectRace moves the parent on while its effects are claimed.
func effectRace(e *env) {
	for range rounds(8, 200) {
		old := e.parent()
		next := e.req(old.ID.Key)
		var byOld, byNext [racers]store.Claim
		e.race(racers, func(st store.Store, i int) {
			if i == 0 {
				e.settle1(st, settlement(old, store.Release, ""))
				e.ask1(st, next)
			}
			byOld[i] = e.ask1(st, e.effectReq(old, "f"))
			byNext[i] = e.ask1(st, e.effectReq(next, "f"))
		})
		var old1, next1 int
		for i := range racers {
			if byOld[i].Verdict == store.Granted {
				old1++
			}
			if byNext[i].Verdict == store.Granted {
				next1++
			}
			if byOld[i].Verdict > store.Busy && byOld[i].Verdict != store.Refused {
				e.Fatalf("under the old parent: %s", show(byOld[i]))
			}
		}
		if old1 > 1 || next1 > 1 {
			e.Fatalf("%d grants under the old parent and %d under the new one, want one each at most", old1, next1)
		}
		e.verdict(e.effectReq(old, "f"), store.Refused)
	}
}

// newLifeRace grants a record anew while its effects of the old life are
// settled.
func newLifeRace(e *env) {
	for range rounds(3, 50) {
		_, f := e.ended()
		next := e.req(f.ID.Key)
		e.race(racers, func(st store.Store, i int) {
			if i%4 == 0 {
				e.ask1(st, next)
			}
			e.settle1(st, settlement(f, store.Fail, "old life"))
		})
		e.granted(next)
		e.answered(e.effectReq(next, "f"), afresh)
	}
}

// batchRace claims the same sorted keys in overlapping batches: every key has
// one owner, and nobody waits for ever.
func batchRace(e *env) {
	for round := range rounds(4, 60) {
		keys := min(20, e.batch())
		var owners [64]atomic.Int32
		e.race(8, func(st store.Store, i int) {
			rnd := rand.New(rand.NewPCG(uint64(round), uint64(i))) //nolint:gosec // repeatable
			var reqs []store.ClaimRequest
			var index []int
			for k := range keys {
				if rnd.IntN(2) == 0 {
					reqs, index = append(reqs, e.req(fmt.Sprintf("key %d %02d", round, k))), append(index, k)
				}
			}
			out, err := st.Claim(e.ctx, reqs)
			if err != nil || len(out) != len(reqs) {
				e.Errorf("Claim: %d answers, %v", len(out), err)
				return
			}
			var sets []store.Settlement
			for j, c := range out {
				if c.Verdict == store.Granted {
					owners[index[j]].Add(1)
					sets = append(sets, settlement(reqs[j], store.Succeed, ""))
				}
			}
			codes, err := st.Settle(e.ctx, sets)
			for _, s := range codes {
				if s.Code != store.OK {
					e.Errorf("Settle: %s, %v", s.Code, s.Err)
				}
			}
			if err != nil {
				e.Errorf("Settle: %v", err)
			}
		})
		for k := range keys {
			if n := owners[k].Load(); n > 1 {
				e.Fatalf("key %d was granted %d times", k, n)
			}
		}
	}
}

// mixRace lets workers claim, renew, settle, fail and forget their claims on a
// few keys, beside a purger. Whatever they do, every key gets at most one
// success, and everybody is told that one.
func mixRace(e *env) {
	const keys = 4
	var successes [keys]atomic.Int32
	var results [keys]atomic.Value
	e.race(racers, func(st store.Store, worker int) {
		rnd := rand.New(rand.NewPCG(7, uint64(worker))) //nolint:gosec // repeatable
		if p, ok := st.(store.Purger); ok && worker == 0 {
			e.purgeAll(p)
		}
		for step := range rounds(12, 400) {
			k := rnd.IntN(keys)
			r := e.req(fmt.Sprintf("key %d", k))
			r.Delivery = ""
			if rnd.IntN(2) == 0 {
				r.Lease = time.Millisecond
			}
			if e.ask1(st, r).Verdict != store.Granted {
				continue
			}
			if rnd.IntN(3) == 0 {
				e.renew1(st, r, time.Millisecond)
			}
			set := settlement(r, kinds[1+rnd.IntN(3)], "")
			if step%4 == 3 {
				set = settlement(r, store.Succeed, fmt.Sprintf("%d/%d", worker, step))
			}
			if e.settle1(st, set) == store.OK && set.Kind == store.Succeed {
				successes[k].Add(1)
				results[k].Store(string(set.Payload))
			}
		}
	})
	for k := range keys {
		want, _ := results[k].Load().(string)
		c := e.claim(e.req(fmt.Sprintf("key %d", k)))
		if n := successes[k].Load(); n > 1 || n == 1 && (c.Verdict != store.Done || string(c.Payload) != want) {
			e.Errorf("key %d: %d successes, result %q, in the end %s", k, n, want, show(c))
		}
		if successes[k].Load() == 0 && c.Verdict == store.Done {
			e.Errorf("key %d: done, but nobody succeeded", k)
		}
	}
}
