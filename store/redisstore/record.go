package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
)

// A record is one value, all numbers big-endian:
//
//	 0  magic 0xD2
//	 1  format version 1
//	 2  state (bits 0-2, as in the table below), takeover (3), effects (4),
//	    judge (5), fingerprint (6), parent (7)
//	 3  token, 16 bytes
//	19  end of the lease, or instant of the next grant, µs since 1970, 7 bytes
//	26  end of the retention, likewise; 0 for effects
//	33  fence, 6 bytes; starts, failures, crashes, 4 bytes each
//	51  lengths of delivery (2 bytes), meta (2) and payload (3)
//	58  judge 16, parent 16, fingerprint 34: each only with its bit;
//	    delivery, meta, payload
//
// Meta holds what the scripts need not understand: holder and trace.
const (
	magic      = 0xD2
	version    = 1
	headerSize = 58
	maxMicros  = 200 * 365 * 24 * 3600 * 1_000_000 // sums stay below 2^53, which a Lua number holds
)

var states = [8]struct {
	state   store.State
	failure store.Failure
}{
	1: {store.StateClaimed, 0},
	2: {store.StateReleased, 0},
	3: {store.StateSucceeded, 0},
	4: {store.StateFailed, store.FailedTransient},
	5: {store.StateFailed, store.FailedTerminal},
	6: {store.StateFailed, store.FailedExhausted},
	7: {store.StateFailed, store.FailedParked},
}

// record is a decoded record without its token, which nobody here needs.
type record struct {
	state       store.State
	failure     store.Failure
	took        bool
	until       int64 // µs
	expires     int64 // µs
	fence       int64
	starts      int
	failures    int
	crashes     int
	fingerprint store.Fingerprint
	delivery    string
	holder      string
	trace       string
	payload     []byte
}

// header reads the fixed part of v. The scripts have checked what they hand
// out; the checks here are for records that reach us unchecked.
func header(v string) (r record, flags byte, err error) {
	switch {
	case len(v) < 2 || v[0] != magic:
		return r, 0, fmt.Errorf("redisstore: not a record: %w", store.ErrCorrupt)
	case v[1] != version:
		return r, 0, fmt.Errorf("redisstore: record format %d: %w", v[1], store.ErrIncompatible)
	case len(v) < headerSize || v[2]&7 == 0:
		return r, 0, fmt.Errorf("redisstore: record header: %w", store.ErrCorrupt)
	}
	flags = v[2]
	r.state, r.failure = states[flags&7].state, states[flags&7].failure
	r.took = flags&8 != 0
	r.until, r.expires, r.fence = number(v[19:26]), number(v[26:33]), number(v[33:39])
	r.starts, r.failures, r.crashes = int(number(v[39:43])), int(number(v[43:47])), int(number(v[47:51]))
	return r, flags, nil
}

// decode reads the whole of v.
func decode(v string) (record, error) {
	r, flags, err := header(v)
	if err != nil {
		return r, err
	}
	deliveries, metas, payloads := int(number(v[51:53])), int(number(v[53:55])), int(number(v[55:58]))
	rest := v[headerSize:]
	take := func(n int) (part string) {
		if n > len(rest) {
			err, n = store.ErrCorrupt, len(rest)
		}
		part, rest = rest[:n], rest[n:]
		return part
	}
	if flags&32 != 0 {
		take(16)
	}
	if flags&128 != 0 {
		take(16)
	}
	if flags&64 != 0 {
		var ferr error
		if r.fingerprint, ferr = store.ParseFingerprint([]byte(take(34))); ferr != nil {
			err = ferr
		}
	}
	r.delivery = take(deliveries)
	meta := take(metas)
	if payloads > 0 {
		r.payload = []byte(take(payloads))
	}
	var ok bool
	if r.holder, r.trace, ok = decodeMeta(meta); !ok || rest != "" || err != nil {
		return record{}, fmt.Errorf("redisstore: record body: %w", store.ErrCorrupt)
	}
	return r, nil
}

// number reads up to 7 big-endian bytes.
func number(s string) (n int64) {
	for i := range len(s) {
		n = n<<8 | int64(s[i])
	}
	return n
}

// traceparent marks a W3C trace context kept as its 26 bytes, which saves 30
// bytes in every record; otherwise the trace is kept as text after plain.
const (
	plain       = 0
	traceparent = 1
)

func encodeMeta(holder, trace string) []byte {
	if holder == "" && trace == "" {
		return nil
	}
	b := binary.AppendUvarint(make([]byte, 0, 3+len(holder)+len(trace)), uint64(len(holder)))
	b = append(b, holder...)
	if trace == "" {
		return b
	}
	if packed, ok := packTrace(trace); ok {
		return append(append(b, traceparent), packed[:]...)
	}
	return append(append(b, plain), trace...)
}

func decodeMeta(s string) (holder, trace string, ok bool) {
	if s == "" {
		return "", "", true
	}
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(s)-size) {
		return "", "", false
	}
	holder, s = s[size:size+int(n)], s[size+int(n):] //nolint:gosec // n is at most len(s)
	switch {
	case s == "":
		return holder, "", true
	case s[0] == plain:
		return holder, s[1:], true
	case s[0] == traceparent && len(s) == 27:
		h := hex.EncodeToString([]byte(s[1:]))
		return holder, h[:2] + "-" + h[2:34] + "-" + h[34:50] + "-" + h[50:], true
	default:
		return "", "", false
	}
}

// packTrace packs "vv-<32 digits>-<16 digits>-ff" in lower case, and nothing
// that it could not give back exactly.
func packTrace(s string) (p [26]byte, ok bool) {
	if len(s) != 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return p, false
	}
	digits := s[:2] + s[3:35] + s[36:52] + s[53:]
	if _, err := hex.Decode(p[:], []byte(digits)); err != nil {
		return p, false
	}
	return p, hex.EncodeToString(p[:]) == digits
}

// micros rounds up, so that no duration becomes zero.
func micros(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	us := int64(d / time.Microsecond)
	if d%time.Microsecond != 0 {
		us++
	}
	return min(us, maxMicros)
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// shown is the record as operators see it. parent is nil for a record that is
// not an effect's; an effect ends when its parent ends.
func (r *record) shown(id store.ID, parent *record) store.Record {
	rec := store.Record{
		ID: id, State: r.state, Failure: r.failure, Fence: r.fence,
		Starts: r.starts, Failures: r.failures, Crashes: r.crashes,
		Fingerprint: r.fingerprint, Delivery: r.delivery,
		Holder: r.holder, Trace: r.trace, Payload: r.payload,
	}
	if parent == nil {
		parent = r
	}
	rec.ExpiresAt = instant(parent.expires)
	if r.state == store.StateClaimed {
		rec.LeaseUntil = instant(r.until)
	} else {
		rec.NotBefore = instant(r.until)
	}
	return rec
}

// ends is the instant at which a record that is not an effect's is absent.
func (r *record) ends() int64 {
	if r.state == store.StateClaimed {
		return max(r.until, r.expires)
	}
	return r.expires
}
