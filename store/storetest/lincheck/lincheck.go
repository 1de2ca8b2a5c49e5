// Package lincheck checks that a store is linearizable: that concurrent calls
// are answered as if each item had happened at one instant between its call
// and its answer, in the way that the contract of package store says.
//
// Clients claim, renew and settle at random on few keys, with fresh and old
// tokens, short leases and retentions, effects, and calls whose reply is
// "lost": the client goes on and repeats them while they still run. The answers
// are checked by porcupine against a model that is written from the contract
// alone. Every answer carries the store's clock at its decision, so the model
// knows exactly which leases were over.
//
// It is a module of its own, so that nobody who tests a store with package
// storetest needs the checkers.
package lincheck

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/secondrun/secondrun/store"
)

// SeedVar is the environment variable that sets the seed.
const SeedVar = "SECONDRUN_SEED"

// Config says how much to check. Zero values mean the defaults.
type Config struct {
	Histories int           // independent runs; 40
	Ops       int           // items of one run at least; 300
	Clients   int           // concurrent clients; 4
	Keys      int           // 2
	Seed      uint64        // 0: from SeedVar, or random. It fixes what clients try, not how their calls interleave
	Slack     time.Duration // precision of the store's times; 0 for microseconds or better
	Timeout   time.Duration // of the check of one history; one minute
	Parallel  int           // runs at a time; 4

	// LocksRows says that the store may answer a claim with Busy, without having
	// seen the record, while another transaction has it. Such an answer has no
	// fence and is always allowed.
	LocksRows bool
	// ItemErrors says that items may fail alone, without a change, when others
	// are in their way for too long. They are counted under "none".
	ItemErrors bool
	// StaleParent says that the claim of an effect may be granted under a parent
	// that was displaced or settled while the call ran: the store decides by
	// what it read when the call began.
	StaleParent bool
	// ParentGrants says that the claim of an effect counts as displaced as soon as
	// its parent is granted anew, even to the same token. The contract compares
	// the tokens; that differs only where a parent is displaced, or released by
	// force, and an old claim of it is then repeated and granted. Any other claim
	// of the parent that was granted there would take the effect over as well.
	ParentGrants bool
	// LatePurge says that a call may read the clock a while before it decides:
	// a record that becomes absent in between, and is purged, is absent to it
	// although it was not yet at the instant that the answer shows.
	LatePurge bool
	// LooseAdmin admits two harmless deviations of [store.Admin]: of several
	// calls of Forget at a time more than one may be told that there was
	// something to forget, and a record that is released by force may be kept
	// until its lease would have ended where its retention ends earlier.
	LooseAdmin bool
}

func (c Config) withDefaults() Config {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&c.Histories, 40)
	set(&c.Ops, 300)
	set(&c.Clients, 4)
	set(&c.Keys, 2)
	set(&c.Parallel, 4)
	if c.Timeout <= 0 {
		c.Timeout = time.Minute
	}
	for c.Seed == 0 {
		c.Seed, _ = strconv.ParseUint(os.Getenv(SeedVar), 10, 64)
		if c.Seed == 0 {
			c.Seed = uint64(time.Now().UnixNano())
		}
	}
	return c
}

// Report is what a check found.
type Report struct {
	Histories int
	Ops       int
	Illegal   int    // histories that are not linearizable
	Unknown   int    // histories whose check ran into the timeout
	Failed    int    // histories with a call that failed as a whole
	Example   string // of the first illegal history, or the first failed call
	Seed      uint64
	Ran       time.Duration // all runs, one after the other
	Checked   time.Duration // all checks, one after the other
	Answers   map[string]int
}

// OK reports whether every history is linearizable.
func (r *Report) OK() bool { return r.Illegal+r.Unknown+r.Failed == 0 }

// String returns one line of figures.
func (r *Report) String() string {
	return fmt.Sprintf("%d histories, %d operations: %d illegal, %d unknown, %d failed; runs %v, checks %v; seed %d",
		r.Histories, r.Ops, r.Illegal, r.Unknown, r.Failed,
		r.Ran.Round(time.Millisecond), r.Checked.Round(time.Millisecond), r.Seed)
}

