package avrokey_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/avrokey"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

const schemaText = `{"type":"record","name":"Order","fields":[
	{"name":"id","type":["null","string"]},
	{"name":"n","type":"long"},
	{"name":"state","type":{"type":"enum","name":"State","symbols":["OPEN","PAID"]}},
	{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"raw","type":"bytes"},
	{"name":"tags","type":{"type":"array","items":"string"}}]}`

func encode(t testing.TB, id any, n int64) []byte {
	t.Helper()
	b, err := avro.MustParse(schemaText).Encode(map[string]any{
		"id": id, "n": n, "state": "PAID", "at": int64(1789380900000), "raw": []byte{0, 0xe9}, "tags": []any{"a"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func framed(id byte, b []byte) keyfn.Message {
	return keyfn.NewMessage(append([]byte{0, 0, 0, 0, id}, b...), nil)
}

func TestView(t *testing.T) {
	view := avrokey.View(avro.MustParse(schemaText))
	m := keyfn.NewMessage(encode(t, "ord-1", 9007199254740993), nil)
	for path, want := range map[string]string{
		"id": "ord-1", "n": "#9007199254740993", "state": "PAID", "at": "#1789380900000", "tags.0": "a", "raw": "\x00é",
	} {
		if got, err := keyfn.In(view, keyfn.JSON(path))(m); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := keyfn.In(view, keyfn.Time(keyfn.JSON("at")))(m); got != "20260914T101500Z" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	keyfntest.Same(t, keyfn.In(view, keyfn.Hash(keyfn.Strip("at"))), m, m)
	id := keyfn.In(view, keyfn.JSON("id"))
	keyfntest.Fails(t, id, keyfn.ErrNull, keyfn.NewMessage(encode(t, nil, 1), nil))
	keyfntest.Fails(t, id, keyfn.ErrSkip, keyfntest.Message(""))
	keyfntest.Fails(t, id, keyfn.ErrMalformed,
		keyfn.NewMessage(append(encode(t, "x", 1), 0), nil),
		keyfn.NewMessage(encode(t, "x", 1)[:4], nil),
		keyfn.NewMessage([]byte(strings.Replace(string(encode(t, "xyz", 1)), "xyz", "x\xffz", 1)), nil))
}

func TestFramed(t *testing.T) {
	errAway := errors.New("registry is away")
	asked := 0
	away := true
	view := avrokey.Framed(func(id uint32) (string, error) {
		asked++
		switch {
		case away:
			return "", errAway
		case id == 9:
			return "{", nil
		}
		return schemaText, nil
	})
	f := keyfn.In(view, keyfn.JSON("id"))
	m := framed(7, encode(t, "ord-1", 1))
	keyfntest.Fails(t, f, errAway, m)
	away = false
	keyfntest.Same(t, f, m, m, framed(8, encode(t, "ord-1", 2)))
	if asked != 3 {
		t.Errorf("asked %d times, want 3: once away, once for each schema", asked)
	}
	if _, err := f(framed(9, nil)); err == nil || strings.Contains(err.Error(), "{") {
		t.Errorf("got %v", err)
	}
	keyfntest.Fails(t, f, keyfn.ErrMalformed, keyfntest.Message("x"))
	keyfntest.Fails(t, f, keyfn.ErrSkip, keyfntest.Message(""))
}

func FuzzView(f *testing.F) {
	f.Add(encode(f, "ord-1", 1))
	key := keyfn.In(avrokey.View(avro.MustParse(schemaText)), keyfn.Hash(keyfn.Everything()))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := keyfn.NewMessage(b, nil)
		k, err := key(m)
		if again, _ := key(m); (k == "") != (err != nil) || again != k {
			t.Fatalf("%q, %v, %q", k, err, again)
		}
	})
}
