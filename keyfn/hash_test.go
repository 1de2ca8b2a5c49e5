package keyfn_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

func TestU02_HashOfEqualBodies(t *testing.T) {
	f := keyfn.Hash(keyfn.Everything())
	want, err := f(body(`{"id":"x","n":7,"tags":["a","b"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{
		`{"tags":["a","b"],"n":7,"id":"x"}`,
		"{ \"id\" : \"x\",\n \"n\": 7, \"tags\": [\"a\", \"b\"] }\n",
		"\xef\xbb\xbf" + `{"id":"x","n":7,"tags":["a","b"]}`,
		`{"\u0069d":"\u0078","n":7,"tags":["a","b"]}`,
		`{"id":"x","n":7.0,"tags":["a","b"]}`,
		`{"id":"x","n":7e0,"tags":["a","b"]}`,
		`{"id":"x","n":0.7e1,"tags":["a","b"]}`,
	} {
		if got, err := f(body(same)); got != want || err != nil {
			t.Errorf("%s: %s, %v", same, got, err)
		}
	}
	for _, different := range []string{
		`{"id":"x","n":"7","tags":["a","b"]}`,
		`{"id":"x","n":7,"tags":["b","a"]}`,
		`{"id":"x","n":7,"tags":["a","b"],"z":null}`,
	} {
		if got, err := f(body(different)); got == want || err != nil {
			t.Errorf("%s: %s, %v", different, got, err)
		}
	}
}

func TestU02_HashTellsApart(t *testing.T) {
	f := keyfn.Hash(keyfn.Everything())
	for _, pair := range [][2]string{
		{`{"id":9007199254740993}`, `{"id":9007199254740992}`},
		{`{"id":9007199254740993.0}`, `{"id":9007199254740992.0}`},
		{`{"id":9007199254740992.5}`, `{"id":9007199254740992}`},
		{`{"id":1.00000000000000000001}`, `{"id":1}`},
		{`{"id":0.1000000000000000055}`, `{"id":0.1}`},
		{`{"id":1e-323}`, `{"id":0}`},
		{`{"id":"7"}`, `{"id":7}`},
		{`{"id":null,"x":1}`, `{"id":"null","x":1}`},
		{`{"a":1,"b":null}`, `{"a":1}`},
		{`{"t":"a<b"}`, `{"t":"a\\u003cb"}`},
		{`{"a":{"b":1}}`, `{"a":1,"b":1}`},
		{`{"id":"caf\u00e9"}`, `{"id":"cafe\u0301"}`},
		{`["a"]`, `["a",[]]`},
	} {
		a, err1 := f(body(pair[0]))
		b, err2 := f(body(pair[1]))
		if a == b || err1 != nil || err2 != nil {
			t.Errorf("%s and %s: %s %v, %s %v", pair[0], pair[1], a, err1, b, err2)
		}
	}
	for _, pair := range [][2]string{{`{"t":"a<b\/"}`, `{"t":"a\u003cb/"}`}, {`{"a":1e3}`, `{"a":1000}`}, {`{"a":-0}`, `{"a":0}`}, {`{"a":0.1}`, `{"a":1e-1}`}} {
		a, _ := f(body(pair[0]))
		if b, err := f(body(pair[1])); a != b || err != nil {
			t.Errorf("%s and %s differ: %v", pair[0], pair[1], err)
		}
	}
}

func TestU02_HashErrors(t *testing.T) {
	const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	f := keyfn.Hash(keyfn.Everything())
	check(t, f, []row{
		{name: "duplicate", m: body(`{"id":"ev_1","id":"` + canary + `"}`), err: keyfn.ErrAmbiguous},
		{name: "out of range", m: body(`{"id":1e400}`), err: keyfn.ErrMalformed},
		{name: "lone surrogate", m: body(`{"id":"A\ud800"}`), err: keyfn.ErrMalformed},
		{name: "lone low surrogate", m: body(`{"id":"A\udfff"}`), err: keyfn.ErrMalformed},
		{name: "invalid UTF-8", m: body("{\"id\":\"A\xff\"}"), err: keyfn.ErrMalformed},
		{name: "two documents", m: body(`{"id":"` + canary + `"}{}`), err: keyfn.ErrMalformed},
		{name: "empty", m: body(``), err: keyfn.ErrMissing},
		{name: "empty object", m: body(`{}`), err: keyfn.ErrNothingLeft},
		{name: "empty array", m: body(`[]`), err: keyfn.ErrNothingLeft},
		{name: "null", m: body(`null`), err: keyfn.ErrNothingLeft},
		{name: "blank", m: body(`{"a":[" ",null,{}]}`), err: keyfn.ErrNothingLeft},
		{name: "deep", m: body(strings.Repeat("[", 20000)), err: keyfn.ErrMalformed},
	})
	for _, s := range []string{`0`, `false`, `{"a":1}`} {
		if key, err := f(body(s)); err != nil || key == emptyDigest {
			t.Errorf("%s: %s, %v", s, key, err)
		}
	}
	mustPanic(t, "zero Paths", func() { keyfn.Hash(keyfn.Paths{}) })
	mustPanic(t, "Strip()", func() { keyfn.Strip() })
	mustPanic(t, "Keep()", func() { keyfn.Keep() })
	mustPanic(t, "short secret", func() { keyfn.HMAC([]byte("short"), keyfn.Everything()) })
}

func TestU34_Volatile(t *testing.T) {
	b := `{"user":{"id":"u-1"},"email_data":{"token":"483920","token_hash":"h1"},"metadata":{"uuid":"6a","time":"10:00:00Z"}}`
	b2 := strings.NewReplacer("6a", "7b", "10:00:00Z", "10:05:00Z").Replace(b)
	for _, p := range []keyfn.Paths{keyfn.Strip("metadata"), keyfn.Strip("metadata.*"), keyfn.Keep("user.id", "email_data.token_hash")} {
		k1, err1 := keyfn.Hash(p)(body(b))
		k2, err2 := keyfn.Hash(p)(body(b2))
		if k1 != k2 || err1 != nil || err2 != nil {
			t.Errorf("%v: %s %v, %s %v", p, k1, err1, k2, err2)
		}
		k3, _ := keyfn.Hash(p)(body(strings.Replace(b, "u-1", "u-2", 1)))
		if k3 == k1 {
			t.Errorf("%v: another user, same key", p)
		}
	}
	check(t, keyfn.Hash(keyfn.Strip("user", "email_data", "metadata")), []row{{name: "all stripped", m: body(b), err: keyfn.ErrNothingLeft}})
	check(t, keyfn.Hash(keyfn.Keep("user.id", "email_data.none")), []row{{name: "kept path missing", m: body(b), err: keyfn.ErrMissing}})
	check(t, keyfn.Hash(keyfn.Keep("user.id.x")), []row{{name: "below a scalar", m: body(b), err: keyfn.ErrMissing}})
	check(t, keyfn.Hash(keyfn.Everything()), []row{
		{name: "pointer", m: body(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"big","s3Key":"` + canary + `"}]`), err: keyfn.ErrUnresolved},
		{name: "pointer as an object", m: body(` {"s3BucketName":"big","s3Key":"` + canary + `"}`), err: keyfn.ErrUnresolved},
	})
	check(t, keyfn.JSON("s3Key"), []row{
		{name: "pointer by path", m: body(`{"s3BucketName":"big","s3Key":"` + canary + `"}`), err: keyfn.ErrUnresolved},
		{name: "not a pointer", m: body(`{"s3BucketName":"big","s3Key":"x","orderId":"1"}`), key: "x"},
	})
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		body  string
		paths keyfn.Paths
		want  string
	}{
		{`{"b":1,"a":[{"ts":1,"x":2},{"ts":2}]}`, keyfn.Strip("a.*.ts"), `{"a":[{"x":2},{}],"b":1}`},
		{`{"b":1,"a":[{"ts":1,"x":2},{"ts":2}]}`, keyfn.Strip("a.0"), `{"a":[{"ts":2}],"b":1}`},
		{`[[{"t":1,"v":1}],[{"t":2,"v":2}]]`, keyfn.Strip("*.*.t"), `[[{"v":1}],[{"v":2}]]`},
		{`{"a":{"t":1,"v":2},"b":{"t":3,"v":4}}`, keyfn.Strip("*.t"), `{"a":{"v":2},"b":{"v":4}}`},
		{`{"a":{"t":1,"v":2},"b":{"t":3,"v":4}}`, keyfn.Keep("*.v", "a.t"), `{"a":{"t":1,"v":2},"b":{"v":4}}`},
		{`{"a":{"t":1,"v":2},"c":5}`, keyfn.Keep("a"), `{"a":{"t":1,"v":2}}`},
		{`{"l":[{"s":1,"q":2},3,{"s":4}]}`, keyfn.Keep("l.*.s"), `{"l":[{"s":1},null,{"s":4}]}`},
		{`{"l":[{"s":1,"q":2},3,{"s":4}]}`, keyfn.Keep("l.2"), `{"l":[{"s":4}]}`},
		{`{"*":1,"x":2}`, keyfn.Strip("/*"), `{"x":2}`},
		{`{"a.b":1,"x":2}`, keyfn.Strip("/a.b"), `{"x":2}`},
		{`{"\u0061":1,"x":2}`, keyfn.Strip("a"), `{"x":2}`},
	} {
		got, err := keyfn.Canonical([]byte(c.body), c.paths)
		if string(got) != c.want || err != nil {
			t.Errorf("%s %v: %s, %v; want %s", c.body, c.paths, got, err, c.want)
		}
	}
	if _, err := keyfn.Canonical([]byte(canary), keyfn.Strip("x")); !errors.Is(err, keyfn.ErrMalformed) || strings.Contains(err.Error(), canary) {
		t.Errorf("got %v", err)
	}
}

