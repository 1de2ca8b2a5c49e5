package crashtest

import (
	"syscall"
	"testing"
	"time"
)

// crashPoint is a place where a process dies, or a reply is lost while the
// process lives, and what must come of it.
type crashPoint struct {
	at, behave      string
	lives           bool // no second worker is needed
	starts, effects int
	dead            int  // copies in the dead-letter queue, at least
	suppressed      int  // deliveries that did not run, at least
	terminate       bool // send SIGTERM once the handler has started
}

var crashPoints = map[string]crashPoint{
	"C01 before the claim is sent":                   {at: "C01", starts: 1, effects: 1},
	"C02 claim applied, reply lost":                  {at: "C02", starts: 1, effects: 1, lives: true},
	"C03 claim applied, before the handler":          {at: "C03", starts: 1, effects: 1},
	"C04 in the handler, before the effect":          {at: "C04", starts: 2, effects: 1},
	"C05 after the effect, before the record":        {at: "C05", starts: 2, effects: 2},
	"C06 record applied, reply lost":                 {at: "C06", starts: 1, effects: 1, lives: true},
	"C07 record applied, before the acknowledgement": {at: "C07", starts: 1, effects: 1, suppressed: 1},
	"C08 acknowledged, reply lost":                   {at: "C08", starts: 1, effects: 1, lives: true},
	"C10 before a renewal is sent":                   {at: "C10 before", behave: "slow", starts: 2, effects: 1},
	"C10 renewal applied":                            {at: "C10 after", behave: "slow", starts: 2, effects: 1},
	"C10 renewal applied, reply lost":                {at: "C10 reply", behave: "slow", starts: 1, effects: 1, lives: true},
	"C11 before a release is sent":                   {at: "C11 before", behave: "wait", terminate: true, starts: 2, effects: 1},
	"C11 release applied":                            {at: "C11 after", behave: "wait", terminate: true, starts: 2, effects: 1},
	"C12 before a terminal failure is recorded":      {at: "C12 before", behave: "terminal", starts: 2, dead: 1},
	"C12 terminal failure recorded, before the copy": {at: "C12 after", behave: "terminal", starts: 1, dead: 1, suppressed: 1},
	"C12 copied, before the delete":                  {at: "C12 copied", behave: "terminal", starts: 1, dead: 2, suppressed: 1},
}

// TestC01toC12_Crashes kills a worker at every crash point over every store and
// lets another one finish: nothing is lost, and two effects happen only where
// the process died between effect and record.
func TestC01toC12_Crashes(t *testing.T) {
	for name, p := range crashPoints {
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, b *bench) { p.check(t, b) })
		})
	}
}

func (p *crashPoint) check(t *testing.T, b *bench) {
	b.send("k")
	first := b.start("first", nil, func(c *config) { c.Crash, c.Behave = p.at, p.behave })
	if p.terminate {
		b.await(1, line{what: "start"})
		first.signal(syscall.SIGTERM)
	}
	if !p.lives {
		first.killed()
		b.start("second", nil, func(c *config) {
			if c.Behave = p.behave; p.terminate {
				c.Behave = ""
			}
		})
	}
	b.drained(30 * time.Second)
	if n := b.count(line{what: "start"}); n != p.starts {
		t.Errorf("%d starts, want %d", n, p.starts)
	}
	if n := b.count(line{what: "effect"}); n != p.effects {
		t.Errorf("%d effects, want %d", n, p.effects)
	}
	if n := b.dead.Counts().Visible; n != p.dead {
		t.Errorf("%d messages in the dead-letter queue, want %d", n, p.dead)
	}
	if n := b.count(line{what: "event", text: "suppressed"}); n < p.suppressed {
		t.Errorf("%d deliveries suppressed, want %d", n, p.suppressed)
	}
	if t.Failed() {
		t.Log("ledger:\n" + b.history())
	}
}

// TestH12_Poison: a message that kills every process that runs it is given up
// after MaxCrashes takeovers and ends in the dead-letter queue.
func TestH12_Poison(t *testing.T) {
	forEachStore(t, func(t *testing.T, b *bench) {
		b.conf.MaxCrashes = 2
		b.send("k")
		for n := 1; n <= 3; n++ {
			b.start("worker-"+itoa(n), nil, func(c *config) { c.Behave = "poison" }).killed()
		}
		b.start("last", nil, func(c *config) { c.Behave = "poison" })
		b.drained(30 * time.Second)
		if n := b.count(line{what: "start"}); n != 3 {
			t.Errorf("%d starts, want MaxCrashes + 1 = 3", n)
		}
		if n := b.dead.Counts().Visible; n != 1 {
			t.Errorf("%d messages in the dead-letter queue, want 1", n)
		}
	})
}

// TestZ13_BusyLoop: a handler that never yields on the only processor does not
// keep its lease from being renewed.
func TestZ13_BusyLoop(t *testing.T) {
	forEachStore(t, func(t *testing.T, b *bench) {
		b.send("k")
		b.start("only", []string{"GOMAXPROCS=1"}, func(c *config) { c.Behave = "busy" })
		b.await(1, line{what: "start"})
		b.start("other", nil, nil)
		b.drained(30 * time.Second)
		if n := b.count(line{what: "effect"}); n != 1 {
			t.Errorf("%d effects, want 1\n%s", n, b.history())
		}
	})
}
