package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
)

func TestTurnstileOrder(t *testing.T) {
	var turn turnstile
	if err := turn.enter(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	for i, who := range []string{"claim 1", "claim 2", "renew 1", "gone", "renew 2"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wg.Go(func() {
			if turn.enter(ctx, strings.HasPrefix(who, "renew")) != nil {
				return
			}
			mu.Lock()
			order = append(order, who)
			mu.Unlock()
			turn.leave()
		})
		waitFor(t, func() bool { return queued(&turn) == min(i+1, 4) })
		if who == "gone" {
			cancel()
			waitFor(t, func() bool { return queued(&turn) == 3 })
		}
	}
	turn.leave()
	wg.Wait()
	if got := strings.Join(order, ", "); got != "renew 1, renew 2, claim 1, claim 2" {
		t.Error(got)
	}
}

func queued(turn *turnstile) int {
	turn.mu.Lock()
	defer turn.mu.Unlock()
	return len(turn.urgent) + len(turn.normal)
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}

// Renewals pass a crowd of claims: each waits for one transaction at most.
func TestRenewDoesNotStarve(t *testing.T) {
	s := open(t, newPath(t), nil)
	mine := request("mine")
	claim(t, s, mine)
	var stop atomic.Bool
	var claims atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for g := range 64 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if _, err := s.Claim(context.Background(), []store.ClaimRequest{request(fmt.Sprint(g, "-", i))}); err != nil {
					t.Error(err)
				}
				claims.Add(1)
			}
		})
	}
	waitFor(t, func() bool { return queued(&s.turn) > 32 })
	var passed []int64
	for range 20 {
		before := claims.Load()
		st, err := s.Renew(t.Context(), []store.Lease{{ID: mine.ID, Token: mine.Token}}, time.Minute)
		if err != nil || st[0].Code != store.OK {
			t.Fatalf("%+v, %v", st, err)
		}
		passed = append(passed, claims.Load()-before)
	}
	total := int64(0)
	for _, n := range passed {
		total += n
	}
	if total > 20*16 { // in order of arrival it would be 64 each
		t.Errorf("claims that were served during 20 renewals: %v", passed)
	}
}

// K14: what was settled comes back as it was, and is the caller's.
func TestK14_PayloadsAndTexts(t *testing.T) {
	s := open(t, newPath(t), nil)
	for i, payload := range [][]byte{nil, {}, {0}, []byte("null"), bytes.Repeat([]byte{0xff, 0}, store.MaxPayload/2)} {
		r := request(fmt.Sprint("k", i))
		r.Holder, r.Trace, r.Delivery = "a\x00b", "\xff\xfe", strings.Repeat("ü", store.MaxText/2)
		claim(t, s, r)
		if st := settle(t, s, r, store.Succeed, payload); st.Code != store.OK {
			t.Fatalf("%+v", st)
		}
		got := claim(t, s, request(r.ID.Key))
		if !bytes.Equal(got.Payload, payload) || (got.Payload == nil) != (payload == nil) || got.Holder != r.Holder || got.Trace != r.Trace {
			t.Errorf("%d: %+v", i, got)
		}
		rec, ok, err := s.Get(t.Context(), r.ID)
		if err != nil || !ok || rec.Delivery != r.Delivery {
			t.Errorf("%d: %+v, %v", i, rec, err)
		}
	}
	r := request("too large")
	claim(t, s, r)
	if st := settle(t, s, r, store.Succeed, make([]byte, store.MaxPayload+1)); st.Err == nil || st.Code != 0 {
		t.Errorf("%+v", st)
	}
	if c := claim(t, s, store.ClaimRequest{ID: r.ID}); c.Err == nil || c.Verdict != 0 {
		t.Errorf("%+v", c)
	}
}

