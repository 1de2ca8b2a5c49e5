package secondrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// Options are the optional settings of a [Guard]. The zero value, and a nil
// *Options, mean the defaults. A Guard keeps a copy.
type Options struct {
	// Lease is how long a claim holds without a renewal, and so how long the
	// takeover of a dead process takes. Zero means 30 s; at least 100 ms.
	// Renewals go out at a third of it.
	Lease time.Duration
	// Retention is how long a success is kept. It must cover the longest time
	// after which a message can come back: the broker's retention, the
	// dead-letter queue's, and a replay by hand; and it must be longer than the
	// longest run, or the record of a run that crashed late is gone before
	// somebody can take over. Zero means 30 days.
	Retention time.Duration
	// FailureRetention is the same for everything that is not a success; it also
	// bounds how long the effects of a handler that has not succeeded are
	// remembered. Zero means 30 days.
	FailureRetention time.Duration
	// MaxRuntime ends a run's renewals and cancels its context with
	// [ErrMaxRuntime]. A handler that then returns its context's error has
	// failed (transient). Zero means 11 h, below the 12 h that SQS allows.
	MaxRuntime time.Duration
	// Grace is how long a run is still renewed after its consumer's context
	// ended, so that nobody overlaps a handler that is finishing. Zero means
	// 30 s.
	Grace time.Duration

	// MaxFailures is the number of failures (returned errors and panics) after
	// which a key has failed for good. Zero means 10; negative means no limit.
	MaxFailures int
	// MaxCrashes is the number of takeovers after which a key has failed for
	// good: the limit for a message that kills its process. Zero means 5;
	// negative means no limit.
	MaxCrashes int
	// Backoff is the wait after a transient failure.
	Backoff Backoff
	// Unclassified is the class of an error about which nothing is known. Zero
	// means ClassTerminal, so that it surfaces instead of looping; in Mode
	// Observe it means ClassTransient, so that the queue goes on to retry.
	Unclassified Class
	// Classify overrides [Classify] where it does not return zero.
	Classify func(error) Class
	// KeepFailures answers a terminal failure to every later delivery of the
	// key. By default another delivery (a replay from the dead-letter queue)
	// runs again with a new budget.
	KeepFailures bool

	// Takeover is what to do about a run whose lease ended without an outcome.
	// The zero value runs again.
	Takeover Takeover
	// Effects sets the takeover policy of single effects, by name. An effect
	// that is not listed runs again.
	Effects map[string]Takeover

	// Mode is Enforce by default. [Observe] is the way onto a live queue; it also
	// changes what a zero Unclassified means.
	Mode Mode
	// FailOpen runs handlers without a claim while the store is unavailable.
	// Such runs can double; each is reported. By default nothing runs.
	FailOpen bool
	// RunWithoutKey runs handlers without a claim for messages that give no
	// key. By default such a message is dead-lettered.
	RunWithoutKey bool

	// Codec encodes results. Nil means [JSON].
	Codec Codec
	// MaxResult is the limit, in bytes, of an encoded result; a larger one is
	// not kept, and the success is. Zero means 64 KiB; at most 1 MiB less 1 KiB.
	MaxResult int
	// DropResults keeps no results at all: a replay is a bare success.
	DropResults bool
	// RedactError turns a handler's error into the text that is stored and
	// shown to later deliveries. Nil stores the class and the Go type only,
	// since error texts carry payloads. The text is cut at 4 KiB.
	RedactError func(error) string
	// HashKeys stores the SHA-256 of every key in place of the key.
	HashKeys bool
	// Watch, when set, looks at every derived key beside the broker's identity of
	// the message, and warns of keys that cannot be right. Nil means no watch.
	Watch *keyfn.Watch
	// FingerprintKey, when set, makes fingerprints an HMAC-SHA-256 with this
	// key, for contents that could be guessed.
	FingerprintKey []byte

	// Holder names this process to people who look at a claim. Empty means
	// host name and process id.
	Holder string

	// CallTimeout limits one call of the store. Zero means a tenth of the
	// lease, at least 1 s and at most 5 s.
	CallTimeout time.Duration
	// ClaimTimeout limits a claim with its repetitions. Zero means a third of
	// the lease.
	ClaimTimeout time.Duration
	// SettleTimeout limits how long an outcome is tried to be recorded. Zero
	// means 60 s. Renewals go on meanwhile.
	SettleTimeout time.Duration

	// Telemetry says where spans and metrics go. Nil means the global providers
	// of OpenTelemetry, which do nothing until the program sets them; in
	// [Guard.Sub] it means the parent's.
	Telemetry *Telemetry
	// OnEvent is told everything that happens. It is called synchronously on
	// the path of the work and must return quickly.
	OnEvent func(ctx context.Context, e Event)
}

// Mode says what a Guard does with its verdicts.
type Mode uint8

const (
	// Enforce lets only granted deliveries run.
	Enforce Mode = iota
	// Observe claims and records, but runs every delivery, and reports what
	// would have been suppressed. It is a safe way onto a live queue: nothing is
	// kept from running, and an error about which nothing is known is retried,
	// not dead-lettered, unless Options.Unclassified says so. Errors that are
	// marked or recognised, and MaxFailures, count as in Enforce.
	//
	// In a delivery that would have been suppressed, [Once] runs its function
	// again as well: such a run holds no claim that an effect could belong to.
	Observe
)

