package keyfn

import (
	"errors"
	"strconv"
)

// decimal is the exact value of a JSON number: 0.digits × 10^point. digits has
// no zero at either end; zero has none.
type decimal struct {
	negative bool
	digits   []byte
	point    int
}

// The range of binary64, beyond which readers disagree about a number.
const (
	maxPoint = 309
	minPoint = -323
)

var errRange = because(ErrMalformed, "number out of range")

// isShortInteger reports whether a number of JSON is spelled as RFC 8785 spells
// it: an integer of few digits, without fraction, exponent or sign of zero.
func isShortInteger(raw []byte) bool {
	if len(raw) > 15 || string(raw) == "-0" {
		return false
	}
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	return true
}

// parseNumber reads a number that is known to follow the grammar of JSON. It
// appends the digits to buf.
func parseNumber(raw, buf []byte) (decimal, error) {
	d := decimal{digits: buf}
	if len(raw) > 0 && raw[0] == '-' {
		d.negative, raw = true, raw[1:]
	}
	digits, exponent := raw, 0
	for i, c := range raw {
		if c == 'e' || c == 'E' {
			digits = raw[:i]
			n, err := strconv.Atoi(string(raw[i+1:]))
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				return d, ErrMalformed
			}
			exponent = max(min(n, 1<<28), -1<<28) // the sum below must not overflow 32 bits
			break
		}
	}
	whole := len(digits)
	for i, c := range digits {
		if c == '.' {
			whole = i
			continue
		}
		d.digits = append(d.digits, c)
	}
	return d.trim(whole + exponent)
}

// trim removes the zeros at both ends, given where the point is.
func (d decimal) trim(point int) (decimal, error) {
	for len(d.digits) > 0 && d.digits[0] == '0' {
		d.digits = d.digits[1:]
		point--
	}
	for n := len(d.digits); n > 0 && d.digits[n-1] == '0'; n-- {
		d.digits = d.digits[:n-1]
	}
	if len(d.digits) == 0 {
		return decimal{}, nil // also -0
	}
	if point > maxPoint || point < minPoint {
		return d, errRange
	}
	d.point = point
	return d, nil
}

func (d decimal) isInteger() bool { return len(d.digits) <= d.point || len(d.digits) == 0 }

// appendPlain writes integers with all their digits and anything else as
// appendScript does.
func (d decimal) appendPlain(dst []byte) []byte {
	if d.isInteger() && d.point > 21 {
		return d.appendWhole(d.appendSign(dst))
	}
	return d.appendScript(dst)
}

func (d decimal) appendSign(dst []byte) []byte {
	if d.negative {
		return append(dst, '-')
	}
	return dst
}

func (d decimal) appendWhole(dst []byte) []byte {
	dst = append(dst, d.digits...)
	for i := len(d.digits); i < d.point; i++ {
		dst = append(dst, '0')
	}
	return dst
}

// appendScript writes the value in the layout of ECMAScript's
// Number::toString, which RFC 8785 uses, with all digits.
func (d decimal) appendScript(dst []byte) []byte {
	k, n := len(d.digits), d.point
	if k == 0 {
		return append(dst, '0')
	}
	dst = d.appendSign(dst)
	switch {
	case k <= n && n <= 21:
		return d.appendWhole(dst)
	case 0 < n && n <= 21:
		dst = append(dst, d.digits[:n]...)
		dst = append(dst, '.')
		return append(dst, d.digits[n:]...)
	case -6 < n && n <= 0:
		dst = append(dst, '0', '.')
		for range -n {
			dst = append(dst, '0')
		}
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0])
	if k > 1 {
		dst = append(dst, '.')
		dst = append(dst, d.digits[1:]...)
	}
	dst = append(dst, 'e')
	if n > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(n-1), 10)
}

// maxBinaryDigits is how many digits the shortest decimal of a binary64 can
// have.
const maxBinaryDigits = 17

// appendCanonical writes a number as RFC 8785 does, except that it merges no
// integers: they are exact however long. A fraction is taken as binary64, the
// way every reader of such a number takes it, unless that would make it an
// integer or it has more digits than any writer of binary64 gives it; then it
// is exact too.
func (d decimal) appendCanonical(dst []byte) []byte {
	if d.isInteger() || len(d.digits) > maxBinaryDigits {
		return d.appendScript(dst)
	}
	var text, short, digits [32]byte
	f, err := strconv.ParseFloat(string(d.appendScript(text[:0])), 64)
	if err != nil {
		return d.appendScript(dst) // out of range, which parseNumber refuses
	}
	rounded, err := parseNumber(strconv.AppendFloat(short[:0], f, 'e', -1, 64), digits[:0])
	if err != nil || rounded.isInteger() {
		return d.appendScript(dst)
	}
	return rounded.appendScript(dst)
}
