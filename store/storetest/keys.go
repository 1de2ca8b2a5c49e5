package storetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/secondrun/secondrun/store"
)

func keyChecks() []check {
	return []check{
		{"K02 K06 odd keys are separate", func(e *env) { e.separate(oddIDs(e, false)) }},
		{"K02 K06 odd effects are separate", func(e *env) { e.separate(oddIDs(e, true)) }},
		{"K03 lengths from 1 to 64 KiB", func(e *env) { e.separate(longIDs(e)) }},
		{"K04 K05 parts do not run into each other", func(e *env) { e.separate(splitIDs(e)) }},
		{"a decoded ID names the same record", decodedIDs},
		{"a hashed ID is a record of its own", hashedIDs},
		{"payloads come back as they were", payloads},
		{"payloads of failures come back as they were", failurePayloads},
		{"payloads are copied", payloadsAreCopied},
		{"holder, trace and delivery come back as they were", texts},
		{"fingerprints are compared as a whole", fingerprints},
	}
}

// odd are strings that stores were known to confuse, cut off or refuse.
var odd = []string{
	" ", "  ", "a", "A", "a ", " a", "\x00", "a\x00", "a\x00b", "\x00a", "\xff", "\xfe", "a\xff", "\xc3\x28", "\xed\xa0\x80",
	"\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a", "\ufeff", "\u200b", "\U0001f4a5", "ß", "ss", "ı", "i", "I", "İ",
	"{}", "{a}", "{a", "a}", "}{", "%", "%25", "%s", "%00", ":", "::", "a:b", "a/b", "a|b", "a,b", `\`, `\\`, `\0`, "'", "''", `"`,
	"--", ";", "*", "?", "[a]", "_", "a\nb", "a\r\nb", "\t", "\x7f", "NULL", "null", "nil", "0", "00", "-0", "1e3", "1000",
	"sha256:", "sha256:" + "00", "$1", "${a}", "../a", ".", "..",
}

// oddIDs are IDs with odd strings in every part.
func oddIDs(e *env, effects bool) []store.ID {
	var ids []store.ID
	for _, o := range odd {
		if effects {
			ids = append(ids, e.effect("parent", o), e.effect("parent", "x"+o))
			continue
		}
		ids = append(ids, e.id(o), e.id("x"+o),
			store.ID{Scope: e.scope + o, Key: "k"}, store.ID{Scope: o + e.scope, Key: "k"}, store.ID{Scope: e.scope + o, Key: o})
	}
	for _, o := range odd { // the spellings that are stored for others
		if _, k, _ := e.id(o).Encode(); k != o && !effects {
			ids = append(ids, e.id(k))
		}
	}
	return ids
}

func longIDs(e *env) []store.ID {
	var ids []store.ID
	for _, n := range []int{1, 2, 127, 128, 129, 255, 256, 1024, 2704, 2705, 8191, store.MaxKey - 1, store.MaxKey} {
		long := strings.Repeat("k", n-1)
		ids = append(ids, e.id(long+"a"), e.id(long+"b"), e.id(long+"\x00"), e.effect("parent", long+"a"), e.effect("parent", long+"b"))
		if n > len(e.scope) {
			ids = append(ids, store.ID{Scope: e.scope + long[:n-len(e.scope)], Key: "k"})
		}
	}
	return ids
}

func splitIDs(e *env) []store.ID {
	var ids []store.ID
	for _, sep := range []string{":", "/", "|", "\x00", "{", "}", "%", ",", "."} {
		a, b, c := e.scope+sep+"a", "b", "c"
		ids = append(ids,
			store.ID{Scope: a + sep + b, Key: c}, store.ID{Scope: a, Key: b + sep + c}, store.ID{Scope: a, Key: b},
			store.ID{Scope: a, Key: b, Effect: c}, store.ID{Scope: a + sep + b, Key: c, Effect: c},
			store.ID{Scope: a, Key: b + sep + c, Effect: c}, store.ID{Scope: a, Key: b, Effect: c + sep + c},
			store.ID{Scope: a + sep, Key: b}, store.ID{Scope: a, Key: sep + b}, store.ID{Scope: a, Key: b + sep},
		)
	}
	return ids
}

// separate claims every ID and then sees to it that each kept its own holder.
func (e *env) separate(ids []store.ID) {
	e.Helper()
	parents := map[store.ID]store.Token{}
	var reqs []store.ClaimRequest
	for _, id := range ids { // parents of effects that are not in the list
		if p := id.Parent(); id.Effect != "" && parents[p].IsZero() {
			r := e.req(p.Key)
			r.ID, r.Holder = p, "" // known to be taken below
			e.granted(r)
			parents[p] = r.Token
		}
	}
	for i, id := range ids {
		if id.Effect == "" && !parents[id].IsZero() {
			continue
		}
		r := e.req(id.Key)
		r.ID, r.Holder = id, fmt.Sprintf("holder %d", i)
		if id.Effect != "" {
			r.Parent, r.Retention = parents[id.Parent()], 0
		}
		reqs = append(reqs, r)
	}
	sorted(reqs)
	for part := range chunks(reqs, e.batch()) {
		for i, c := range e.claims(part) {
			if c.Verdict != store.Granted || c.Fence != 1 {
				e.Fatalf("%.60q is not a record of its own: %s", part[i].ID, show(c))
			}
		}
	}
	for part := range chunks(reqs, e.batch()) {
		again := append([]store.ClaimRequest{}, part...)
		for i := range again {
			again[i].Token, again[i].Holder = store.NewToken(), "stranger"
		}
		for i, c := range e.claims(again) {
			if c.Verdict != store.Busy || c.Holder != part[i].Holder {
				e.Fatalf("%.60q has become another record: %s, want holder %q", part[i].ID, show(c), part[i].Holder)
			}
		}
	}
}

