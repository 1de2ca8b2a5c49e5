package keyfn

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Part makes a part of one's own: f, with the name under which errors and
// [Explain] show it and the path it reads. Like every part of this package it
// answers with an [Error] that holds this name unless f returned an Error of
// its own, and it refuses a value that is empty, only white space, or longer
// than [MaxKey]. What f returns should be one to one with what it means: [Join]
// and [Template] escape it, but cannot tell apart what f made equal.
func Part(builder, path string, f func(Message) (string, error)) Func {
	if f == nil {
		panic("keyfn: " + builder + ": nil function")
	}
	return func(m Message) (string, error) {
		t := tracing(m)
		step := t.enter()
		s, err := f(m)
		if err == nil {
			err = usable(s)
		}
		if err != nil {
			s, err = "", asError(builder, path, err)
		}
		t.leave(step, builder, path, s, err)
		return s, err
	}
}

// usable returns the reason why s cannot be a value, nil if it can.
func usable(s string) error {
	switch {
	case s == "":
		return ErrEmpty
	case len(s) > MaxKey:
		return ErrTooLong
	case blank(s):
		return because(ErrEmpty, "only white space")
	}
	return nil
}

func blank(s string) bool {
	for _, r := range s {
		if !unicode.IsSpace(r) && !invisible(r) {
			return false
		}
	}
	return true
}

// invisible holds for characters that show nothing but are not white space in
// Unicode's sense: NUL and the other controls, zero-width spaces and the mark
// of byte order.
func invisible(r rune) bool {
	return r != utf8.RuneError && (unicode.IsControl(r) || r >= 0x200b && r <= 0x200d || r == 0x2060 || r == 0xfeff)
}

func asError(builder, path string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Builder: builder, Path: path, Reason: err}
}

func mustParts(builder string, parts []Func) {
	if len(parts) == 0 {
		panic("keyfn: " + builder + ": no parts")
	}
	for i, p := range parts {
		if p == nil {
			panic("keyfn: " + builder + ": part " + strconv.Itoa(i) + " is nil")
		}
	}
}

// quote makes a path safe to print.
func quote(s string) string {
	const limit = 200
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strconv.Quote(s)
}

// isASCIILetterOrDigit holds for bytes that cannot be a separator.
func isASCIILetterOrDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// escape appends s to dst and writes '%', ':', braces, control characters and
// the bytes of also as '%' and two hexadecimal digits. It can be undone, and no
// separator is left in what it appends.
func escape(dst []byte, s, also string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !special(c) && (also == "" || strings.IndexByte(also, c) < 0) {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

func special(c byte) bool {
	return c < 0x20 || c == 0x7f || c == '%' || c == ':' || c == '{' || c == '}'
}
