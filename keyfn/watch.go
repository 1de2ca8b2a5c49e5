package keyfn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"
)

// WarningKind says what a [Watch] noticed.
type WarningKind uint8

// Kinds of warnings.
const (
	// WarnTransportID: the key is, or holds, the broker's id of the message.
	// Every resend by the producer and every replay has another one.
	WarnTransportID WarningKind = iota + 1
	// WarnUnstable: a redelivery of one broker message gave another key than
	// the delivery before. Something in the key changes.
	WarnUnstable
	// WarnEqualHash: two broker messages gave one key, and it holds a hash.
	// Either the producer sent twice, or two events are equal after stripping
	// and the second is lost.
	WarnEqualHash
	// WarnNewer: messages of a version newer than the code have been coming for
	// longer than WatchOptions.NewerAfter.
	WarnNewer

	warningKinds
)

// String is for metrics and logs.
func (k WarningKind) String() string {
	switch k {
	case WarnTransportID:
		return "transport_id"
	case WarnUnstable:
		return "unstable"
	case WarnEqualHash:
		return "equal_hash"
	case WarnNewer:
		return "newer"
	}
	return "none"
}

// Warning is one thing a [Watch] noticed. It holds no text of the message.
type Warning struct {
	Kind    WarningKind
	KeyHash string // the first 8 hexadecimal digits of the SHA-256 of the key; empty for WarnNewer
	Version int    // of the payload, for WarnNewer
}

// WatchOptions are the options of [NewWatch]. Nil and zero values mean the
// defaults.
type WatchOptions struct {
	// OnWarning is called for every warning, and must be quick and safe for
	// concurrent use. Nil means that warnings are only counted.
	OnWarning func(Warning)
	// Remember is how many recent broker messages, and as many recent hashes,
	// are remembered, about 100 bytes each; zero means 10,000.
	Remember int
	// NewerAfter is how long messages of a newer version may come before they
	// are reported, once for each version; zero means 10 minutes.
	NewerAfter time.Duration
}

// Watch looks at derived keys while a consumer runs and warns of those that
// cannot be right. It changes no key. It sees only what this process sees and
// remembers, so silence is no proof. It is safe for concurrent use.
type Watch struct {
	opts WatchOptions

	mu        sync.Mutex
	byMessage recent // broker message → key
	byHash    recent // key that holds a hash → broker message
	newer     map[int]newerSeen
	counts    [warningKinds]uint64
	failures  map[error]uint64
}

// newerSeen is when messages of a newer version were seen first.
type newerSeen struct {
	first    time.Time
	reported bool
}

// maxNewer bounds how many versions are remembered.
const maxNewer = 100

// NewWatch returns a Watch.
func NewWatch(opts *WatchOptions) *Watch {
	w := &Watch{newer: map[int]newerSeen{}, failures: map[error]uint64{}}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.Remember <= 0 {
		w.opts.Remember = 10_000
	}
	if w.opts.NewerAfter <= 0 {
		w.opts.NewerAfter = 10 * time.Minute
	}
	return w
}

// Func returns f with its keys watched. id reads the broker's id of a message;
// it is used for nothing but to compare.
func (w *Watch) Func(id func(Message) string, f Func) Func {
	mustParts("Watch", []Func{f})
	if id == nil {
		panic("keyfn: Watch: nil function")
	}
	return func(m Message) (string, error) {
		key, err := f(m)
		if err != nil {
			w.Failed(err)
		} else {
			w.Derived(key, id(m))
		}
		return key, err
	}
}

// Derived tells the watch that a delivery of the broker message with this id
// gave this key. An empty id tells nothing.
func (w *Watch) Derived(key, id string) {
	if key == "" || id == "" {
		return
	}
	k, m := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(id))
	var found []WarningKind
	if holdsID(key, id) {
		found = append(found, WarnTransportID)
	}
	w.mu.Lock()
	if old, ok := w.byMessage.swap(m, k, w.opts.Remember); ok && old != k {
		found = append(found, WarnUnstable)
	}
	if holdsHash(key) {
		if old, ok := w.byHash.swap(k, m, w.opts.Remember); ok && old != m {
			found = append(found, WarnEqualHash)
		}
	}
	for _, kind := range found {
		w.counts[kind]++
	}
	w.mu.Unlock()
	for _, kind := range found {
		w.report(Warning{Kind: kind, KeyHash: hex.EncodeToString(k[:4])})
	}
}

