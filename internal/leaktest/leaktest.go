// Package leaktest fails tests that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// grace is how long goroutines may take to end after the test did.
const grace = 5 * time.Second

// Main runs the tests of a package and ends the process, like
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
//
// If all passed but goroutines remain that neither the runtime nor package
// testing started, it prints their stacks and fails. Goroutines get a few
// seconds to end. It cannot see which test left them; for that see [Check].
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := wait(nil, grace); len(left) > 0 {
			fmt.Fprint(os.Stderr, report(left))
			code = 1
		}
	}
	os.Exit(code)
}

// Check fails tb, when it ends, if goroutines remain that did not exist when
// Check was called. It is for tests that do not run in parallel with others, and
// must be called outside of a synctest bubble. Cleanups that were registered
// after Check run before it looks.
func Check(tb testing.TB) {
	tb.Helper()
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[g.id] = true
	}
	tb.Cleanup(func() {
		if left := wait(before, grace); len(left) > 0 {
			tb.Error(report(left))
		}
	})
}

// wait polls until no goroutine is left that is neither in before nor
// expected, and returns those that are left after d.
func wait(before map[string]bool, d time.Duration) []goroutine {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		left := leaked(before)
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func leaked(before map[string]bool) []goroutine {
	var left []goroutine
	for _, g := range goroutines() {
		if !before[g.id] && !g.expected() {
			left = append(left, g)
		}
	}
	return left
}

func report(left []goroutine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leaktest: %d goroutines are left:\n", len(left))
	for _, g := range left {
		fmt.Fprintf(&b, "\n%s\n", g.stack)
	}
	return b.String()
}

type goroutine struct {
	id    string
	stack string
}

// goroutines returns all but the calling one.
func goroutines() []goroutine {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var all []goroutine
	for i, s := range strings.Split(string(buf), "\n\n") {
		if i == 0 { // the caller comes first
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(s, "goroutine "), " ")
		all = append(all, goroutine{id: id, stack: strings.TrimSpace(s)})
	}
	return all
}

// expected reports whether the runtime or package testing keeps g for itself.
func (g goroutine) expected() bool {
	for _, f := range []string{
		"\ntesting.Main(", "\ntesting.(*M).", "\ntesting.(*T).Run(", "\ntesting.(*T).Parallel(",
		"\ntesting.tRunner.func", "\ntesting.runTests", "\ntesting.(*F).Fuzz(", "\ntesting.(*B).",
		"\ninternal/fuzz.", "\nos/signal.signal_recv(", "\nos/signal.loop(", "\nruntime.ensureSigM",
		"\nruntime.ReadTrace(", "\nruntime/pprof.profileWriter(",
		"created by runtime.", "created by testing.(*M).startAlarm",
	} {
		if strings.Contains(g.stack, f) {
			return true
		}
	}
	return false
}