// A batch is larger than one transaction, holds parents with their effects,
// and shorter durations than the file can keep.
func TestLargeBatch(t *testing.T) {
	s := open(t, newPath(t), nil)
	var reqs []store.ClaimRequest
	for i := range 300 {
		r := request(fmt.Sprintf("%04d", i))
		e := r
		e.ID.Effect, e.Parent, e.Token = "charge", r.Token, store.NewToken()
		reqs = append(reqs, r, e)
	}
	claims, err := s.Claim(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	leases := make([]store.Lease, len(reqs))
	settlements := make([]store.Settlement, len(reqs))
	for i, c := range claims {
		if c.Verdict != store.Granted || c.Fence != 1 {
			t.Fatalf("%d: %+v", i, c)
		}
		leases[i] = store.Lease{ID: reqs[i].ID, Token: reqs[i].Token}
		settlements[i] = store.Settlement{ID: reqs[i].ID, Token: reqs[i].Token, Kind: store.Release, NotBefore: time.Nanosecond, Retention: time.Hour}
	}
	renewals, err := s.Renew(t.Context(), leases, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	settled, err := s.Settle(t.Context(), settlements)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reqs {
		if renewals[i].Code != store.OK || settled[i].Code != store.OK {
			t.Fatalf("%d: %+v %+v", i, renewals[i], settled[i])
		}
	}
	rec, ok, err := s.Get(t.Context(), reqs[0].ID)
	if err != nil || !ok || !rec.NotBefore.Equal(settled[0].At.Add(time.Microsecond)) {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestPurge(t *testing.T) {
	s, clock := open(t, newPath(t), nil), newClock()
	s.now = clock.now
	var reqs []store.ClaimRequest
	for i := range 1200 {
		r := request(fmt.Sprintf("%04d", i))
		switch i % 3 {
		case 0: // stays: its retention is long
		case 1: // goes
			r.Lease, r.Retention = time.Second, time.Second
		case 2: // stays: its lease is still running
			r.Lease, r.Retention = time.Minute, time.Second
		}
		e := r
		e.ID.Effect, e.Parent, e.Token = "charge", r.Token, store.NewToken()
		reqs = append(reqs, r, e)
	}
	if _, err := s.Claim(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Second)
	removed, steps := purgeAll(t, s)
	if removed != 800 || steps < 2 {
		t.Errorf("%d removed in %d steps", removed, steps)
	}
	clock.advance(time.Minute)
	if removed, _ = purgeAll(t, s); removed != 800 {
		t.Errorf("%d removed", removed)
	}
	for _, i := range []int{0, 1} {
		if _, ok, err := s.Get(t.Context(), reqs[i].ID); !ok || err != nil {
			t.Errorf("%d: %v, %v", i, ok, err)
		}
	}
	if _, _, err := s.Purge(t.Context(), "x"); !errors.Is(err, store.ErrPermanent) {
		t.Error(err)
	}
}

func purgeAll(t *testing.T, s *Store) (removed, steps int) {
	t.Helper()
	for cursor := ""; ; {
		n, next, err := s.Purge(t.Context(), cursor)
		if err != nil {
			t.Fatal(err)
		}
		removed, steps = removed+n, steps+1
		if cursor = next; next == "" {
			return removed, steps
		}
	}
}

// G15: purging beside claims never takes what is not absent.
func TestG15_PurgeBesideClaims(t *testing.T) {
	s := open(t, newPath(t), &Options{Durability: Normal})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		for cursor := ""; ctx.Err() == nil; {
			_, next, err := s.Purge(context.Background(), cursor)
			if err != nil {
				t.Error(err)
			}
			cursor = next
		}
	})
	for i := range testenv.Size(300, 5000) {
		r := request(fmt.Sprint(i % 10))
		r.Retention = time.Microsecond // over at once, but the lease is running
		e := r
		e.ID.Effect, e.Parent, e.Token = "charge", r.Token, store.NewToken()
		claims, err := s.Claim(t.Context(), []store.ClaimRequest{r, e})
		if err != nil || claims[0].Verdict != store.Granted || claims[0].Fence != 1 || claims[1].Fence != 1 {
			t.Fatalf("%d: %+v, %v", i, claims, err)
		}
		st, err := s.Settle(t.Context(), []store.Settlement{
			{ID: r.ID, Token: r.Token, Kind: store.Succeed, Retention: time.Microsecond},
		})
		if err != nil || st[0].Code != store.OK {
			t.Fatalf("%d: %+v, %v", i, st, err)
		}
	}
}

func TestClosed(t *testing.T) {
	s := open(t, newPath(t), nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), []store.ClaimRequest{request("k")}); !errors.Is(err, store.ErrPermanent) {
		t.Error(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrPermanent) {
		t.Error(err)
	}
	s = open(t, newPath(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Claim(ctx, []store.ClaimRequest{request("k")}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// "For ever" does not turn into the past.
func TestLongestDuration(t *testing.T) {
	s := open(t, newPath(t), nil)
	id := store.ID{Scope: "s", Key: "k"}
	first := store.ClaimRequest{ID: id, Token: store.NewToken(), Lease: math.MaxInt64, Retention: math.MaxInt64}
	second := first
	second.Token = store.NewToken()
	for _, x := range []struct {
		q    store.ClaimRequest
		want store.Verdict
	}{{first, store.Granted}, {second, store.Busy}} {
		c, err := s.Claim(t.Context(), []store.ClaimRequest{x.q})
		if err != nil || c[0].Verdict != x.want {
			t.Fatalf("%+v, %v; want %v", c, err, x.want)
		}
	}
	_, err := s.Settle(t.Context(), []store.Settlement{{ID: id, Token: first.Token, Kind: store.Succeed, Retention: math.MaxInt64}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), []store.ClaimRequest{second}); err != nil || c[0].Verdict != store.Done {
		t.Fatalf("%+v, %v", c, err)
	}
}
