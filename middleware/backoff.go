package secondrun

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential wait with full jitter: after n failures, a random
// duration below Base·2ⁿ⁻¹, capped at Max.
type Backoff struct {
	Base time.Duration // zero means 1 s, or Max if that is shorter
	Max  time.Duration // zero means 15 min, or Base if that is longer; not below Base
}

// check looks at the backoff as it was given.
func (b Backoff) check() error {
	switch {
	case b.Base < 0 || b.Max < 0:
		return fmt.Errorf("the backoff is negative: Base %v, Max %v", b.Base, b.Max)
	case b.Max > 0 && b.Base > b.Max:
		return fmt.Errorf("the backoff begins (Base, %v) above its end (Max, %v)", b.Base, b.Max)
	}
	return nil
}

func (b Backoff) resolve() Backoff {
	b.Base = or(b.Base, min(time.Second, or(b.Max, time.Second)))
	b.Max = max(or(b.Max, 15*time.Minute), b.Base)
	return b
}

// after draws the wait after the given number of failures.
func (b Backoff) after(failures int) time.Duration {
	d := b.Base
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	return jitter(min(d, b.Max))
}

// jitter returns a random duration in (0, d].
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return 1 + rand.N(d) //nolint:gosec // spreads load, guards nothing
}

// around returns d with up to a tenth, and a few milliseconds, added: for
// waits that must not end early.
func around(d time.Duration) time.Duration {
	return d + jitter(max(d/10, 5*time.Millisecond))
}
