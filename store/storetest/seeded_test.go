package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/store/storetest/seeded"
)

// recorder stands for a testing.TB and keeps what a check reports, so that a
// check can fail without failing the test.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Errorf(f string, a ...any) { r.record(fmt.Sprintf(f, a...)) }
func (r *recorder) Error(a ...any)            { r.record(fmt.Sprint(a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.record(fmt.Sprintf(f, a...)); runtime.Goexit() }
func (r *recorder) Fatal(a ...any)            { r.record(fmt.Sprint(a...)); runtime.Goexit() }
func (r *recorder) Skip(...any)               { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)      { runtime.Goexit() }

func (r *recorder) record(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

// failing runs the checks against h until limit of them have failed, and returns
// their names.
func failing(t *testing.T, h Harness, limit int) []string {
	var names []string
	for _, g := range groups() {
		for _, c := range g.checks {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(newEnv(r, h))
			}()
			<-done
			if len(r.failures) > 0 {
				names = append(names, g.name+"/"+c.name)
				t.Logf("%s/%s: %.200s", g.name, c.name, r.failures[0])
			}
			if len(names) >= limit {
				return names
			}
		}
	}
	return names
}

func TestSuiteFindsEverySeededBug(t *testing.T) {
	for _, b := range seeded.Bugs() {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			if len(failing(t, Harness{Store: b.Store()}, 1)) == 0 {
				t.Errorf("no check failed")
			}
		})
	}
}

func TestSuiteFindsEverySeededBugInFakeTime(t *testing.T) {
	for _, b := range seeded.Bugs() {
		t.Run(b.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if len(failing(t, Harness{Store: b.Store(), Wait: time.Sleep, Exact: true}, 1000)) == 0 {
					t.Errorf("no check failed")
				}
			})
		})
	}
}

func TestRecorderSeesNoFailureOfACorrectStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if names := failing(t, Harness{Store: seeded.Correct(), Wait: time.Sleep, Exact: true}, 1000); len(names) > 0 {
			t.Errorf("failing: %v", names)
		}
	})
}
