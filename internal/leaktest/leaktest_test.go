package leaktest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// recorder is a testing.TB that keeps what Check reports.
type recorder struct {
	testing.TB
	cleanup func()
	errors  []any
}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(f func())  { r.cleanup = f }
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, args...) }
func leak(stop <-chan struct{})       { <-stop }
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it never happened")
}

func TestH13_GoroutineThatStaysIsReported(t *testing.T) {
	waitUntil(t, func() bool { return len(leaked(nil)) == 0 }) // the end of the tests before this one
	stop := make(chan struct{})
	go leak(stop)
	left := wait(nil, 0)
	if len(left) != 1 || !strings.Contains(report(left), "leaktest.TestH13_GoroutineThatStaysIsReported") {
		t.Errorf("left = %v, want the one goroutine of this test", left)
	}
	close(stop)
	waitUntil(t, func() bool { return len(leaked(nil)) == 0 })
}

func TestH13_CheckSeesOnlyNewGoroutines(t *testing.T) {
	stop, slow := make(chan struct{}), make(chan struct{})
	defer close(stop)
	go leak(stop) // older than Check
	r := &recorder{TB: t}
	Check(r)
	go func() { leak(slow) }()
	time.AfterFunc(50*time.Millisecond, func() { close(slow) })
	r.cleanup()
	if len(r.errors) != 0 {
		t.Errorf("reported a goroutine that ended within the grace: %v", r.errors)
	}
}

const leakVar = "LEAKTEST_LEAK"

// TestLeaker leaves a goroutine behind when the test below asks for it.
func TestLeaker(t *testing.T) {
	if os.Getenv(leakVar) == "" {
		t.Skip("only in the process that TestH13_MainFailsTheProcess starts")
	}
	go leak(make(chan struct{}))
}

func TestH13_MainFailsTheProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeaker$") //nolint:gosec // this very test
	cmd.Env = append(os.Environ(), leakVar+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "leaktest.TestLeaker") {
		t.Errorf("a process that leaks a goroutine ended with %v:\n%s", err, out)
	}
}
