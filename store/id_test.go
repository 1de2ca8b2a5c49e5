package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// spelling is an encoded ID.
type spelling struct{ scope, key, effect string }

func encoded(id store.ID) spelling {
	s, k, e := id.Encode()
	return spelling{s, k, e}
}

// odd are parts that are hard to keep apart or to keep at all.
var odd = []string{
	"", " ", "a", "A", "a:b", "a/b", "%", "{a}", "\x00", "a\x00", "\x7f", "\n", "\xff", "\xc3\x28", "\xed\xa0\x80",
	"é", "e\u0301", "\u212b", "\u00c5", "sha256:", "sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("0", 63),
	"SHA256:" + strings.Repeat("0", 64), strings.Repeat("k", 128), strings.Repeat("k", 129), strings.Repeat("k", store.MaxKey),
	strings.Repeat("é", 64), strings.Repeat("é", 65), "x" + strings.Repeat("\xff", 100),
}

func TestK02_EncodedPartsAreShortText(t *testing.T) {
	for _, part := range odd {
		for _, s := range []spelling{encoded(store.ID{Scope: part}), encoded(store.ID{Key: part}), encoded(store.ID{Effect: part})} {
			for _, got := range []string{s.scope, s.key, s.effect} {
				checkText(t, got)
			}
		}
	}
}

func checkText(t *testing.T, got string) {
	t.Helper()
	if len(got) > 128 || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		t.Errorf("%.200q is not short text", got)
	}
}

func TestReadablePartsStayAsTheyAre(t *testing.T) {
	for _, part := range []string{"", "a", "invoice:inv_8841:capture", "é", "{}%: '\"\\", strings.Repeat("k", 128), "sha25", "SHA256:"} {
		if got := encoded(store.ID{Scope: part, Key: part, Effect: part}); got != (spelling{part, part, part}) {
			t.Errorf("Encode(%q) = %q", part, got)
		}
	}
}

func TestK03_LongAndOddPartsAreHashed(t *testing.T) {
	want := "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" // sha256sum of one zero byte
	if _, got, _ := (store.ID{Key: "\x00"}).Encode(); got != want {
		t.Errorf("Encode = %q, want %q", got, want)
	}
	for _, part := range []string{strings.Repeat("k", 129), "\xff", "a\nb", "sha256:x", "sha256:"} {
		if _, got, _ := (store.ID{Key: part}).Encode(); len(got) != 71 || !strings.HasPrefix(got, "sha256:") {
			t.Errorf("Encode(%.20q) = %q", part, got)
		}
	}
}

func TestK04_DifferentIDsHaveDifferentSpellings(t *testing.T) {
	seen := map[spelling]store.ID{}
	for _, a := range odd {
		for _, b := range odd {
			for _, c := range []string{"", "f", "\x00", a, b} {
				id := store.ID{Scope: a, Key: b, Effect: c}
				if other, ok := seen[encoded(id)]; ok && other != id {
					t.Fatalf("%.60q and %.60q have one spelling", other, id)
				}
				seen[encoded(id)] = id
			}
		}
	}
	for _, id := range seen { // nor does a spelling name another ID
		if s := encoded(id); s.key != id.Key {
			if again := encoded(store.ID{Scope: id.Scope, Key: s.key, Effect: id.Effect}); again == s {
				t.Fatalf("the text %q names the record of %.60q", s.key, id)
			}
		}
	}
}

func TestDecodedIDHasTheSameSpelling(t *testing.T) {
	for _, a := range odd {
		for _, b := range odd {
			id := store.ID{Scope: a, Key: b, Effect: a}
			s := encoded(id)
			again := store.DecodeID(id.Encode())
			if encoded(again) != s {
				t.Fatalf("Encode(DecodeID(%q)) = %q", s, encoded(again))
			}
			if store.DecodeID(again.Encode()) != again {
				t.Fatalf("DecodeID is not stable for %q", s)
			}
		}
	}
}

func TestHashedKeyIsItsOwnRecord(t *testing.T) {
	id := store.ID{Scope: "s", Key: "k", Effect: "f"}
	h := id.Hashed()
	s := encoded(h)
	if s.scope != "s" || s.effect != "f" || len(s.key) != 71 || s.key == "k" {
		t.Errorf("Encode = %q", s)
	}
	if h.Hashed() != h {
		t.Errorf("hashed twice")
	}
	if encoded(store.DecodeID(h.Encode())) != s {
		t.Errorf("DecodeID loses that the key is hashed")
	}
	if got := encoded(store.ID{Scope: "s", Key: s.key, Effect: "f"}); got == s {
		t.Errorf("the text of a digest names the hashed key")
	}
}

func TestKeyHashIsOverTheSpelling(t *testing.T) {
	id := store.ID{Scope: "s", Key: "\x00", Effect: "f"}
	if a, b := id.KeyHash(), store.DecodeID(id.Encode()).KeyHash(); a != b || len(a) != 8 {
		t.Errorf("KeyHash = %q and %q", a, b)
	}
	seen := map[string]bool{}
	for _, id := range []store.ID{{Scope: "ab", Key: "c"}, {Scope: "a", Key: "bc"}, {Key: "abc"}, {Scope: "a", Key: "b", Effect: "c"}, {Scope: "a", Key: "b"}} {
		seen[id.KeyHash()] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d different hashes of 5 IDs", len(seen))
	}
}

