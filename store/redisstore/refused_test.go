package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// TestA01_NoConnection: when no connection can be had, calls of one item and of
// several fail in a way that passes. go-redis leaves the commands of such a
// pipeline without an error.
func TestA01_NoConnection(t *testing.T) {
	p, err := faultproxy.Listen(testenv.Get(t, testenv.RedisVar))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.New(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Refuse()
	for _, n := range []int{1, 2, 10} {
		var reqs []store.ClaimRequest
		var ends []store.Settlement
		for i := range n {
			id := store.ID{Scope: "refused", Key: string(rune('a' + i))}
			reqs = append(reqs, store.ClaimRequest{ID: id, Token: store.NewToken(), Lease: time.Second, Retention: time.Minute})
			ends = append(ends, store.Settlement{ID: id, Token: reqs[i].Token, Kind: store.Succeed, Retention: time.Minute})
		}
		if _, err := s.Claim(t.Context(), reqs); err == nil || errors.Is(err, store.ErrPermanent) {
			t.Errorf("claim of %d: %v", n, err)
		}
		if _, err := s.Settle(t.Context(), ends); err == nil || errors.Is(err, store.ErrPermanent) {
			t.Errorf("settlement of %d: %v", n, err)
		}
	}
}
