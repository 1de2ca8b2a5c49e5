package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// TestK02_K03_K04_Keys: any bytes of any length name a record of their own, and
// are listed as they are where they are text.
func TestK02_K03_K04_D10_Keys(t *testing.T) {
	addrs := clusterAddrs(t)
	s := open(t, cluster(t, addrs), nil)
	scope := fmt.Sprintf("sc*o:p{e}%%[%d]\\", time.Now().UnixNano())
	other := strings.Replace(scope, "*", "X", 1)
	keys := []string{
		"c", "b:c", ":c", "a:b:c", "%3Ac", "{tag}", "x{tag}y{tag2}z", "}{", "{}", "%7Btag%7D", "%", "ключ", "e\u0301", "\u00e9",
		"nul\x00byte", "bad\xffutf8", "new\nline", strings.Repeat("k", 128), strings.Repeat("k", 129),
		strings.Repeat("long", store.MaxKey/4), "sha256:" + strings.Repeat("0", 64), "*", "?", "[a-z]", `\`, " ", "c:effects", "c}:effects",
	}
	ids := map[store.ID]store.Token{}
	for _, key := range keys {
		for _, sc := range []string{scope, other} {
			r := request(t)
			r.ID = store.ID{Scope: sc, Key: key}
			if c := claim(t, s, r); c.Verdict != store.Granted || c.Fence != 1 {
				t.Fatalf("%q shares a record: %+v", key, c)
			}
			ids[r.ID] = r.Token
		}
	}
	for id, token := range ids {
		st, err := one(s.Renew(t.Context(), []store.Lease{{ID: id, Token: token}}, time.Minute))
		if err != nil || st.Code != store.OK {
			t.Fatalf("%q: %+v, %v", id.Key, st, err)
		}
	}
	seen := map[string]int{}
	for _, rec := range list(t, s, store.ListQuery{Scope: scope, Limit: 5}) {
		_, key, _ := rec.ID.Encode()
		seen[key]++
	}
	for _, key := range keys {
		_, stored, _ := store.ID{Scope: scope, Key: key}.Encode()
		if seen[stored] != 1 {
			t.Errorf("%q was listed %d times", stored, seen[stored])
		}
	}
	if len(seen) != len(keys) {
		t.Errorf("%d records listed, want %d", len(seen), len(keys))
	}
}

func list(t testing.TB, s store.Inspector, q store.ListQuery) (all []store.Record) {
	t.Helper()
	for {
		page, next, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > q.Limit {
			t.Fatalf("a page of %d with a limit of %d", len(page), q.Limit)
		}
		all = append(all, page...)
		if q.Cursor = next; next == "" {
			return all
		}
	}
}

// TestListExactlyOnce lists many records and effects page by page while the
// server's key table grows.
func TestListExactlyOnce(t *testing.T) {
	s := open(t, standalone(t), nil)
	scope := newID(t).Key
	const n = 300
	for i := range n {
		r := request(t)
		r.ID = store.ID{Scope: scope, Key: fmt.Sprint(i)}
		claim(t, s, r)
		for e := range i % 4 {
			er := r
			er.ID.Effect, er.Parent, er.Token = fmt.Sprint("e", e), r.Token, store.NewToken()
			claim(t, s, er)
			if e == 1 {
				settle(t, s, er, store.Succeed)
			}
		}
	}
	for _, limit := range []int{1, 7, 100} {
		seen := map[store.ID]int{}
		succeeded := len(list(t, s, store.ListQuery{Scope: scope, Limit: limit, State: store.StateSucceeded}))
		var cursor string
		for {
			page, next, err := s.List(t.Context(), store.ListQuery{Scope: scope, Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range page {
				seen[rec.ID]++
				if rec.ID.Effect != "" && seen[rec.ID.Parent()] != 1 {
					t.Errorf("effect %v before its record", rec.ID)
				}
			}
			claim(t, s, request(t)) // another scope grows
			if cursor = next; next == "" {
				break
			}
		}
		if want := n + n/4*(1+2+3); len(seen) != want || succeeded != n/2 {
			t.Errorf("limit %d: %d records, want %d; %d succeeded, want %d", limit, len(seen), want, succeeded, n/2)
		}
		for id, times := range seen {
			if times != 1 {
				t.Errorf("limit %d: %v listed %d times", limit, id, times)
			}
		}
	}
}

// TestK12_K13_ForeignRecords: what cannot be understood fails its own item, and
// is left as it is.
func TestK12_K13_ForeignRecords(t *testing.T) {
	c := standalone(t)
	s := open(t, c, nil)
	good := request(t)
	claim(t, s, good)
	settle(t, s, good, store.Succeed)
	whole := c.Get(t.Context(), "secondrun:{"+good.ID.Scope+":"+good.ID.Key+"}").Val()
	cases := map[string]struct {
		value string
		want  error
	}{
		"future version": {"\xd2\x02" + whole[2:], store.ErrIncompatible},
		"empty":          {"", store.ErrCorrupt},
		"text":           {"hello, I am not a record", store.ErrCorrupt},
		"only magic":     {"\xd2", store.ErrCorrupt},
		"cut header":     {whole[:30], store.ErrCorrupt},
		"cut body":       {whole[:70], store.ErrCorrupt},
		"cut payload":    {whole[:len(whole)-1], store.ErrCorrupt},
		"too long":       {whole + "x", store.ErrCorrupt},
		"no state":       {whole[:2] + "\x00" + whole[3:], store.ErrCorrupt},
		"random":         {strings.Repeat("\x93\x01\xfe", 50), store.ErrCorrupt},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, neighbour := request(t), request(t)
			key := "secondrun:{" + r.ID.Scope + ":" + r.ID.Key + "}"
			c.Set(t.Context(), key, tc.value, time.Hour)
			batch := []store.ClaimRequest{r, neighbour}
			out, err := s.Claim(t.Context(), batch)
			if err != nil || !errors.Is(out[0].Err, tc.want) || !errors.Is(out[0].Err, store.ErrPermanent) || out[1].Verdict != store.Granted {
				t.Fatalf("%+v, %v", out, err)
			}
			refused(t, s, r, tc.want)
			effect := r
			effect.ID.Effect, effect.Parent = "charge", r.Token
			refused(t, s, effect, tc.want)
			if got := c.Get(t.Context(), key).Val(); got != tc.value {
				t.Errorf("the record was overwritten: %q", got)
			}
			if _, _, err := s.Get(t.Context(), r.ID); !errors.Is(err, tc.want) {
				t.Errorf("Get: %v", err)
			}
			if _, err := s.Reopen(t.Context(), r.ID, "test"); !errors.Is(err, tc.want) {
				t.Errorf("Reopen: %v", err)
			}
			if ok, err := s.Forget(t.Context(), r.ID, "test"); !ok || err != nil {
				t.Errorf("Forget: %v, %v", ok, err)
			}
			claim(t, s, r)
		})
	}
	t.Run("other type", func(t *testing.T) {
		r := request(t)
		c.LPush(t.Context(), "secondrun:{"+r.ID.Scope+":"+r.ID.Key+"}", "x")
		refused(t, s, r, store.ErrPermanent)
	})
	t.Run("corrupt effect", func(t *testing.T) {
		r := request(t)
		claim(t, s, r)
		e := r
		e.ID.Effect, e.Parent, e.Token = "charge", r.Token, store.NewToken()
		claim(t, s, e)
		key := "secondrun:{" + r.ID.Scope + ":" + r.ID.Key + "}:effects"
		c.HSet(t.Context(), key, "charge", "garbage")
		refused(t, s, e, store.ErrCorrupt)
		if got := c.HGet(t.Context(), key, "charge").Val(); got != "garbage" {
			t.Errorf("overwritten: %q", got)
		}
		if st := settle(t, s, r, store.Succeed); st.Code != store.OK {
			t.Errorf("the handler cannot settle: %+v", st)
		}
	})
}

func refused(t *testing.T, s store.Store, r store.ClaimRequest, want error) {
	t.Helper()
	for op, err := range map[string]error{
		"claim":  second(tryClaim(t.Context(), s, r)),
		"renew":  second(tryRenew(t.Context(), s, r)),
		"settle": second(trySettle(t.Context(), s, r, store.Succeed)),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", op, err, want)
		}
	}
}

// TestK14_Payloads: every byte and a payload of the largest size come back.
func TestK14_Payloads(t *testing.T) {
	s := open(t, standalone(t), nil)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, payload := range [][]byte{nil, {}, {0}, all, slices.Repeat(all, store.MaxPayload/256)} {
		r := request(t)
		claim(t, s, r)
		st := []store.Settlement{{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: payload, Retention: time.Hour}}
		if _, err := one(s.Settle(t.Context(), st)); err != nil {
			t.Fatal(err)
		}
		r.Token = store.NewToken()
		if c := claim(t, s, r); c.Verdict != store.Done || !slices.Equal(c.Payload, payload) {
			t.Errorf("payload of %d bytes came back with %d, %v", len(payload), len(c.Payload), c.Verdict)
		}
		st[0].Payload = make([]byte, store.MaxPayload+1)
		if _, err := one(s.Settle(t.Context(), st)); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("a payload over the limit: %v", err)
		}
	}
	r := request(t)
	r.Holder = strings.Repeat("h", store.MaxText+1)
	if _, err := tryClaim(t.Context(), s, r); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("a holder over the limit: %v", err)
	}
	r.Holder, r.Delivery, r.Trace = r.Holder[1:], r.Holder[1:], r.Holder[1:]
	claim(t, s, r)
	r2 := r
	r2.Token = store.NewToken()
	if c := claim(t, s, r2); c.Holder != r.Holder || c.Trace != r.Trace {
		t.Errorf("%+v", c)
	}
}

// TestRace: of 16 claims of one key at once exactly one is granted, a thousand
// times, over two clients.
func TestRace(t *testing.T) {
	c := standalone(t)
	stores := []*redisstore.Store{open(t, c, nil), open(t, dial(t, c.Options().Addr), nil)}
	for range testenv.Size(1000, 10000) {
		r := request(t)
		var granted, busy atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			r := r
			r.Token = store.NewToken()
			wg.Go(func() {
				switch c, err := tryClaim(t.Context(), stores[i%2], r); {
				case err != nil:
					t.Error(err)
				case c.Verdict == store.Granted:
					granted.Add(1)
				case c.Verdict == store.Busy:
					busy.Add(1)
				}
			})
		}
		wg.Wait()
		if granted.Load() != 1 || busy.Load() != 15 {
			t.Fatalf("%d granted, %d busy", granted.Load(), busy.Load())
		}
	}
}
