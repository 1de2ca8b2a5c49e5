package secondrun_test

import (
	"context"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// TestBackoffMaxAloneCapsTheFirstWait: a Max below the default Base counts.
func TestBackoffMaxAloneCapsTheFirstWait(t *testing.T) {
	bubble(t, &secondrun.Options{Backoff: secondrun.Backoff{Max: time.Millisecond}}, func(f *fixture) {
		fails := process(f.g, func(context.Context, msg) error { return secondrun.Transient(errBad) })
		for _, key := range []string{"a", "b", "c", "d"} {
			d := fails.Process(f.Context(), delivery(key))
			is(f, "action", d.Action, secondrun.Retry)
			if d.After <= 0 || d.After > time.Millisecond {
				f.Errorf("waits %v, at most 1ms", d.After)
			}
		}
	})
}