// The examples of RFC 8785, sections 3.2.2 to 3.2.4 and appendix B.
func TestCanonical_RFC8785(t *testing.T) {
	in := `{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`
	wantHex := `7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d`
	want, err := hex.DecodeString(wantHex)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keyfn.Canonical([]byte(in), keyfn.Everything()); string(got) != string(want) || err != nil {
		t.Errorf("got  %s %v\nwant %s", got, err, want)
	}
	in = `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`
	got, err := keyfn.Canonical([]byte(in), keyfn.Everything())
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, v := range []string{"Carriage Return", "One", "Control", "Latin Small", "Euro Sign", "Emoji", "Hebrew"} {
		i := strings.Index(string(got), v)
		if i < at {
			t.Errorf("%s out of order in %s", v, got)
		}
		at = i
	}
	for in, want := range map[string]string{
		"-0.0": "0", "5e-324": "5e-324", "-5e-324": "-5e-324", "1.7976931348623157e308": "1.7976931348623157e+308",
		"9007199254740992": "9007199254740992", "-9007199254740992": "-9007199254740992",
		"1.0E+25": "1e+25", "1e21": "1e+21", "1e20": "100000000000000000000", "0.000001": "0.000001", "1e-7": "1e-7", "1e-06": "0.000001",
		"333333333.33333343": "333333333.33333343", "-0.0000033333333333333333": "-0.0000033333333333333333", "-0.000003333333333333333": "-0.000003333333333333333", "4.35": "4.35",
		"123456789012345678901234567890": "1.2345678901234567890123456789e+29", "295147905179352830000": "295147905179352830000",
		"0.10000000000000001": "0.1", "1424953923781206.2": "1424953923781206.2",
	} {
		got, err := keyfn.Canonical([]byte("[1,"+in+"]"), keyfn.Everything())
		if string(got) != "[1,"+want+"]" || err != nil {
			t.Errorf("%s: %s %v, want %s", in, got, err, want)
		}
	}
}

