package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MaxKey is the limit, in bytes, of every part of an [ID].
const MaxKey = 64 << 10

const (
	maxReadable  = 128
	digestPrefix = "sha256:"
)

// ID names a record.
type ID struct {
	Scope  string // the consumer
	Key    string // the domain key
	Effect string // the effect within the handler; empty for the handler itself

	// digests has a bit for every part that already is in its stored, hashed
	// spelling; see DecodeID and Hashed.
	digests uint8
}

// Encode returns the spelling of the three parts that a store should keep. Each
// is at most 128 bytes of valid UTF-8 without control characters. Text of that
// kind is kept as it is; anything else becomes "sha256:" and 64 hexadecimal
// digits. Text that begins with "sha256:" is hashed too, so that different IDs
// never share a spelling.
func (id ID) Encode() (scope, key, effect string) {
	return encode(id.Scope, id.digests&1 != 0), encode(id.Key, id.digests&2 != 0), encode(id.Effect, id.digests&4 != 0)
}

// DecodeID returns the ID whose Encode gives these spellings. Where a part was
// hashed, the part of the ID is the spelling and not the original text; it
// still names the same record.
func DecodeID(scope, key, effect string) ID {
	id := ID{Scope: scope, Key: key, Effect: effect}
	for bit, s := range []string{scope, key, effect} {
		if isDigest(s) {
			id.digests |= 1 << bit
		}
	}
	return id
}

// Hashed returns id with its key replaced by the SHA-256 of it, for those who
// must not keep readable keys.
func (id ID) Hashed() ID {
	if id.digests&2 == 0 {
		id.Key = digest(id.Key)
		id.digests |= 2
	}
	return id
}

// KeyHash returns the first 8 hexadecimal digits of a SHA-256 over the encoded
// ID: what logs and spans show in place of a key.
func (id ID) KeyHash() string {
	scope, key, effect := id.Encode()
	h := sha256.New()
	for _, s := range []string{scope, key, effect} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(s))) //nolint:gosec // at most 128
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// Parent returns the ID without its effect.
func (id ID) Parent() ID {
	id.Effect = ""
	id.digests &^= 4
	return id
}

// Compare orders IDs by scope, key and effect, bytewise. A parent comes before
// its effects.
func (id ID) Compare(other ID) int {
	if c := strings.Compare(id.Scope, other.Scope); c != 0 {
		return c
	}
	if c := strings.Compare(id.Key, other.Key); c != 0 {
		return c
	}
	if c := strings.Compare(id.Effect, other.Effect); c != 0 {
		return c
	}
	return int(id.digests) - int(other.digests)
}

// Len returns the length, in bytes, of the longest part.
func (id ID) Len() int { return max(len(id.Scope), len(id.Key), len(id.Effect)) }

func encode(s string, digested bool) string {
	if digested || readable(s) {
		return s
	}
	return digest(s)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return digestPrefix + hex.EncodeToString(sum[:])
}

func isDigest(s string) bool {
	return len(s) == len(digestPrefix)+2*sha256.Size && strings.HasPrefix(s, digestPrefix)
}

func readable(s string) bool {
	if len(s) > maxReadable || strings.HasPrefix(s, digestPrefix) {
		return false
	}
	var high byte
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
		high |= s[i]
	}
	return high < utf8.RuneSelf || utf8.ValidString(s)
}

// Token identifies one claim. It is chosen by the caller before the claim is
// sent, so that a lost reply leaves no claim without a known owner. It is a
// secret: who knows it can settle the claim.
type Token [16]byte

// NewToken returns 128 random bits.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // never fails, see crypto/rand
	return t
}

// IsZero reports whether t is the zero token, which owns nothing.
func (t Token) IsZero() bool { return t == Token{} }

// String hides the token: it must not reach logs.
func (t Token) String() string { return "token" }

// GoString hides the token as String does.
func (t Token) GoString() string { return "token" }

// Fingerprint identifies the content of a message by a digest over named,
// stable fields. Fingerprints of different versions are not compared. The zero
// Fingerprint (version 0) means none.
type Fingerprint struct {
	Version uint16
	Sum     [sha256.Size]byte
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.Version == 0 }

// Conflicts reports whether both fingerprints are present, of the same version,
// and different.
func (f Fingerprint) Conflicts(other Fingerprint) bool {
	return !f.IsZero() && f.Version == other.Version && f.Sum != other.Sum
}

// Bytes returns the 34 bytes that a store keeps, nil for none.
func (f Fingerprint) Bytes() []byte {
	if f.IsZero() {
		return nil
	}
	return append(binary.BigEndian.AppendUint16(nil, f.Version), f.Sum[:]...)
}

// ParseFingerprint reads what Bytes wrote.
func ParseFingerprint(b []byte) (Fingerprint, error) {
	var f Fingerprint
	if len(b) == 0 {
		return f, nil
	}
	if len(b) != 2+len(f.Sum) {
		return f, ErrCorrupt
	}
	f.Version = binary.BigEndian.Uint16(b)
	copy(f.Sum[:], b[2:])
	return f, nil
}
