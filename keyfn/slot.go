package keyfn

import (
	"strconv"
	"strings"
	"time"
)

// Every names the interval of length d that holds the time which at gives:
// "20260914T121500Z/PT15M", its start in UTC and its length. Intervals are
// aligned to the Unix epoch, whenever a replica started, and half-open: a time
// on the border belongs to the interval that begins there.
//
// at reads the scheduled time from the payload, in a spelling that [Time] knows.
// It is not the time of now, which is another one on every redelivery, and not
// the time at which a replica noticed: a clock that is 0.4 s ahead would name
// the interval before. Every panics unless d is a whole number of seconds, and
// at least one. Days and weeks of people are [Daily] and [Weekly].
func Every(d time.Duration, at Func) Func {
	mustParts("Every", []Func{at})
	if d < time.Second || d%time.Second != 0 {
		panic("keyfn: Every: not a positive number of whole seconds")
	}
	length := isoDuration(d)
	return Part("Every", length, func(m Message) (string, error) {
		t, err := instant(at, m)
		if err != nil {
			return "", err
		}
		seconds, step := t.Unix(), int64(d/time.Second)
		start := seconds - ((seconds%step)+step)%step
		return time.Unix(start, 0).UTC().Format(basicFormat) + "/" + length, nil
	})
}

// isoDuration writes a duration of whole seconds as in ISO 8601: "PT1H30M".
func isoDuration(d time.Duration) string {
	var b strings.Builder
	b.WriteString("PT")
	rest := int64(d / time.Second)
	for _, unit := range []struct {
		seconds int64
		letter  byte
	}{{3600, 'H'}, {60, 'M'}, {1, 'S'}} {
		if n := rest / unit.seconds; n > 0 {
			b.WriteString(strconv.FormatInt(n, 10))
			b.WriteByte(unit.letter)
			rest %= unit.seconds
		}
	}
	return b.String()
}

// Collapse names the send that a window allows: the values of parts (recipient,
// template, entity) and the interval of length d around at, as of [Every]. All
// messages of one interval with these values share a key, so the first one is
// sent and the others are not; at is the time of the event in the payload, so
// that a late redelivery falls into its own interval again.
//
// The intervals are fixed: two events a second apart send twice if a border lies
// between them. The last state within an interval is not sent by itself; a send
// that must carry it belongs at the end of the interval, as a job of its own.
func Collapse(d time.Duration, at Func, parts ...Func) Func {
	mustParts("Collapse", parts)
	return Join(append(parts[:len(parts):len(parts)], Every(d, at))...)
}

// Daily names the calendar day, in a time zone, of the time that at gives:
// "2026-06-14", and "2026-06-14[Europe/Berlin]" outside UTC. A day has 23 or 25
// hours where clocks change; what was scheduled for an hour that does not exist
// or exists twice is still of that one day. See [Every] for at.
//
// A nil zone is UTC. Daily panics for [time.Local] and for zones without a
// name, which are not the same on every machine; take [time.LoadLocation].
func Daily(zone *time.Location, at Func) Func {
	return calendar("Daily", zone, at, func(t time.Time) string { return t.Format(time.DateOnly) })
}

// Weekly names the calendar week, in a time zone, that begins on the given
// day: "2026-06-08/P1W", its first day, and "2026-06-08/P1W[Europe/Berlin]"
// outside UTC. Otherwise it is like [Daily].
func Weekly(zone *time.Location, first time.Weekday, at Func) Func {
	return calendar("Weekly", zone, at, func(t time.Time) string {
		back := (int(t.Weekday()) - int(first) + 7) % 7
		// Counted in dates, not in hours.
		day := time.Date(t.Year(), t.Month(), t.Day()-back, 0, 0, 0, 0, time.UTC)
		return day.Format(time.DateOnly) + "/P1W"
	})
}

// Monthly names the calendar month, in a time zone: "2026-06", and
// "2026-06[Europe/Berlin]" outside UTC. Otherwise it is like [Daily].
func Monthly(zone *time.Location, at Func) Func {
	return calendar("Monthly", zone, at, func(t time.Time) string { return t.Format("2006-01") })
}

func calendar(builder string, zone *time.Location, at Func, name func(time.Time) string) Func {
	mustParts(builder, []Func{at})
	if zone == nil {
		zone = time.UTC
	}
	zoneName := zone.String()
	if zone == time.Local || zoneName == "" || zoneName == "Local" {
		panic("keyfn: " + builder + ": the zone has no name of its own")
	}
	suffix := ""
	if zoneName != "UTC" {
		suffix = "[" + zoneName + "]"
	}
	return Part(builder, zoneName, func(m Message) (string, error) {
		t, err := instant(at, m)
		if err != nil {
			return "", err
		}
		return name(t.In(zone)) + suffix, nil
	})
}
