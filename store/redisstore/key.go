package redisstore

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/secondrun/secondrun/store"
)

const (
	defaultPrefix = "secondrun"
	effectsSuffix = ":effects"
)

func checkPrefix(prefix string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9:_-]{1,64}$`).MatchString(prefix) {
		return fmt.Errorf("redisstore: prefix %q must match [A-Za-z0-9:_-]{1,64}: %w", prefix, store.ErrPermanent)
	}
	return nil
}

// keys names the record of id, and the effect. The hash of the effects has the
// same name with effectsSuffix. The part in braces is what Redis Cluster hashes,
// so both keys share a slot.
// Braces of the caller are escaped and can neither choose nor split the slot;
// the first colon inside the braces ends the scope, so the colons of the scope
// are escaped too, and those of the key, which are many, are not.
func (s *Store) keys(id store.ID) (record, effect string) {
	scope, key, effect := id.Encode()
	record = s.prefix + ":{" + escape(scope, "%{}:") + ":" + escape(key, "%{}") + "}"
	return record, effect
}

// pattern matches the records of a scope, for SCAN.
func (s *Store) pattern(scope string) string {
	scope, _, _ = store.ID{Scope: scope}.Encode()
	text := escape(scope, "%{}:")
	var b strings.Builder
	b.WriteString(s.prefix)
	b.WriteString(":{")
	for i := range len(text) {
		if strings.IndexByte(`*?[]\^-`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteString(":*}")
	return b.String()
}

// parseKey is the reverse of keys.
func (s *Store) parseKey(record string) (scope, key string, ok bool) {
	text, ok := strings.CutPrefix(record, s.prefix+":{")
	if !ok {
		return "", "", false
	}
	if text, ok = strings.CutSuffix(text, "}"); !ok {
		return "", "", false
	}
	scope, key, ok = strings.Cut(text, ":")
	if !ok {
		return "", "", false
	}
	scope, ok1 := unescape(scope)
	key, ok2 := unescape(key)
	return scope, key, ok1 && ok2
}

const hexDigits = "0123456789ABCDEF"

func escape(s, special string) string {
	if !strings.ContainsAny(s, special) {
		return s
	}
	b := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		if strings.IndexByte(special, s[i]) >= 0 {
			b = append(b, '%', hexDigits[s[i]>>4], hexDigits[s[i]&15])
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b = append(b, byte(hi<<4|lo)) //nolint:gosec // both are below 16
		i += 2
	}
	return string(b), true
}