// unclassified is the class of an unknown error unless the options say it.
func (m Mode) unclassified() Class {
	if m == Observe {
		return ClassTransient
	}
	return ClassTerminal
}

// Takeover is the policy for a run, or an effect, whose lease ended without an
// outcome. An expired lease means that the outcome is unknown, not that the
// run failed. The zero value takes over and runs again.
type Takeover struct {
	// Park never repeats by itself: the key is answered with [ErrParked] until
	// an operator reopens it.
	Park bool
	// Probe asks the outside world, by a reference of your own, whether the
	// earlier run had its effect, before anything is repeated. It runs under
	// the new claim. When it fails or panics, the claim is left to expire, and
	// the next owner asks again; each time counts as a crash. Park must not be
	// set.
	Probe func(ctx context.Context, key string) (Probed, error)
}

// Probed is the answer of a probe.
type Probed struct {
	Answer ProbeAnswer
	Result any // with ProbeDone: the result to record
}

// ProbeAnswer says whether an effect happened.
type ProbeAnswer uint8

// Answers of a probe. The zero value is ProbeUnknown.
const (
	ProbeUnknown ProbeAnswer = iota // park
	ProbeDone                       // record the success without a run
	ProbeNotDone                    // run
)

// keepFor is how long a record is kept that waits: the wait must not outlive it.
func (o *Options) keepFor(wait time.Duration) time.Duration {
	if o.FailureRetention > math.MaxInt64-wait {
		return math.MaxInt64
	}
	return o.FailureRetention + wait
}

const day = 24 * time.Hour

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	r.Lease = or(r.Lease, 30*time.Second)
	r.Retention = or(r.Retention, 30*day)
	r.FailureRetention = or(r.FailureRetention, 30*day)
	r.MaxRuntime = or(r.MaxRuntime, 11*time.Hour)
	r.Grace = or(r.Grace, 30*time.Second)
	r.MaxFailures = or(r.MaxFailures, 10)
	r.MaxCrashes = or(r.MaxCrashes, 5)
	r.Unclassified = or(r.Unclassified, r.Mode.unclassified())
	r.MaxResult = or(r.MaxResult, 64<<10)
	r.CallTimeout = or(r.CallTimeout, min(max(r.Lease/10, time.Second), 5*time.Second))
	r.ClaimTimeout = or(r.ClaimTimeout, r.Lease/3)
	r.SettleTimeout = or(r.SettleTimeout, time.Minute)
	backoff := r.Backoff.check()
	r.Backoff = r.Backoff.resolve()
	if r.Codec == nil {
		r.Codec = JSON
	}
	if r.Holder == "" {
		r.Holder = holder()
	}
	r.Effects, r.FingerprintKey = maps.Clone(r.Effects), bytes.Clone(r.FingerprintKey)
	return r, errors.Join(backoff, r.check())
}

func (o *Options) check() error {
	var errs []error
	positive := func(name string, d time.Duration) {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is negative: %v", name, d))
		}
	}
	for name, d := range map[string]time.Duration{
		"Retention": o.Retention, "FailureRetention": o.FailureRetention, "MaxRuntime": o.MaxRuntime,
		"Grace": o.Grace, "CallTimeout": o.CallTimeout, "ClaimTimeout": o.ClaimTimeout, "SettleTimeout": o.SettleTimeout,
	} {
		positive(name, d)
	}
	if o.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("the lease (%v) must be 100ms at least", o.Lease))
	}
	if o.Retention < o.Lease || o.FailureRetention < o.Lease {
		errs = append(errs, fmt.Errorf("both retentions (%v, %v) must be longer than the lease (%v)",
			o.Retention, o.FailureRetention, o.Lease))
	}
	if o.Mode > Observe {
		errs = append(errs, fmt.Errorf("the mode must be Enforce or Observe: %d", o.Mode))
	}
	if o.Unclassified > ClassTerminal {
		errs = append(errs, fmt.Errorf("the class of the unclassified must be ClassTransient or ClassTerminal: %d", o.Unclassified))
	}
	if o.MaxResult < 0 || o.MaxResult > store.MaxPayload-1024 {
		errs = append(errs, fmt.Errorf("MaxResult must lie between 0 and %d: %d", store.MaxPayload-1024, o.MaxResult))
	}
	if len(o.Holder) > store.MaxText {
		errs = append(errs, fmt.Errorf("the holder is longer than %d bytes", store.MaxText))
	}
	if name := o.Codec.Name(); len(name) > maxCodecName {
		errs = append(errs, fmt.Errorf("the name of the codec is longer than %d bytes: %q", maxCodecName, name))
	}
	for name, t := range o.Effects {
		if t.Park && t.Probe != nil {
			errs = append(errs, fmt.Errorf("effect %q: Park and Probe exclude each other", name))
		}
	}
	if o.Takeover.Park && o.Takeover.Probe != nil {
		errs = append(errs, errors.New("takeover: Park and Probe exclude each other"))
	}
	return errors.Join(errs...)
}

// limit turns a limit of the options (negative: none) into one of the store
// (zero: none).
func limit(n int) int { return max(n, 0) }

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func holder() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 200 {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
