package crashtest

import (
	"syscall"
	"testing"
	"time"
)

// TestZ01_StoppedPastTheLease: a worker that was stopped for several leases
// finds, when it goes on, that its context is cancelled and its success is
// refused; the successor's outcome stands.
func TestZ01_StoppedPastTheLease(t *testing.T) {
	forEachStore(t, func(t *testing.T, b *bench) {
		zombie := b.stopInHandler()
		b.start("successor", nil, nil)
		b.await(1, line{what: "settled", by: "successor", text: "ok"})
		zombie.signal(syscall.SIGCONT)
		b.refused()
		if by := b.result("k"); by != "successor" {
			t.Errorf("the recorded outcome is that of the %s", by)
		}
		if n := b.count(line{what: "effect"}); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// TestZ02_SuccessorStillRuns is Z01 with the successor in its handler.
func TestZ02_SuccessorStillRuns(t *testing.T) {
	forEachStore(t, func(t *testing.T, b *bench) {
		zombie := b.stopInHandler()
		b.start("successor", nil, func(c *config) { c.Behave = "gate" })
		b.await(1, line{what: "gate", by: "successor"})
		zombie.signal(syscall.SIGCONT)
		b.refused()
		b.open("successor")
		b.await(1, line{what: "settled", by: "successor", text: "ok"})
		b.drained(20 * time.Second)
		if by := b.result("k"); by != "successor" {
			t.Errorf("the recorded outcome is that of the %s", by)
		}
		if n := b.count(line{what: "effect"}); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// stopInHandler starts a worker, and stops it when its handler runs.
func (b *bench) stopInHandler() *process {
	b.send("k")
	zombie := b.start("zombie", nil, func(c *config) { c.Behave = "gate" })
	b.await(1, line{what: "gate", by: "zombie"})
	zombie.signal(syscall.SIGSTOP)
	b.t.Cleanup(func() { _ = zombie.Process.Signal(syscall.SIGCONT) })
	return zombie
}

// refused waits until the zombie's handler has seen its cancelled context, has
// returned success all the same, and was refused.
func (b *bench) refused() {
	b.t.Helper()
	b.await(1, line{what: "event", by: "zombie", text: "lease-lost"})
	b.open("zombie")
	b.await(1, line{what: "settled", by: "zombie", text: "lost"})
	if b.count(line{what: "event", by: "zombie", text: "cause: secondrun: "}) == 0 {
		b.t.Errorf("the zombie's context was not cancelled with a cause\n%s", b.history())
	}
}
