package keyfn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

func TestU04_JSON(t *testing.T) {
	f := keyfn.Join(keyfn.JSON("data.id"), keyfn.JSON("data.seq"))
	check(t, f, []row{
		{name: "1", m: body(`{"data":{"id":"m-1","seq":0}}`), key: "m-1:#0"},
		{name: "2", m: body(`{"data":{"seq":0}}`), err: keyfn.ErrMissing},
		{name: "3", m: body(`{"data":{"id":null,"seq":1}}`), err: keyfn.ErrNull},
		{name: "4", m: body(`{"data":{"id":"","seq":2}}`), err: keyfn.ErrEmpty},
		{name: "5", m: body(`{"data":{"id":"  ","seq":3}}`), err: keyfn.ErrEmpty},
		{name: "6", m: body(`{"data":[]}`), err: keyfn.ErrType},
		{name: "7", m: body(`{}`), err: keyfn.ErrMissing},
		{name: "8", m: body(``), err: keyfn.ErrMissing},
		{name: "9", m: body(`{"data":{"id":false,"seq":0}}`), err: keyfn.ErrType},
		{name: "10", m: body(`{"data":{"id":0,"seq":0}}`), key: "#0:#0"},
		{name: "2 again with another body", m: body(`{"data":{"seq":0},"x":1}`), err: keyfn.ErrMissing},
		{name: "null on the way", m: body(`{"data":null}`), err: keyfn.ErrNull},
		{name: "scalar on the way", m: body(`{"data":"` + canary + `"}`), err: keyfn.ErrType},
		{name: "object", m: body(`{"data":{"id":{"x":1}}}`), err: keyfn.ErrType},
		{name: "no-break space", m: body(`{"data":{"id":"\u00a0\u200b\ufeff","seq":1}}`), err: keyfn.ErrEmpty},
		{name: "NUL", m: body(`{"data":{"id":"\u0000","seq":1}}`), err: keyfn.ErrEmpty},
	})
}

func TestU02_JSONIsStrict(t *testing.T) {
	check(t, keyfn.JSON("id"), []row{
		{name: "plain", m: body(`{"id":"x","n":7}`), key: "x"},
		{name: "escaped", m: body(`{"\u0069d":"\u0078"}`), key: "x"},
		{name: "mark of byte order", m: body("\ufeff" + `{"id":"x"}`), key: "x"},
		{name: "trailing newline", m: body(`{"id":"x"}` + "\n"), key: "x"},
		{name: "duplicate", m: body(`{"id":"` + canary + `","id":"ev_2"}`), err: keyfn.ErrAmbiguous},
		{name: "duplicate elsewhere", m: body(`{"id":"x","o":[{"` + canary + `":1,"` + canary + `":2}]}`), err: keyfn.ErrAmbiguous},
		{name: "duplicate, one escaped", m: body(`{"id":"a","\u0069d":"b"}`), err: keyfn.ErrAmbiguous},
		{name: "other case is another name", m: body(`{"id":"ev_1","ID":"ev_2"}`), key: "ev_1"},
		{name: "two documents", m: body(`{"id":"x"}{"id":"y"}`), err: keyfn.ErrMalformed},
		{name: "junk after", m: body(`{"id":"x"} ` + canary), err: keyfn.ErrMalformed},
		{name: "cut off", m: body(`{"id":"x"`), err: keyfn.ErrMalformed},
		{name: "invalid UTF-8", m: body("{\"id\":\"A\xff\"}"), err: keyfn.ErrMalformed},
		{name: "lone surrogate", m: body(`{"id":"A\ud800"}`), err: keyfn.ErrMalformed},
		{name: "not JSON", m: body(canary), err: keyfn.ErrMalformed},
		{name: "NFC", m: body(`{"id":"caf\u00e9"}`), key: "caf\u00e9"},
		{name: "NFD", m: body(`{"id":"cafe\u0301"}`), key: "cafe\u0301"},
		{name: "too deep", m: body(`{"id":"x","a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`), err: keyfn.ErrMalformed},
		{name: "too long", m: body(`{"id":"` + strings.Repeat("x", keyfn.MaxKey+1) + `"}`), err: keyfn.ErrTooLong},
		{name: "body too long", m: body(`{"id":"x"}` + strings.Repeat(" ", keyfn.MaxBody)), err: keyfn.ErrTooLong},
	})
}

