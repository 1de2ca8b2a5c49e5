package keyfn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/secondrun/secondrun/keyfn"
)

// FuzzJoin: different lists of values never give one key.
func FuzzJoin(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a%3Ab", "c", "a:b", "c")
	f.Add("%", ":", "%25", "%3A")
	f.Add("a\x00", "{b}", "a%00", "%7Bb%7D")
	join := keyfn.Join(keyfn.Header("a"), keyfn.Header("b"))
	text := keyfn.Template("x-{header:a}-{header:b}.")
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string) {
		m1, m2 := headers("", "a", a1, "b", b1), headers("", "a", a2, "b", b2)
		for _, key := range []keyfn.Func{join, text} {
			k1, err1 := key(m1)
			k2, err2 := key(m2)
			if err1 != nil || err2 != nil {
				continue
			}
			if (k1 == k2) != (a1 == a2 && b1 == b2) {
				t.Fatalf("(%q, %q) and (%q, %q) give %q and %q", a1, b1, a2, b2, k1, k2)
			}
		}
		// Another number of parts is another key.
		k1, err := join(m1)
		if err != nil {
			return
		}
		if k, err := keyfn.Join(keyfn.Header("a"))(m2); err == nil && k == k1 {
			t.Fatalf("one part %q gives %q, as (%q, %q) do", a2, k, a1, b1)
		}
	})
}

// FuzzJSON: two scalars give one key only if they are the same value.
func FuzzJSON(f *testing.F) {
	for _, pair := range [][2]string{{`7`, `"7"`}, {`"#7"`, `7`}, {`"'#7"`, `"#7"`}, {`1e1`, `10`}, {`0.1`, `0.10`}, {`"\u0041"`, `"A"`}, {`1e-400`, `0`}, {`1e22`, `10000000000000000000000`}} {
		f.Add(pair[0], pair[1])
	}
	key := keyfn.JSON("id")
	f.Fuzz(func(t *testing.T, a, b string) {
		ka, err1 := key(body(`{"id":` + a + `}`))
		kb, err2 := key(body(`{"id":` + b + `}`))
		if err1 != nil || err2 != nil {
			return
		}
		va, vb := decode(t, `{"id":`+a+`}`), decode(t, `{"id":`+b+`}`)
		if (ka == kb) != sameScalar(va.(map[string]any)["id"], vb.(map[string]any)["id"]) {
			t.Fatalf("%s and %s give %q and %q", a, b, ka, kb)
		}
	})
}

func decode(t *testing.T, s string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", s, err)
	}
	return v
}

func sameScalar(a, b any) bool {
	na, ok1 := a.(json.Number)
	nb, ok2 := b.(json.Number)
	if ok1 != ok2 {
		return false
	}
	if !ok1 {
		return a == b
	}
	return exact(na).Cmp(exact(nb)) == 0
}

// exact returns the value of a number that has a key. Package big refuses a
// zero with a huge exponent.
func exact(n json.Number) *big.Rat {
	mantissa, _, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if !strings.ContainsAny(mantissa, "123456789") {
		return new(big.Rat)
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic("not a number: " + n)
	}
	return r
}

// FuzzCanonical: the canonical form is JSON, keeps the value, is its own
// canonical form, and is the same for other spellings of the body.
func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1,2.50,-0,1e3],"a":{"\u00e9":null,"x":"\u003c\/"},"\ud83d\ude00":1,"\ufb33":2}`), uint64(1))
	f.Add([]byte(`[9007199254740993,0.1,1e-7,123456789012345678901234567890,1.00000000000000000001]`), uint64(2))
	f.Add([]byte("\xef\xbb\xbf{\"a\":\"x\"} "), uint64(3))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		out, err := keyfn.Canonical(in, keyfn.Everything())
		if err != nil {
			return
		}
		again, err := keyfn.Canonical(out, keyfn.Everything())
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q becomes %q becomes %q, %v", in, out, again, err)
		}
		v := decode(t, strings.TrimPrefix(string(in), "\ufeff"))
		if !equalValues(v, decode(t, string(out))) {
			t.Fatalf("%q becomes %q, another value", in, out)
		}
		other := respell(v, rand.New(rand.NewPCG(seed, 0)))
		if got, err := keyfn.Canonical([]byte(other), keyfn.Everything()); err != nil || !bytes.Equal(got, out) {
			t.Fatalf("%q becomes %q, %q becomes %q, %v", in, out, other, got, err)
		}
	})
}

// equalValues compares numbers by their value: integers exactly, others as
// binary64.
func equalValues(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		nb, ok := b.(json.Number)
		if !ok {
			return false
		}
		if sameScalar(a, nb) {
			return true
		}
		fa, err1 := a.Float64()
		fb, err2 := nb.Float64()
		return err1 == nil && err2 == nil && fa == fb && !exact(a).IsInt()
	case []any:
		bs, ok := b.([]any)
		if !ok || len(a) != len(bs) {
			return false
		}
		for i := range a {
			if !equalValues(a[i], bs[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		bs, ok := b.(map[string]any)
		if !ok || len(a) != len(bs) {
			return false
		}
		for name := range a {
			if v, ok := bs[name]; !ok || !equalValues(a[name], v) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// respell writes a value with members in another order, spaces, escapes, and
// numbers in another spelling.
func respell(v any, r *rand.Rand) string {
	space := func() string { return []string{"", " ", "\n\t", "\r\n "}[r.IntN(4)] }
	var b strings.Builder
	switch v := v.(type) {
	case map[string]any:
		b.WriteString("{")
		first := true
		for name, e := range v { // in the random order of maps
			if !first {
				b.WriteString(",")
			}
			first = false
			b.WriteString(space() + respell(name, r) + space() + ":" + respell(e, r) + space())
		}
		b.WriteString("}")
	case []any:
		b.WriteString("[")
		for i, e := range v {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(space() + respell(e, r) + space())
		}
		b.WriteString("]")
	case string:
		b.WriteString(`"`)
		for _, c := range v {
			if c < 0x20 || c == '"' || c == '\\' || (c < 0x10000 && r.IntN(3) == 0) {
				fmt.Fprintf(&b, `\u%04x`, c)
			} else {
				b.WriteRune(c)
			}
		}
		b.WriteString(`"`)
	case json.Number:
		s := v.String()
		if !strings.ContainsAny(s, ".eE") && r.IntN(2) == 0 {
			s += []string{".0", "e0", "E+00", ".000e0"}[r.IntN(4)]
		}
		b.WriteString(s)
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(&b, v)
	}
	return space() + b.String() + space()
}