func TestHMAC(t *testing.T) {
	a := keyfn.HMAC([]byte("0123456789abcdef"), keyfn.Everything())
	b := keyfn.HMAC([]byte("0123456789abcdeg"), keyfn.Everything())
	ka, err := a(body(`{"a":1}`))
	kb, _ := b(body(`{"a":1}`))
	kh, _ := keyfn.Hash(keyfn.Everything())(body(`{"a":1}`))
	if ka == kb || ka == kh || len(ka) != 64 || err != nil {
		t.Errorf("%s %s %s %v", ka, kb, kh, err)
	}
}

func TestU05_Form(t *testing.T) {
	f := keyfn.Join(keyfn.Form("MessageSid"), keyfn.Form("MessageStatus"))
	check(t, f, []row{
		{name: "sent", m: body(`MessageSid=SM01&MessageStatus=sent`), key: "SM01:sent"},
		{name: "delivered", m: body(`MessageStatus=delivered&MessageSid=SM01`), key: "SM01:delivered"},
		{name: "escaped", m: body(`MessageSid=SM%3a01&MessageStatus=a+b`), key: "SM%3A01:a b"},
		{name: "missing", m: body(`MessageSid=SM01`), err: keyfn.ErrMissing},
		{name: "empty", m: body(`MessageSid=&MessageStatus=sent`), err: keyfn.ErrEmpty},
		{name: "empty body", m: body(``), err: keyfn.ErrMissing},
		{name: "twice", m: body(`MessageSid=a&MessageSid=b&MessageStatus=sent`), err: keyfn.ErrAmbiguous},
		{name: "bad escape", m: body(`MessageSid=%zz` + canary), err: keyfn.ErrMalformed},
	})
}