func TestP15_Numbers(t *testing.T) {
	for raw, want := range map[string]string{
		`9007199254740993`:                "#9007199254740993",
		`"9007199254740993"`:              "9007199254740993",
		`9007199254740992`:                "#9007199254740992",
		`15793596808644609`:               "#15793596808644609",
		`-0`:                              "#0",
		`1.0`:                             "#1",
		`1e3`:                             "#1000",
		`0.1`:                             "#0.1",
		`0.10`:                            "#0.1",
		`1E-1`:                            "#0.1",
		`123456789012345678901234567890`:  "#123456789012345678901234567890",
		`12345678901234567890123456789e1`: "#123456789012345678901234567890",
		`1e30`:                            "#1000000000000000000000000000000",
		`-7e0`:                            "#-7",
		`70e-1`:                           "#7",
		`0.0000001`:                       "#1e-7",
		`"7"`:                             "7",
		`"#7"`:                            "'#7",
		`"'#7"`:                           "''#7",
		`0e999999999999999999999`:         "#0",
	} {
		if key, err := keyfn.JSON("id")(body(`{"id":` + raw + `}`)); key != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", raw, key, err, want)
		}
	}
	check(t, keyfn.JSON("id"), []row{
		{name: "too large", m: body(`{"id":1e400}`), err: keyfn.ErrMalformed},
		{name: "far too large", m: body(`{"id":1e99999999999999999999}`), err: keyfn.ErrMalformed},
		{name: "too small", m: body(`{"id":1e-400}`), err: keyfn.ErrMalformed},
		{name: "far too small", m: body(`{"id":1e-99999999999999999999}`), err: keyfn.ErrMalformed},
		{name: "not a number of JSON", m: body(`{"id":01}`), err: keyfn.ErrMalformed},
	})
	check(t, keyfn.JSONText("id"), []row{
		{name: "coerced number", m: body(`{"id":7}`), key: "7"},
		{name: "coerced string", m: body(`{"id":"7"}`), key: "7"},
	})
}

func TestJSONPaths(t *testing.T) {
	m := body(`{"a.b":{"c/d":"1"},"list":[{"x":"0"},["1",2]],"0":"zero","":{"x":"empty"}}`)
	for path, want := range map[string]string{
		"/a.b/c~1d": "1", "list.0.x": "0", "list.1.0": "1", "list.1.1": "#2", "0": "zero", "//x": "empty",
	} {
		if key, err := keyfn.JSON(path)(m); key != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", path, key, err, want)
		}
	}
	check(t, keyfn.JSON("list.2"), []row{{name: "past the end", m: m, err: keyfn.ErrMissing}})
	check(t, keyfn.JSON("list.01"), []row{{name: "no number", m: m, err: keyfn.ErrType}})
	for _, path := range []string{"", "a..b", ".a", "a.", "/a~2"} {
		mustPanic(t, path, func() { keyfn.JSON(path) })
	}
}

type order struct {
	ID   string `json:"id"`
	Meta any    `json:"meta"`
}

func TestFrom(t *testing.T) {
	errOwn := errors.New("own")
	f := keyfn.From(func(o order) (string, error) {
		switch o.ID {
		case "own":
			return "", errOwn
		case "big":
			return o.Meta.(interface{ String() string }).String(), nil
		case "none":
			return " ", nil
		case "":
			return "", keyfn.ErrMissing
		}
		return "order:" + o.ID, nil
	})
	check(t, f, []row{
		{name: "plain", m: body(`{"id":"1"}`), key: "order:1"},
		{name: "case as encoding/json", m: body(`{"Id":"1"}`), key: "order:1"},
		{name: "mark of byte order", m: body("\ufeff" + `{"id":"1"}`), key: "order:1"},
		{name: "exact number in any", m: body(`{"id":"big","meta":9007199254740993}`), key: "9007199254740993"},
		{name: "own error", m: body(`{"id":"own"}`), err: errOwn},
		{name: "missing", m: body(`{}`), err: keyfn.ErrMissing},
		{name: "blank result", m: body(`{"id":"none"}`), err: keyfn.ErrEmpty},
		{name: "empty", m: body(``), err: keyfn.ErrMissing},
		{name: "null", m: body(` null`), err: keyfn.ErrNull},
		{name: "duplicate", m: body(`{"id":"` + canary + `","id":"b"}`), err: keyfn.ErrAmbiguous},
		{name: "duplicate in another case", m: body(`{"id":"a","ID":"b"}`), err: keyfn.ErrAmbiguous},
		{name: "duplicate elsewhere", m: body(`{"id":"a","x":{"y":1,"y":2}}`), err: keyfn.ErrAmbiguous},
		{name: "junk", m: body(`{"id":"a"}x`), err: keyfn.ErrMalformed},
		{name: "invalid UTF-8", m: body("{\"id\":\"\xff\"}"), err: keyfn.ErrMalformed},
		{name: "wrong type", m: body(`{"id":{"` + canary + `":1}}`), err: keyfn.ErrMalformed},
	})
}

