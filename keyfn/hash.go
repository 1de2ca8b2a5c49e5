package keyfn

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// Hash gives the SHA-256, in hexadecimal, of the part of the JSON body that
// paths choose, in the form of [Canonical]. It is the last resort for events
// without an identity of their own: prefer the fields that name the event, in a
// [Template].
//
// A hash fails in both directions. A field that changes when the event is sent
// again, and is not stripped, makes two keys out of one event. Two events that
// are equal after stripping have one key, and the second never runs; [Watch]
// counts equal hashes of different broker messages.
//
// Errors are those of [JSON] for the body as a whole, [ErrMissing] for a path of
// [Keep] that holds nothing, and [ErrNothingLeft] where nothing is chosen or all
// that is chosen is null, empty or blank. It panics for the zero Paths.
func Hash(paths Paths) Func {
	mustChoose("Hash", paths)
	return Part("Hash", paths.String(), func(m Message) (string, error) {
		return digest(m, paths, sha256.New)
	})
}

// HMAC is [Hash] with HMAC-SHA-256 under a secret, for payloads so small that
// somebody who sees a key could find the payload by trying. All consumers need
// the same secret, and changing it changes every key. It panics for a secret
// below 16 bytes.
func HMAC(secret []byte, paths Paths) Func {
	mustChoose("HMAC", paths)
	if len(secret) < 16 {
		panic("keyfn: HMAC: secret below 16 bytes")
	}
	secret = bytes.Clone(secret)
	return Part("HMAC", paths.String(), func(m Message) (string, error) {
		return digest(m, paths, func() hash.Hash { return hmac.New(sha256.New, secret) })
	})
}

func mustChoose(builder string, paths Paths) {
	if paths.mode == 0 {
		panic("keyfn: " + builder + ": no choice of paths: use Strip, Keep or Everything")
	}
}

func digest(m Message, paths Paths, newHash func() hash.Hash) (string, error) {
	body := m.Body()
	out, err := canonical(make([]byte, 0, len(body)), body, paths)
	if err != nil {
		return "", err
	}
	h := newHash()
	h.Write(out)
	return hex.EncodeToString(h.Sum(nil)), nil
}
