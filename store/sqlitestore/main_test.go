package sqlitestore

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childVar); role != "" {
		os.Exit(child(role))
	}
	leaktest.Main(m)
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "records.db") }

func open(t testing.TB, path string, opts *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(key string) store.ClaimRequest {
	return store.ClaimRequest{
		ID: store.ID{Scope: "test", Key: key}, Token: store.NewToken(),
		Lease: time.Minute, Retention: time.Hour,
	}
}

func claim(t testing.TB, s store.Store, r store.ClaimRequest) store.Claim {
	t.Helper()
	out, err := s.Claim(context.Background(), []store.ClaimRequest{r})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func settle(t testing.TB, s store.Store, r store.ClaimRequest, k store.Kind, payload []byte) store.Status {
	t.Helper()
	out, err := s.Settle(context.Background(), []store.Settlement{
		{ID: r.ID, Token: r.Token, Kind: k, Payload: payload, Retention: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *fakeClock { return &fakeClock{t: time.UnixMicro(1_800_000_000_000_000)} }

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// audits collects what the hook saw.
type audits struct {
	mu   sync.Mutex
	seen []store.Audit
}

func (a *audits) add(e store.Audit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, e)
}

func (a *audits) all() []store.Audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]store.Audit(nil), a.seen...)
}