func TestHeader(t *testing.T) {
	check(t, keyfn.Header("id"), []row{
		{name: "plain", m: headers("", "id", "a"), key: "a"},
		{name: "equal twice", m: headers("", "id", "a", "id", "a"), key: "a"},
		{name: "different", m: headers("", "id", "a", "id", canary), err: keyfn.ErrAmbiguous},
		{name: "other case", m: headers("", "ID", "a"), err: keyfn.ErrMissing},
		{name: "empty", m: headers("", "id", ""), err: keyfn.ErrEmpty},
		{name: "blank", m: headers("", "id", "\t "), err: keyfn.ErrEmpty},
		{name: "invalid UTF-8", m: headers("", "id", "\xff\x00a"), key: "\xff\x00a"},
	})
	check(t, keyfn.AnyHeader("X-Id", "x-id"), []row{
		{name: "first", m: headers("", "X-Id", "a"), key: "a"},
		{name: "second", m: headers("", "x-id", "a"), key: "a"},
		{name: "both", m: headers("", "x-id", "a", "X-Id", "a"), key: "a"},
		{name: "disagree", m: headers("", "x-id", "a", "X-Id", "b"), err: keyfn.ErrAmbiguous},
		{name: "disagree when empty", m: headers("", "x-id", "a", "X-Id", ""), err: keyfn.ErrAmbiguous},
		{name: "none", m: body(""), err: keyfn.ErrMissing},
	})
}

func TestJoin(t *testing.T) {
	f := keyfn.Join(keyfn.Literal("order"), keyfn.Header("a"), keyfn.Header("b"))
	check(t, f, []row{
		{name: "plain", m: headers("", "a", "x", "b", "y"), key: "order:x:y"},
		{name: "colon left", m: headers("", "a", "a:b", "b", "c"), key: "order:a%3Ab:c"},
		{name: "colon right", m: headers("", "a", "a", "b", "b:c"), key: "order:a:b%3Ac"},
		{name: "percent", m: headers("", "a", "a%3Ab", "b", "c"), key: "order:a%253Ab:c"},
		{name: "braces and control", m: headers("", "a", "{x}", "b", "a\nb\x00"), key: "order:%7Bx%7D:a%0Ab%00"},
		{name: "part missing", m: headers("", "a", "x"), err: keyfn.ErrMissing},
		{name: "too long", m: headers("", "a", strings.Repeat("x", keyfn.MaxKey), "b", "y"), err: keyfn.ErrTooLong},
	})
	empty := keyfn.Func(func(keyfn.Message) (string, error) { return "", nil })
	check(t, keyfn.Join(empty), []row{{name: "plain function", m: body(""), err: keyfn.ErrEmpty}})
	mustPanic(t, "no parts", func() { keyfn.Join() })
	mustPanic(t, "nil part", func() { keyfn.Join(nil) })
	mustPanic(t, "empty literal", func() { keyfn.Literal("") })
}

func TestMapAndFirst(t *testing.T) {
	errOwn := errors.New("own")
	f := keyfn.Map(keyfn.Header("a"), func(s string) (string, error) {
		switch s {
		case "bad":
			return "", errOwn
		case "none":
			return "", nil
		}
		return strings.ToLower(s), nil
	})
	check(t, f, []row{
		{name: "plain", m: headers("", "a", "ABC"), key: "abc"},
		{name: "own error", m: headers("", "a", "bad"), err: errOwn},
		{name: "empty result", m: headers("", "a", "none"), err: keyfn.ErrEmpty},
		{name: "missing", m: body(""), err: keyfn.ErrMissing},
	})
	first := keyfn.First(keyfn.JSON("a"), keyfn.JSON("b"), keyfn.Header("c"))
	check(t, first, []row{
		{name: "first", m: body(`{"a":"1","b":"2"}`), key: "1"},
		{name: "second", m: body(`{"b":"2"}`), key: "2"},
		{name: "third", m: headers(`{}`, "c", "3"), key: "3"},
		{name: "null does not fall through", m: body(`{"a":null,"b":"2"}`), err: keyfn.ErrNull},
		{name: "empty does not fall through", m: body(`{"a":"","b":"2"}`), err: keyfn.ErrEmpty},
		{name: "malformed does not fall through", m: headers(`{`, "c", "3"), err: keyfn.ErrMalformed},
		{name: "none", m: body(`{}`), err: keyfn.ErrMissing},
	})
}