func (w *Watch) report(warning Warning) {
	if w.opts.OnWarning != nil {
		w.opts.OnWarning(warning)
	}
}

// Failed tells the watch that a message gave no key.
func (w *Watch) Failed(err error) {
	reason := reasonOf(err)
	var newer *NewerError
	warn := false
	w.mu.Lock()
	w.failures[reason]++
	if errors.As(err, &newer) {
		warn = w.stayedNewer(newer.Version, time.Now())
	}
	w.mu.Unlock()
	if warn {
		w.report(Warning{Kind: WarnNewer, Version: newer.Version})
	}
}

// stayedNewer notes a newer version and reports whether it is to be reported
// now.
func (w *Watch) stayedNewer(version int, now time.Time) bool {
	seen, ok := w.newer[version]
	if !ok {
		if len(w.newer) < maxNewer {
			w.newer[version] = newerSeen{first: now}
		}
		return false
	}
	if seen.reported || now.Sub(seen.first) < w.opts.NewerAfter {
		return false
	}
	seen.reported = true
	w.newer[version] = seen
	w.counts[WarnNewer]++
	return true
}

// ErrOther stands for every reason that is not one of this package, in
// [Watch.Failures].
var ErrOther = errors.New("other")

func reasonOf(err error) error {
	for _, reason := range []error{
		ErrMissing, ErrNull, ErrEmpty, ErrType, ErrTooLong, ErrMalformed, ErrAmbiguous,
		ErrNothingLeft, ErrBatch, ErrUnresolved, ErrSkip, ErrNewer,
	} {
		if errors.Is(err, reason) {
			return reason
		}
	}
	return ErrOther
}

// Warnings returns how many warnings of a kind there were.
func (w *Watch) Warnings(kind WarningKind) uint64 {
	if kind >= warningKinds {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[kind]
}

// Failures returns how many messages gave no key for a reason of this package,
// or [ErrOther].
func (w *Watch) Failures(reason error) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures[reason]
}

// holdsID reports whether a key is an id, or has it as a whole part. An id of a
// few characters, such as an offset, would be found by chance.
func holdsID(key, id string) bool {
	if key == id {
		return true
	}
	const short = 8
	if len(id) < short {
		return false
	}
	id = string(escape(nil, id, ""))
	for rest := key; ; {
		i := strings.Index(rest, id)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(id):]
		if !endsInWord(before) && !beginsWithWord(after) {
			return true
		}
		rest = after
	}
}

func endsInWord(s string) bool     { return s != "" && isASCIILetterOrDigit(s[len(s)-1]) }
func beginsWithWord(s string) bool { return s != "" && isASCIILetterOrDigit(s[0]) }

// holdsHash reports whether a key has a run of exactly 64 hexadecimal digits in
// lower case, as [Hash] gives them.
func holdsHash(key string) bool {
	run := 0
	for i := 0; i <= len(key); i++ {
		if i < len(key) && (key[i] >= '0' && key[i] <= '9' || key[i] >= 'a' && key[i] <= 'f') {
			run++
			continue
		}
		if run == 2*sha256.Size {
			return true
		}
		run = 0
	}
	return false
}

// recent remembers the last so many entries, oldest forgotten first.
type recent struct {
	entries map[[sha256.Size]byte][sha256.Size]byte
	order   [][sha256.Size]byte
	next    int
}

// swap stores v under k and returns what was there.
func (r *recent) swap(k, v [sha256.Size]byte, limit int) (old [sha256.Size]byte, ok bool) {
	if r.entries == nil {
		r.entries = map[[sha256.Size]byte][sha256.Size]byte{}
	}
	if old, ok = r.entries[k]; !ok {
		if len(r.order) < limit {
			r.order = append(r.order, k)
		} else {
			delete(r.entries, r.order[r.next])
			r.order[r.next] = k
			r.next = (r.next + 1) % limit
		}
	}
	r.entries[k] = v
	return old, ok
}
