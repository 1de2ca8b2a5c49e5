package storetest

import (
	"fmt"

	"github.com/secondrun/secondrun/store"
)

func purgeChecks() []check {
	return []check{
		{"removes what is absent and nothing else", purgeRemoves},
		{"effects go with their parent", purgeEffects},
		{"U35 G15 beside claims", purgeRace},
	}
}

func (e *env) purger() store.Purger {
	e.Helper()
	p, ok := e.st.(store.Purger)
	if !ok {
		e.Skip("the store does not implement store.Purger")
	}
	return p
}

// purgeAll does a whole cycle and returns the number of records removed, other
// scopes included. It may be called from any goroutine.
func (e *env) purgeAll(p store.Purger) int {
	removed, cursor := 0, ""
	for range 1_000_000 {
		n, next, err := p.Purge(e.ctx, cursor)
		if err != nil || n < 0 {
			e.Errorf("Purge = %d, %v", n, err)
			return removed
		}
		removed += n
		if next == "" {
			return removed
		}
		cursor = next
	}
	e.Errorf("Purge: the cycle does not end")
	return removed
}

func purgeRemoves(e *env) {
	p := e.purger()
	prepared := situations()
	var live []situation
	for _, state := range []string{"claimed", "released", "transient", "succeeded", "terminal", "exhausted", "parked", "lease over"} {
		live = append(live, prepared[state](e))
	}
	running := e.req("runs longer than it is kept")
	running.Retention = short
	e.granted(running)
	var gone []situation
	for _, k := range kinds {
		gone = append(gone, expire(e, k))
	}
	crashed := e.req("crashed")
	crashed.Lease, crashed.Retention = short, short
	e.granted(crashed)
	e.pass(short)
	e.purgeAll(p)
	for range 3 { // whatever else there is, an end is reached
		e.purgeAll(p)
	}
	for _, s := range live {
		c := e.claim(s.owner)
		if c.Verdict == store.Granted && c.Fence != s.c.Fence {
			e.Errorf("purged although it was not absent: %s", show(c))
		}
	}
	e.renewed(running.ID, running.Token, long, store.OK)
	for _, s := range gone {
		e.answered(e.req(s.owner.ID.Key), afresh)
	}
	e.answered(e.req("crashed"), afresh)
}

func purgeEffects(e *env) {
	p := e.purger()
	parent := e.parent()
	kept := e.effectReq(parent, "f")
	kept.Retention = 1
	e.granted(kept)
	s := settlement(kept, store.Succeed, "charged")
	s.Retention = 1
	e.settled(s, store.OK)
	endedParent, gone := e.ended()
	e.purgeAll(p)
	if c := e.verdict(e.effectReq(parent, "f"), store.Done); string(c.Payload) != "charged" {
		e.Errorf("payload %q", c.Payload)
	}
	e.settled(settlement(gone, store.Succeed, ""), store.Absent)
	next := e.req(endedParent.ID.Key)
	e.answered(next, afresh)
	e.answered(e.effectReq(next, "f"), afresh)
}

func purgeRace(e *env) {
	p := e.purger()
	e.race(8, func(st store.Store, i int) {
		for round := range rounds(6, 60) {
			if i < 2 {
				e.purgeAll(p)
				continue
			}
			r := e.req(fmt.Sprintf("key %d %d", i, round))
			if c := e.ask1(st, r); c.Verdict != store.Granted || c.Fence != 1 {
				e.Errorf("%s", show(c))
			}
			if code := e.renew1(st, r, long); code != store.OK {
				e.Errorf("Renew: %s", code)
			}
			s := settlement(r, store.Succeed, "result")
			if code := e.settle1(st, s); code != store.OK {
				e.Errorf("Settle: %s", code)
			}
			r.Token = store.NewToken()
			if c := e.ask1(st, r); c.Verdict != store.Done {
				e.Errorf("%s", show(c))
			}
		}
	})
}
