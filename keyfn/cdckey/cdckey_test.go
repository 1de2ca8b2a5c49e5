package cdckey_test

import (
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/cdckey"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

func TestRow_Positions(t *testing.T) {
	m := func(source string) keyfn.Message {
		return keyfntest.Message(`{"op":"u","before":null,"after":{"a":"x","b":{"int":2}},"source":{"db":"shop","table":"t",` + source + `}}`)
	}
	f := cdckey.Row("a", "b")
	for source, want := range map[string]string{
		`"schema":"s","lsn":{"long":7}`:                         "shop:s:t:u:x:#2:lsn:#7",
		`"file":"bin.000001","pos":154,"row":0`:                 "shop:-:t:u:x:#2:file:bin.000001:#154:#0",
		`"schema":"dbo","change_lsn":"1:2","event_serial_no":1`: "shop:dbo:t:u:x:#2:change_lsn:1%3A2:#1",
		`"schema":"s","scn":"99","rs_id":"r","ssn":3`:           "shop:s:t:u:x:#2:scn:99:r:#3",
		`"schema":"s","lsn":null,"scn":"99"`:                    "shop:s:t:u:x:#2:scn:99:-:-",
	} {
		if got, err := f(m(source)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
	keyfntest.Fails(t, f, keyfn.ErrMissing, m(`"x":1`), keyfntest.Message(`{"op":"u","after":{"a":"x","b":1}}`))
	keyfntest.Fails(t, cdckey.Row("none"), keyfn.ErrMissing, m(`"lsn":7`))
	keyfntest.Fails(t, f, keyfn.ErrType, m(`"lsn":{"a":1,"b":2}`))
	keyfntest.Fails(t, f, keyfn.ErrSkip,
		keyfntest.Message(`{"op":"t","source":{"db":"shop","table":"t","lsn":7}}`), keyfntest.Message(" null "))
	keyfntest.Fails(t, f, keyfn.ErrMalformed, keyfntest.Message(`[1]`), keyfntest.Message(`{`))
}

func TestOutbox_NumericID(t *testing.T) {
	keyfntest.Same(t, cdckey.Outbox(),
		keyfntest.Message(`{"orderId":1}`, "id", "7"),
		keyfntest.Message(`{"op":"c","after":{"id":7,"payload":"{}"},"source":{}}`),
		keyfntest.Message(`{"op":"c","after":{"id":"7","payload":"{}"},"source":{}}`))
}
