package keyfn_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same on every machine

	"github.com/secondrun/secondrun/keyfn"
)

func at(s string) msg { return body(`{"at":"` + s + `"}`) }

func TestU19_Every(t *testing.T) {
	check(t, keyfn.Join(keyfn.Literal("report"), keyfn.Every(15*time.Minute, keyfn.JSON("at"))), []row{
		{name: "start", m: at("2026-09-14T12:15:00Z"), key: "report:20260914T121500Z/PT15M"},
		{name: "last", m: at("2026-09-14T12:29:59.999999999Z"), key: "report:20260914T121500Z/PT15M"},
		{name: "next", m: at("2026-09-14T12:30:00Z"), key: "report:20260914T123000Z/PT15M"},
		{name: "offset", m: at("2026-09-14T14:15:00+02:00"), key: "report:20260914T121500Z/PT15M"},
		{name: "unix", m: body(`{"at":1789388100}`), key: "report:20260914T121500Z/PT15M"},
		{name: "before the epoch", m: at("1969-12-31T23:59:59.5Z"), key: "report:19691231T234500Z/PT15M"},
		{name: "no time", m: body(`{"at":"` + canary + `"}`), err: keyfn.ErrMalformed},
		{name: "missing", m: body(`{}`), err: keyfn.ErrMissing},
	})
	for d, want := range map[time.Duration]string{
		time.Second: "20260914T121500Z/PT1S", time.Hour: "20260914T120000Z/PT1H", 90 * time.Minute: "20260914T120000Z/PT1H30M",
		24 * time.Hour: "20260914T000000Z/PT24H", 3661 * time.Second: "20260914T115610Z/PT1H1M1S",
	} {
		if got, err := keyfn.Every(d, keyfn.JSON("at"))(at("2026-09-14T12:15:00Z")); got != want || err != nil {
			t.Errorf("%v: %s %v, want %s", d, got, err, want)
		}
	}
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond} {
		mustPanic(t, d.String(), func() { keyfn.Every(d, keyfn.JSON("at")) })
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestCalendar(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	check(t, keyfn.Join(keyfn.Literal("usage_rollup"), keyfn.JSON("acct"), keyfn.Daily(nil, keyfn.JSON("at"))), []row{
		{name: "UTC", m: body(`{"acct":"acct_221","at":"2026-06-14T23:30:00Z"}`), key: "usage_rollup:acct_221:2026-06-14"},
	})
	check(t, keyfn.Daily(berlin, keyfn.JSON("at")), []row{
		{name: "summer", m: at("2026-06-14T22:30:00Z"), key: "2026-06-15[Europe/Berlin]"},
		{name: "winter", m: at("2026-01-14T22:30:00Z"), key: "2026-01-14[Europe/Berlin]"},
		// 25 October 2026 has 25 hours: 02:30 comes twice.
		{name: "first 02:30", m: at("2026-10-25T00:30:00Z"), key: "2026-10-25[Europe/Berlin]"},
		{name: "second 02:30", m: at("2026-10-25T01:30:00Z"), key: "2026-10-25[Europe/Berlin]"},
		{name: "last of 25 hours", m: at("2026-10-25T22:59:59Z"), key: "2026-10-25[Europe/Berlin]"},
		{name: "after 25 hours", m: at("2026-10-25T23:00:00Z"), key: "2026-10-26[Europe/Berlin]"},
		// 29 March 2026 has 23: 02:30 does not come.
		{name: "first of 23 hours", m: at("2026-03-28T23:00:00Z"), key: "2026-03-29[Europe/Berlin]"},
		{name: "after 23 hours", m: at("2026-03-29T22:00:00Z"), key: "2026-03-30[Europe/Berlin]"},
	})
	check(t, keyfn.Weekly(berlin, time.Monday, keyfn.JSON("at")), []row{
		{name: "monday", m: at("2026-10-18T22:00:00Z"), key: "2026-10-19/P1W[Europe/Berlin]"},
		{name: "sunday", m: at("2026-10-25T22:59:59Z"), key: "2026-10-19/P1W[Europe/Berlin]"},
		{name: "next monday", m: at("2026-10-25T23:00:00Z"), key: "2026-10-26/P1W[Europe/Berlin]"},
	})
	check(t, keyfn.Weekly(nil, time.Sunday, keyfn.JSON("at")), []row{
		{name: "over the year", m: at("2027-01-01T00:00:00Z"), key: "2026-12-27/P1W"},
	})
	check(t, keyfn.Monthly(berlin, keyfn.JSON("at")), []row{
		{name: "border", m: at("2026-06-30T22:00:00Z"), key: "2026-07[Europe/Berlin]"},
	})
	mustPanic(t, "Local", func() { keyfn.Daily(time.Local, keyfn.JSON("at")) })
	mustPanic(t, "no name", func() { keyfn.Daily(time.FixedZone("", 3600), keyfn.JSON("at")) })
}

func TestU20_Collapse(t *testing.T) {
	f := keyfn.Collapse(10*time.Minute, keyfn.JSON("at"), keyfn.JSON("notify"), keyfn.JSON("subject"))
	m := func(at, who string) msg {
		return body(`{"notify":"` + who + `","subject":"task-9","at":"2026-09-14T` + at + `Z"}`)
	}
	check(t, f, []row{
		{name: "n-1", m: m("10:00:00", "u-5"), key: "u-5:task-9:20260914T100000Z/PT10M"},
		{name: "n-2", m: m("10:04:00", "u-5"), key: "u-5:task-9:20260914T100000Z/PT10M"},
		{name: "n-3", m: m("10:09:59", "u-5"), key: "u-5:task-9:20260914T100000Z/PT10M"},
		{name: "n-4 on the border", m: m("10:10:00", "u-5"), key: "u-5:task-9:20260914T101000Z/PT10M"},
		{name: "another recipient", m: m("10:04:00", "u-6"), key: "u-6:task-9:20260914T100000Z/PT10M"},
	})
}