// FuzzParts: nothing panics whatever the bytes, errors are typed, and a key is
// within its limits and comes out the same twice.
func FuzzParts(f *testing.F) {
	for _, s := range []string{``, `{}`, `null`, `{"id":"a","at":1789380900}`, `a=b&id=c`, `{"Records":[{}]}`, `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b"}]`, `{"id":{"a":["eyJpZCI6MX0="]}}`, "\x00\x00\x00\x00\x01{}"} {
		f.Add([]byte(s), s)
	}
	id := keyfn.JSON("id")
	parts := []keyfn.Func{
		id, keyfn.JSON("id.a.0"), keyfn.JSONText("at"), keyfn.Form("id"), keyfn.Header("h"), keyfn.Time(keyfn.JSON("at")), keyfn.Time(keyfn.Header("h")),
		keyfn.Every(time.Hour, keyfn.JSON("at")), keyfn.Daily(nil, keyfn.Header("h")),
		keyfn.From(func(v map[string]any) (string, error) { return fmt.Sprint(v), nil }),
		keyfn.Hash(keyfn.Everything()), keyfn.Hash(keyfn.Strip("id", "*.a")), keyfn.Hash(keyfn.Keep("id.*.0")),
		keyfn.In(keyfn.Embedded("id"), id), keyfn.In(keyfn.Base64("id.a.0"), id), keyfn.In(keyfn.Sub("id"), keyfn.JSON("a.0")),
		keyfn.Template("{id}/{text:at}/{header:h}"), keyfn.First(id, keyfn.Header("h")), keyfn.Version(keyfn.JSON("at"), 3, id),
	}
	f.Fuzz(func(t *testing.T, b []byte, header string) {
		m := keyfn.NewMessage(b, map[string][]string{"h": {header}})
		before := bytes.Clone(b)
		for i, p := range parts {
			key, err := p(m)
			if again, err2 := p(m); again != key || (err2 == nil) != (err == nil) {
				t.Fatalf("part %d: %q, then %q", i, key, again)
			}
			if err == nil && (strings.TrimSpace(key) == "" || len(key) > keyfn.MaxKey) {
				t.Fatalf("part %d: key %q", i, key)
			}
			if _, ok := err.(*keyfn.Error); err != nil && !ok { //nolint:errorlint // the very type is promised
				t.Fatalf("part %d: %T", i, err)
			}
		}
		if !bytes.Equal(before, b) {
			t.Fatal("the body was changed")
		}
	})
}

// FuzzTemplate: whatever parses does not panic, and its values are injective.
func FuzzTemplate(f *testing.F) {
	f.Add("invoice:{header:a}:{header:b}", "1", "2", "3")
	f.Add("{header:a}-{header:b}{{x}}", "1-2", "3", "1")
	f.Fuzz(func(t *testing.T, text, a, b, c string) {
		key, err := keyfn.ParseTemplate(text)
		if err != nil {
			return
		}
		k1, err1 := key(headers("{}", "a", a, "b", b))
		k2, err2 := key(headers("{}", "a", a, "b", c))
		if err1 == nil && err2 == nil && strings.Contains(text, "{header:b}") && !strings.Contains(text, "{{") && k1 == k2 && b != c {
			t.Fatalf("%q: %q and %q give %q", text, b, c, k1)
		}
	})
}