// Run checks the store that open returns, in a subtest. The seed is logged and
// can be given by [SeedVar].
func Run(t *testing.T, name string, open func() store.Store, cfg Config) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		r := Check(t.Context(), open, cfg)
		t.Log(r.String())
		t.Log(answersText(r.Answers))
		if !r.OK() {
			t.Errorf("not linearizable; run again with %s=%d\n%s", SeedVar, r.Seed, r.Example)
		}
	})
}

// Check runs and checks the histories. It calls open once for each run; every
// run uses a scope of its own, so open may return the same store.
func Check(ctx context.Context, open func() store.Store, cfg Config) *Report {
	cfg = cfg.withDefaults()
	total := &Report{Seed: cfg.Seed, Answers: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, cfg.Parallel)
	for i := range cfg.Histories {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			st := open()
			began := time.Now()
			h := run(ctx, st, cfg, cfg.Seed+uint64(i)*0x9e3779b97f4a7c15) //nolint:gosec // not negative
			ran := time.Since(began)
			result, example := h.check(cfg)
			mu.Lock()
			defer mu.Unlock()
			total.add(h, result, example)
			total.Ran += ran
			total.Checked += time.Since(began) - ran
		})
	}
	wg.Wait()
	return total
}

func (r *Report) add(h *history, result porcupine.CheckResult, example string) {
	r.Histories++
	r.Ops += len(h.ops)
	for _, o := range h.ops {
		r.Answers[o.Input.(*op).answer()]++ //nolint:forcetypeassert // ours
	}
	switch {
	case h.err != nil:
		r.Failed++
		example = h.err.Error()
	case result == porcupine.Illegal:
		r.Illegal++
	case result == porcupine.Unknown:
		r.Unknown++
	}
	if r.Example == "" {
		r.Example = example
	}
}

func (o *op) answer() string {
	switch o.kind {
	case opClaim:
		if o.claim.Takeover {
			return "claim takeover"
		}
		return "claim " + o.claim.Verdict.String()
	case opRenew:
		return "renew " + o.status.Code.String()
	case opSettle:
		return "settle " + o.status.Code.String()
	}
	return fmt.Sprintf("%s %t", strings.Fields(o.String())[0], o.ok)
}

func answersText(answers map[string]int) string {
	var parts []string
	for k, n := range answers {
		parts = append(parts, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// check checks a history key by key: a history is linearizable exactly if that
// of every key is.
func (h *history) check(cfg Config) (porcupine.CheckResult, string) {
	byKey := map[int][]porcupine.Operation{}
	for _, o := range h.ops {
		k := o.Input.(*op).key //nolint:forcetypeassert // ours
		byKey[k] = append(byKey[k], o)
	}
	worst, example := porcupine.Ok, ""
	for _, ops := range byKey {
		switch porcupine.CheckOperationsTimeout(model(cfg), ops, cfg.Timeout) {
		case porcupine.Illegal:
			return porcupine.Illegal, explain(cfg, ops)
		case porcupine.Unknown:
			worst, example = porcupine.Unknown, "the check took too long"
		}
	}
	return worst, example
}

// explain shows the longest legal beginning of an illegal history and what was
// left.
func explain(cfg Config, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model(cfg), ops, cfg.Timeout)
	var longest []porcupine.Operation
	for _, p := range info.PartialLinearizationsOperations() {
		for _, l := range p {
			if len(l) > len(longest) {
				longest = l
			}
		}
	}
	var b strings.Builder
	b.WriteString("the longest beginning that can be explained ends with\n")
	done := map[*op]bool{}
	for i, o := range longest {
		done[o.Input.(*op)] = true //nolint:forcetypeassert // ours
		if i >= len(longest)-12 {
			fmt.Fprintf(&b, "  %s\n", line(o))
		}
	}
	b.WriteString("and no operation of these can be the next\n")
	left := 0
	for _, o := range ops {
		if !done[o.Input.(*op)] { //nolint:forcetypeassert // ours
			if left++; left <= 8 {
				fmt.Fprintf(&b, "  %s\n", line(o))
			}
		}
	}
	return b.String()
}

func line(o porcupine.Operation) string {
	return fmt.Sprintf("[%d..%d] client %d: %s", o.Call/1000, o.Return/1000, o.ClientId, o.Input)
}
