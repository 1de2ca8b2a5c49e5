package memstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/store"
)

// fill grants n keys with a retention.
func fill(t *testing.T, s *Store, name string, n int, retention time.Duration) {
	t.Helper()
	for i := range n {
		id := store.ID{Scope: "s", Key: fmt.Sprint(name, " ", i)}
		c, err := s.Claim(t.Context(), []store.ClaimRequest{{ID: id, Token: store.NewToken(), Lease: 1, Retention: retention}})
		if err != nil || c[0].Verdict != store.Granted {
			t.Fatalf("%v, %v", c, err)
		}
	}
}

func purge(t *testing.T, s *Store) int {
	t.Helper()
	removed, cursor := 0, ""
	for {
		n, next, err := s.Purge(t.Context(), cursor)
		if err != nil || n > purgeStep {
			t.Fatalf("Purge = %d, %v", n, err)
		}
		if removed += n; next == "" {
			return removed
		}
		cursor = next
	}
}

func TestGrantsFreeExpiredRecordsAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		fill(t, s, "old", 20_000, time.Hour)
		time.Sleep(2 * time.Hour)
		before := s.Len()
		for i := range 10_000 {
			fill(t, s, fmt.Sprint("new", i), 1, time.Hour)
			after := s.Len()
			if freed := before + 1 - after; freed > sweepStep {
				t.Fatalf("one grant has freed %d records", freed)
			}
			before = after
		}
		if n := s.Len(); n > 11_000 {
			t.Errorf("%d records are left, want the 10,000 that are not absent and few others", n)
		}
	})
}

// TestU35_SteadyLoadHoldsFewAbsentRecords grants 1,000 keys a second for ten
// retentions.
func TestU35_SteadyLoadHoldsFewAbsentRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		for round := range 100 {
			fill(t, s, fmt.Sprint(round), 100, time.Second)
			time.Sleep(100 * time.Millisecond)
			if n := s.Len(); n > 1000+500 {
				t.Fatalf("round %d: %d records, 1,000 of them live", round, n)
			}
		}
	})
}

func TestU35_PurgeFreesWithoutGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		fill(t, s, "old", 100_000, time.Minute)
		fill(t, s, "live", 1_000, time.Hour)
		time.Sleep(2 * time.Minute)
		if n := purge(t, s); n != 100_000 || s.Len() != 1_000 {
			t.Errorf("%d removed, %d left", n, s.Len())
		}
		if _, _, err := s.Purge(t.Context(), "64"); err == nil {
			t.Error("a cursor of nobody is taken")
		}
	})
}

// TestShorterRetentionFreesEarlier settles with a much shorter retention than
// that of the claim.
func TestShorterRetentionFreesEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		tok := store.NewToken()
		id := store.ID{Scope: "s", Key: "k"}
		_, _ = s.Claim(t.Context(), []store.ClaimRequest{{ID: id, Token: tok, Lease: time.Minute, Retention: 1000 * time.Hour}})
		_, _ = s.Settle(t.Context(), []store.Settlement{{ID: id, Token: tok, Kind: store.Succeed, Retention: time.Second}})
		time.Sleep(2 * time.Second)
		if n := purge(t, s); n != 1 {
			t.Errorf("%d removed, want 1", n)
		}
	})
}

func TestReusedEntriesStartEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx, tok := New(nil), t.Context(), store.NewToken()
		id := func(i int) store.ID { return store.ID{Scope: "s", Key: fmt.Sprint(i)} }
		for round := range 5 {
			for i := range 500 {
				i += 1000 * round
				r := store.ClaimRequest{ID: id(i), Token: tok, Lease: time.Minute, Retention: time.Minute, Holder: "h"}
				c, _ := s.Claim(ctx, []store.ClaimRequest{r})
				if c[0].Fence != 1 || c[0].Payload != nil {
					t.Fatalf("a new record shows %+v", c[0])
				}
				f := r
				f.ID.Effect, f.Parent = "f", tok
				if c, _ := s.Claim(ctx, []store.ClaimRequest{f}); c[0].Fence != 1 {
					t.Fatalf("a new effect shows %+v", c[0])
				}
				_, _ = s.Settle(ctx, []store.Settlement{{ID: id(i), Token: tok, Kind: store.Succeed, Payload: fmt.Append(nil, i), Retention: time.Minute}})
			}
			for i := range 500 {
				i += 1000 * round
				c, _ := s.Claim(ctx, []store.ClaimRequest{{ID: id(i), Token: store.NewToken(), Lease: 1, Retention: 1}})
				if string(c[0].Payload) != fmt.Sprint(i) {
					t.Fatalf("key %d has the payload %q", i, c[0].Payload)
				}
			}
			time.Sleep(2 * time.Minute)
			purge(t, s)
		}
	})
}

func TestAllocationsAreTheAnswersOnly(t *testing.T) {
	s, ctx, tok, n := New(nil), t.Context(), store.NewToken(), 0
	keys := make([]store.ID, 5000)
	for i := range keys {
		keys[i] = store.ID{Scope: "s", Key: fmt.Sprint("invoice:", i)}
	}
	req, set := make([]store.ClaimRequest, 1), make([]store.Settlement, 1)
	payload := []byte("result")
	freshKey := func() {
		id := keys[n%len(keys)]
		n++
		req[0] = store.ClaimRequest{ID: id, Token: tok, Lease: 1, Retention: time.Nanosecond}
		_, _ = s.Claim(ctx, req)
		set[0] = store.Settlement{ID: id, Token: tok, Kind: store.Succeed, Payload: payload, Retention: time.Nanosecond}
		_, _ = s.Settle(ctx, set)
	}
	for range 4 * len(keys) {
		freshKey()
	}
	if a := testing.AllocsPerRun(1000, freshKey); a > 2 {
		t.Errorf("a fresh key costs %v allocations, want the two answers", a)
	}
	set[0] = store.Settlement{ID: keys[0], Token: tok, Kind: store.Succeed, Retention: time.Hour}
	_, _ = s.Settle(ctx, set)
	if a := testing.AllocsPerRun(1000, func() {
		req[0] = store.ClaimRequest{ID: keys[0], Token: store.Token{1}, Lease: 1, Retention: 1}
		_, _ = s.Claim(ctx, req)
	}); a > 1 {
		t.Errorf("a duplicate costs %v allocations, want the answer", a)
	}
}
