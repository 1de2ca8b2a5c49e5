package keyfn

import (
	"strconv"
	"strings"
	"time"
)

// basicFormat is the basic format of ISO 8601, for times in UTC.
const basicFormat = "20060102T150405.999999999Z"

// Time makes one spelling of an instant out of the usual ones: RFC 3339 with
// any offset and fraction, and Unix time as a number (or digits) in seconds,
// milliseconds, microseconds or nanoseconds. It gives the time in UTC in the
// basic format of ISO 8601, which has no colons to escape, with the shortest
// fraction: 20260914T101500Z, 20260914T101500.25Z.
//
// The unit of a Unix time is told by its size: below 10¹¹ seconds (the year
// 5138), below 10¹⁴ milliseconds, below 10¹⁷ microseconds, else nanoseconds.
// That is wrong for milliseconds before March 1973, and so on; convert such
// times with [Map]. Anything else, a time without an offset too, is
// [ErrMalformed].
func Time(f Func) Func {
	mustParts("Time", []Func{f})
	return Part("Time", "", func(m Message) (string, error) {
		t, err := instant(f, m)
		if err != nil {
			return "", err
		}
		return t.Format(basicFormat), nil
	})
}

// instant reads the value of a part as a time in UTC.
func instant(f Func, m Message) (time.Time, error) {
	s, err := value(f, m, 0)
	if err != nil {
		return time.Time{}, err
	}
	t, ok := parseTime(s)
	if !ok {
		return time.Time{}, because(ErrMalformed, "not a time")
	}
	return t, nil
}

func parseTime(s string) (time.Time, bool) {
	s = strings.TrimPrefix(s, "#") // a JSON number
	if t, ok := parseUnix(s); ok {
		return t, true
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	// Beyond these years RFC 3339 has no spelling.
	return t, t.Year() >= 0 && t.Year() <= 9999
}

// parseUnix reads digits, with a fraction of a second if the unit is seconds.
func parseUnix(s string) (time.Time, bool) {
	whole, fraction, dotted := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || whole[0] == '+' || whole[0] == '-' {
		return time.Time{}, false
	}
	const units = 1e11
	if dotted {
		ns, ok := nanoseconds(fraction)
		return time.Unix(n, ns).UTC(), ok && n < units
	}
	switch {
	case n < units:
		return time.Unix(n, 0).UTC(), true
	case n < units*1e3:
		return time.UnixMilli(n).UTC(), true
	case n < units*1e6:
		return time.UnixMicro(n).UTC(), true
	}
	return time.Unix(0, n).UTC(), true
}

// nanoseconds reads the digits after the point of a second.
func nanoseconds(digits string) (int64, bool) {
	if len(digits) == 0 || len(digits) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, false
	}
	for i := len(digits); i < 9; i++ {
		n *= 10
	}
	return int64(n), true //nolint:gosec // at most 999,999,999
}