// chunks cuts reqs into slices of at most n.
func chunks(reqs []store.ClaimRequest, n int) func(yield func([]store.ClaimRequest) bool) {
	return func(yield func([]store.ClaimRequest) bool) {
		for len(reqs) > 0 {
			k := min(n, len(reqs))
			if !yield(reqs[:k]) {
				return
			}
			reqs = reqs[k:]
		}
	}
}

func decodedIDs(e *env) {
	for _, key := range []string{"k", "\x00", strings.Repeat("k", 1000), "sha256:" + strings.Repeat("0", 64)} {
		r := e.req(key)
		e.granted(r)
		f := e.effectReq(r, key)
		e.granted(f)
		for _, id := range []store.ID{r.ID, f.ID} {
			again := e.effectReq(r, "")
			again.ID = store.DecodeID(id.Encode())
			if id.Effect == "" {
				again.Parent, again.Retention = store.Token{}, keep
			}
			e.verdict(again, store.Busy)
		}
		e.renewed(store.DecodeID(r.ID.Encode()), r.Token, long, store.OK)
		set := settlement(f, store.Succeed, "")
		set.ID = store.DecodeID(set.ID.Encode())
		e.settled(set, store.OK)
		e.already(settlement(f, store.Succeed, ""), store.StateSucceeded, 0)
	}
}

func hashedIDs(e *env) {
	plain, hashed := e.req("k"), e.req("k")
	hashed.ID = hashed.ID.Hashed()
	_, spelled, _ := hashed.ID.Encode()
	for _, r := range []store.ClaimRequest{plain, hashed, e.req(spelled)} {
		e.answered(r, afresh)
	}
	f := e.effectReq(hashed, "f")
	f.ID = hashed.ID
	f.ID.Effect = "f"
	e.answered(f, afresh)
}

// contents are payloads of every size and byte.
func contents() [][]byte {
	var bytes256 []byte
	for i := range 256 {
		bytes256 = append(bytes256, byte(i))
	}
	return [][]byte{
		nil,
		{},
		{0},
		{0xff},
		[]byte("null"), []byte(`\x00`), []byte("\r\n"), bytes256,
		bytes.Repeat(bytes256, 256), bytes.Repeat([]byte{0}, 64<<10+1), bytes.Repeat([]byte("x"), store.MaxPayload),
	}
}

func payloads(e *env) {
	for i, p := range contents() {
		r := e.req(fmt.Sprint(i))
		e.granted(r)
		set := settlement(r, store.Succeed, string(p))
		set.Payload = p
		e.settled(set, store.OK)
		for _, tok := range []store.Token{r.Token, store.NewToken()} {
			r.Token = tok
			if c := e.verdict(r, store.Done); !bytes.Equal(c.Payload, p) {
				e.Fatalf("payload %d: %d bytes became %d other bytes", i, len(p), len(c.Payload))
			}
		}
	}
}

func failurePayloads(e *env) {
	for i, p := range contents() {
		s := first(e)
		k := []store.Kind{store.Fail, store.Park, store.Retry}[i%3]
		set := settlement(s.owner, k, "")
		set.Payload = p
		e.settled(set, store.OK)
		r := e.req(s.owner.ID.Key)
		r.KeepFailures, r.MaxFailures = true, 1
		c := e.claim(r)
		if c.Verdict != store.Failed && c.Verdict != store.Exhausted || !bytes.Equal(c.Payload, p) {
			e.Fatalf("payload %d: %s: %d bytes became %d", i, c.Verdict, len(p), len(c.Payload))
		}
	}
}

func payloadsAreCopied(e *env) {
	r := e.req("k")
	e.granted(r)
	set := settlement(r, store.Succeed, "result")
	e.settled(set, store.OK)
	copy(set.Payload, "XXXXXX") // not retained after the call
	for range 2 {
		c := e.verdict(e.req("k"), store.Done)
		if string(c.Payload) != "result" {
			e.Fatalf("payload %q", c.Payload)
		}
		copy(c.Payload, "YYYYYY") // owned by the caller
	}
}

func texts(e *env) {
	for _, text := range []string{
		"", "\x00", "a\x00b", "\xff\xfe", "'\"\\", "\u00e9", "\U0001f4a5", "{}%:", "\r\n\t",
		strings.Repeat("t", store.MaxText), strings.Repeat("\xff", store.MaxText), strings.Repeat("\x00", store.MaxText),
	} {
		r := e.req("key-" + random())
		r.Holder, r.Trace, r.Delivery = text, text, text
		e.granted(r)
		e.answered(e.req(r.ID.Key), store.Claim{
			Verdict: store.Busy, Fence: 1, Starts: 1, Remaining: long, Holder: text, Trace: text,
		})
		e.settled(settlement(r, store.Fail, ""), store.OK)
		if text == "" {
			continue
		}
		r.Token = store.NewToken()
		c := e.verdict(r, store.Failed) // the same delivery
		if c.Holder != text || c.Trace != text {
			e.Errorf("%.20q: %s", text, show(c))
		}
		r.Delivery = text[:len(text)-1] + "x"
		e.granted(r)
	}
}

func fingerprints(e *env) {
	full := store.Fingerprint{Version: math.MaxUint16}
	for i := range full.Sum {
		full.Sum[i] = byte(255 - i)
	}
	r := e.req("k")
	r.Fingerprint = full
	e.granted(r)
	r.Token = store.NewToken()
	e.verdict(r, store.Busy)
	for i := range full.Sum {
		r.Fingerprint = full
		r.Fingerprint.Sum[i] ^= 1
		e.verdict(r, store.Conflict)
	}
	r.Fingerprint.Version--
	e.verdict(r, store.Busy)
}