func TestParentAndOrder(t *testing.T) {
	id := store.ID{Scope: "s", Key: "k", Effect: "\x00"}
	if p := id.Parent(); p != (store.ID{Scope: "s", Key: "k"}) || store.DecodeID(id.Encode()).Parent() != p {
		t.Errorf("Parent = %+v", p)
	}
	ordered := []store.ID{
		{},
		{Scope: "a"},
		{Scope: "a", Key: "a"},
		{Scope: "a", Key: "a", Effect: "a"},
		{Scope: "a", Key: "a", Effect: "b"},
		{Scope: "a", Key: "a\x00"},
		{Scope: "a", Key: "b"},
		{Scope: "b"},
		{Scope: "\xff"},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("Compare(%q, %q) = %d", a, b, got)
			}
		}
	}
	if a := (store.ID{Key: "k"}).Hashed(); a.Compare(store.ID{Key: a.Key}) == 0 {
		t.Errorf("a hashed ID compares equal to its text")
	}
	if n := (store.ID{Scope: "a", Key: "bb", Effect: "ccc"}).Len(); n != 3 {
		t.Errorf("Len = %d", n)
	}
}

func TestTokenIsNeverPrinted(t *testing.T) {
	tok := store.NewToken()
	hex := fmt.Sprintf("%x", [16]byte(tok))
	raw := string(tok[:])
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{tok, &tok, store.Lease{Token: tok}, []store.ClaimRequest{{Token: tok, Parent: tok}}, store.Held{Lease: store.Lease{Token: tok}}} {
			out := fmt.Sprintf(format, v)
			if strings.Contains(out, hex) || strings.Contains(out, raw) || strings.Contains(out, fmt.Sprint([16]byte(tok))) {
				t.Errorf("%s of %T shows the token: %s", format, v, out)
			}
		}
	}
	if tok.IsZero() || !(store.Token{}).IsZero() || store.NewToken() == tok {
		t.Error("NewToken or IsZero is wrong")
	}
}

func TestFingerprints(t *testing.T) {
	a, b := store.Fingerprint{Version: 1}, store.Fingerprint{Version: 1}
	b.Sum[31] = 1
	other := b
	other.Version = 0xfffe
	for _, c := range []struct {
		x, y store.Fingerprint
		want bool
	}{
		{a, b, true},
		{b, a, true},
		{a, a, false},
		{a, other, false},
		{a, store.Fingerprint{}, false},
		{store.Fingerprint{}, b, false},
		{store.Fingerprint{}, store.Fingerprint{Sum: b.Sum}, false},
	} {
		if got := c.x.Conflicts(c.y); got != c.want {
			t.Errorf("%v.Conflicts(%v) = %t", c.x, c.y, got)
		}
	}
	for _, f := range []store.Fingerprint{{}, a, b, other} {
		raw := f.Bytes()
		got, err := store.ParseFingerprint(raw)
		if err != nil || got != f || len(raw) != 0 && len(raw) != 34 {
			t.Errorf("ParseFingerprint(%x) = %v, %v, want %v", raw, got, err, f)
		}
	}
	for _, raw := range [][]byte{{0}, make([]byte, 33), make([]byte, 35)} {
		if _, err := store.ParseFingerprint(raw); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("ParseFingerprint of %d bytes: %v", len(raw), err)
		}
	}
}

func TestErrorsArePermanent(t *testing.T) {
	for _, err := range []error{store.ErrCorrupt, store.ErrIncompatible} {
		wrapped := fmt.Errorf("row 7: %w", err)
		if !errors.Is(wrapped, err) || !errors.Is(wrapped, store.ErrPermanent) {
			t.Errorf("%v does not wrap itself and ErrPermanent", wrapped)
		}
	}
	if errors.Is(store.ErrCorrupt, store.ErrIncompatible) || errors.Is(store.ErrPermanent, store.ErrCorrupt) {
		t.Error("the errors are confused")
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{store.Granted.String(), "granted"},
		{store.Refused.String(), "refused"},
		{store.Park.String(), "park"},
		{store.Absent.String(), "absent"},
		{store.StateFailed.String(), "failed"},
		{store.FailedParked.String(), "parked"},
		{store.Verdict(0).String(), "none"},
		{store.Verdict(200).String(), "none"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestHeldTravelsInTheContext(t *testing.T) {
	if store.HeldFrom(t.Context()) != nil {
		t.Error("a claim from nowhere")
	}
	h := &store.Held{Fence: 7}
	if store.HeldFrom(store.WithHeld(t.Context(), h)) != h {
		t.Error("the claim is lost")
	}
}

// FuzzK04_Encode looks for two IDs with one spelling, and for spellings that a
// store cannot keep.
func FuzzK04_Encode(f *testing.F) {
	for i, a := range odd[:len(odd)-4] {
		f.Add(a, odd[(i+7)%len(odd)], "", a, "b", "c")
	}
	f.Fuzz(func(t *testing.T, a, b, c, x, y, z string) {
		id, other := store.ID{Scope: a, Key: b, Effect: c}, store.ID{Scope: x, Key: y, Effect: z}
		s := encoded(id)
		for _, part := range []string{s.scope, s.key, s.effect} {
			checkText(t, part)
		}
		if (s == encoded(other)) != (id == other) {
			t.Errorf("%q and %q: spellings %q and %q", id, other, s, encoded(other))
		}
		if encoded(store.DecodeID(id.Encode())) != s {
			t.Errorf("DecodeID of %q names another record", s)
		}
		if (c == "") != (s.effect == "") {
			t.Errorf("the effect %q became %q", c, s.effect)
		}
	})
}

// FuzzK13_ParseFingerprint must not panic, and must read back what it accepts.
func FuzzK13_ParseFingerprint(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 34))
	f.Add(store.Fingerprint{Version: 9}.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := store.ParseFingerprint(raw)
		if err == nil && !got.IsZero() && !bytes.Equal(got.Bytes(), raw) {
			t.Errorf("%x became %x", raw, got.Bytes())
		}
	})
}