func TestTemplate(t *testing.T) {
	check(t, keyfn.Template("invoice:{id}:capture"), []row{
		{name: "plain", m: body(`{"id":"inv_8841"}`), key: "invoice:inv_8841:capture"},
		{name: "number", m: body(`{"id":8841}`), key: "invoice:#8841:capture"},
		{name: "colon", m: body(`{"id":"a:b"}`), key: "invoice:a%3Ab:capture"},
		{name: "missing", m: body(`{}`), err: keyfn.ErrMissing},
		{name: "null", m: body(`{"id":null}`), err: keyfn.ErrNull},
		{name: "empty", m: body(`{"id":""}`), err: keyfn.ErrEmpty},
	})
	check(t, keyfn.Template("{a.b}-{header:c}/x{{y}}"), []row{
		{name: "separators", m: headers(`{"a":{"b":"p-q"}}`, "c", "r/s"), key: "p%2Dq-r%2Fs/x{y}"},
	})
	check(t, keyfn.Template("user:{text:id}:{time:at}"), []row{
		{name: "coerced", m: body(`{"id":42,"at":1789380900}`), key: "user:42:20260914T101500Z"},
	})
	check(t, keyfn.Template("x:{/text:id/a.b}"), []row{
		{name: "pointer", m: body(`{"text:id":{"a.b":"1"}}`), key: "x:1"},
	})
	for _, text := range []string{"", "constant", "{a}{b}", "{a}x{b}", "{a}→{b}", "{a}%", "{a", "a}", "{}", "{header:}", "{a..b}", "{a b}", "{text:}"} {
		if _, err := keyfn.ParseTemplate(text); err == nil {
			t.Errorf("%q parsed", text)
		}
		mustPanic(t, text, func() { keyfn.Template(text) })
	}
}

// A prefix that does not exist is no path: every message would lack it. Members
// whose names hold a colon are reached by a JSON Pointer, which the error spells.
func TestTemplate_UnknownPrefix(t *testing.T) {
	for text, pointer := range map[string]string{
		"{nope:id}":         "{/nope:id}",
		"x-{headers:x}":     "{/headers:x}",
		"{Header:x}":        "{/Header:x}",
		"{data.a:b}":        "{/data/a:b}",
		"{text:a:b}":        "{text:/a:b}",
		"{time:text:at}":    "{time:/text:at}",
		"{json:a/b.c~d}":    "{/json:a~1b/c~0d}",
		"{text:header:who}": "{text:/header:who}",
	} {
		_, err := keyfn.ParseTemplate(text)
		if err == nil || !strings.Contains(err.Error(), "unknown prefix") || !strings.Contains(err.Error(), pointer) {
			t.Errorf("%q: %v, want an error with %s", text, err, pointer)
		}
		if _, err := keyfn.ParseTemplate(pointer); err != nil {
			t.Errorf("%q: %v", pointer, err)
		}
	}
	check(t, keyfn.Template("{/nope:id}:{text:/a:b}"), []row{
		{name: "pointers", m: body(`{"nope:id":1,"a:b":2}`), key: "#1:2"},
	})
}

func TestP16_Times(t *testing.T) {
	f := keyfn.Time(keyfn.JSON("at"))
	rows := []row{
		{name: "no offset", m: body(`{"at":"2026-09-14T10:15:00"}`), err: keyfn.ErrMalformed},
		{name: "date", m: body(`{"at":"2026-09-14"}`), err: keyfn.ErrMalformed},
		{name: "negative", m: body(`{"at":-5}`), err: keyfn.ErrMalformed},
		{name: "word", m: body(`{"at":"` + canary + `"}`), err: keyfn.ErrMalformed},
		{name: "missing", m: body(`{}`), err: keyfn.ErrMissing},
		{name: "fraction", m: body(`{"at":"2026-09-14T10:15:00.5Z"}`), key: "20260914T101500.5Z"},
		{name: "fraction of a number", m: body(`{"at":1789380900.5}`), key: "20260914T101500.5Z"},
	}
	for _, at := range []string{
		`"2026-09-14T10:15:00Z"`, `"2026-09-14T10:15:00.000Z"`, `"2026-09-14T12:15:00+02:00"`,
		`1789380900`, `1789380900000`, `"1789380900"`, `1789380900000000`, `1789380900000000000`, `1789380900.0`,
	} {
		rows = append(rows, row{name: at, m: body(`{"at":` + at + `}`), key: "20260914T101500Z"})
	}
	check(t, f, rows)
	// As plain text they stay five keys.
	seen := map[string]bool{}
	for _, r := range rows[7:12] {
		key, err := keyfn.JSON("at")(r.m)
		if err != nil {
			t.Fatal(err)
		}
		seen[key] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d keys from five spellings, want 5", len(seen))
	}
}

func TestExplain(t *testing.T) {
	f := keyfn.Join(keyfn.Literal("order"), keyfn.First(keyfn.Header("x"), keyfn.JSON("id")))
	got := keyfn.Explain(f, body(`{"id":"a:b"}`)).String()
	want := `key "order:a%3Ab" (11 bytes)
  Join → "order:a%3Ab"
    Literal "order" → "order"
    First → "a:b"
      Header "x" → keyfn: Header "x": missing
      JSON "id" → "a:b"
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := keyfn.Explain(f, body(`{}`)).String(); !strings.HasPrefix(got, `no key: keyfn: First: missing`) {
		t.Errorf("got %s", got)
	}
}
