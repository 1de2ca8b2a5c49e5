package pgstore

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/store"
)

// TestK12_FutureState: a record of a newer version fails its own item, and is
// not overwritten; an operator can remove it.
func TestK12_FutureState(t *testing.T) {
	st := fresh(t)
	for _, size := range []int{1, 3, 8} {
		reqs := batch("key", size)
		bad := reqs[0].ID
		claimAll(t, st, reqs, store.Granted)
		exec(t, "UPDATE "+st.opts.table()+" SET state = 9 WHERE key = $1", bad.Key)
		in := settlements(reqs, "")
		for i := range reqs {
			reqs[i].Token = store.NewToken()
		}
		out, err := st.Claim(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range out {
			if i == 0 && !errors.Is(c.Err, store.ErrIncompatible) || i > 0 && (c.Err != nil || c.Verdict != store.Busy) {
				t.Errorf("claim %d of %d: %+v", i, size, c)
			}
		}
		got, err := st.Settle(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range got {
			if i == 0 && !errors.Is(s.Err, store.ErrIncompatible) || i > 0 && s.Code != store.OK {
				t.Errorf("settle %d of %d: %+v", i, size, s)
			}
		}
		if n, err := st.Renew(t.Context(), []store.Lease{{ID: bad, Token: in[0].Token}}, minute); err != nil || !errors.Is(n[0].Err, store.ErrIncompatible) {
			t.Errorf("renew: %+v %v", n, err)
		}
		if _, _, err := st.Get(t.Context(), bad); !errors.Is(err, store.ErrIncompatible) {
			t.Errorf("get: %v", err)
		}
		if state := query[int](t, "SELECT state FROM "+st.opts.table()+" WHERE key = $1", bad.Key); state != 9 {
			t.Errorf("overwritten with state %d", state)
		}
		for _, r := range reqs {
			if ok, err := st.Forget(t.Context(), r.ID, "test"); err != nil || !ok {
				t.Errorf("forget: %v %v", ok, err)
			}
		}
	}
}

func TestK13_CorruptFingerprint(t *testing.T) {
	st := fresh(t)
	r := request("key")
	claim(t, st, r, store.Granted)
	exec(t, "UPDATE "+st.opts.table()+` SET fingerprint = '\x01'`)
	if _, _, err := st.Get(t.Context(), r.ID); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
}

// TestToxicItems: what cannot be stored fails alone, without a round trip.
func TestToxicItems(t *testing.T) {
	st := fresh(t)
	good := request("good")
	for name, spoil := range map[string]func(*store.ClaimRequest){
		"token":    func(r *store.ClaimRequest) { r.Token = store.Token{} },
		"lease":    func(r *store.ClaimRequest) { r.Lease = 0 },
		"delivery": func(r *store.ClaimRequest) { r.Delivery = strings.Repeat("x", store.MaxText+1) },
		"holder":   func(r *store.ClaimRequest) { r.Holder = strings.Repeat("x", store.MaxText+1) },
		"trace":    func(r *store.ClaimRequest) { r.Trace = strings.Repeat("x", store.MaxText+1) },
	} {
		bad := request("bad")
		spoil(&bad)
		out, err := st.Claim(t.Context(), []store.ClaimRequest{bad, good})
		if err != nil || !errors.Is(out[0].Err, store.ErrPermanent) || out[0].Verdict != 0 || out[1].Verdict != store.Granted {
			t.Errorf("%s: %+v %v", name, out, err)
		}
	}
	ok := settlement(&good, store.Succeed, "")
	for name, spoil := range map[string]func(*store.Settlement){
		"token":   func(s *store.Settlement) { s.Token = store.Token{} },
		"kind":    func(s *store.Settlement) { s.Kind = 0 },
		"payload": func(s *store.Settlement) { s.Payload = make([]byte, store.MaxPayload+1) },
	} {
		bad := ok
		bad.ID = id("bad")
		spoil(&bad)
		out, err := st.Settle(t.Context(), []store.Settlement{bad, ok})
		if err != nil || !errors.Is(out[0].Err, store.ErrPermanent) || out[0].Code != 0 || out[1].Err != nil {
			t.Errorf("%s: %+v %v", name, out, err)
		}
	}
}

// TestLargePayloads settles more than fits into one statement.
func TestLargePayloads(t *testing.T) {
	for _, dsn := range []string{direct(t), bouncer(t)} {
		st := open(t, dsn, freshTable(t))
		reqs := batch("key", 9)
		claimAll(t, st, reqs, store.Granted)
		large := bytes.Repeat([]byte{0, 0xff}, store.MaxPayload/2)
		in := settlements(reqs, "")
		for i := range in {
			in[i].Payload = large
		}
		settleAll(t, st, in)
		for i := range reqs {
			if c := claim(t, st, request(reqs[i].ID.Key), store.Done); !bytes.Equal(c.Payload, large) {
				t.Errorf("%d: %d bytes came back", i, len(c.Payload))
			}
		}
	}
}

// TestAsyncClaims looks at the setting inside the transaction of a claim.
func TestAsyncClaims(t *testing.T) {
	for _, async := range []bool{false, true} {
		opts := freshTable(t)
		opts.AsyncClaims = async
		o, _ := opts.withDefaults()
		sql := newStatements(&o)
		for name, text := range map[string]string{"hot": sql.claimHot, "one": sql.claimOne, "many": sql.claimMany} {
			tx := begin(t)
			st := &Store{opts: o, sql: sql}
			r := request("key-" + name)
			var args []any
			switch text {
			case sql.claimHot:
				_, args = st.claimSingle(&r, true)
			case sql.claimOne:
				_, args = st.claimSingle(&r, false)
			default:
				args = claimColumns([]store.ClaimRequest{r}, []int{0})
			}
			var row claimRow
			var got string
			if err := row.scan(tx.QueryRow(t.Context(), text, args...)); err != nil || !row.written {
				t.Fatalf("%s: %+v %v", name, row, err)
			}
			if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || (got == "off") != async {
				t.Errorf("%s, AsyncClaims %v: synchronous_commit is %s (%v)", name, async, got, err)
			}
		}
	}
}

func TestListAndPurgeCursors(t *testing.T) {
	st := fresh(t)
	claimAll(t, st, batch("key", 25), store.Granted)
	seen := map[string]bool{}
	pages := 0
	for cursor := ""; ; pages++ {
		page, next, err := st.List(t.Context(), store.ListQuery{Scope: "test", Limit: 10, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			seen[r.ID.Key] = true
		}
		if cursor = next; next == "" {
			break
		}
	}
	if len(seen) != 25 || pages != 2 {
		t.Errorf("%d records on %d pages", len(seen), pages+1)
	}
	for _, cursor := range []string{"!", "AAAA", "eA"} {
		if _, _, err := st.List(t.Context(), store.ListQuery{Scope: "test", Cursor: cursor}); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("List with %q: %v", cursor, err)
		}
	}
	for _, cursor := range []string{"x", "-1", "99999999999", "1,0)"} {
		if _, _, err := st.Purge(t.Context(), cursor); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("Purge with %q: %v", cursor, err)
		}
	}
	if _, _, err := st.List(t.Context(), store.ListQuery{}); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("List without a scope: %v", err)
	}
}
