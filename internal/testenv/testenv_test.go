package testenv

import (
	"runtime"
	"testing"
)

func TestSeedIsRepeated(t *testing.T) {
	t.Setenv(seedVar, "7")
	if got := Seed(t); got != 7 {
		t.Errorf("Seed = %d, want 7", got)
	}
}

func TestMissingServiceIsSkippedUnlessRequired(t *testing.T) {
	const variable = "SECONDRUN_TESTENV_NOWHERE"
	for _, test := range []struct {
		require         string
		skipped, failed bool
	}{
		{"", true, false},
		{"1", false, true},
	} {
		t.Setenv(requireVar, test.require)
		tb := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Get(tb, variable)
		}()
		<-done
		if tb.skipped != test.skipped || tb.failed != test.failed {
			t.Errorf("%s=%q: skipped %v, failed %v", requireVar, test.require, tb.skipped, tb.failed)
		}
	}
	t.Setenv(variable, "a,b")
	if got := List(t, variable); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("List = %q", got)
	}
}

// recorder notes how a test would have ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true; runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }
