package lincheck_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/pgstore"
	"github.com/secondrun/secondrun/store/redisstore"
	"github.com/secondrun/secondrun/store/storetest/lincheck"
)

func TestPostgres(t *testing.T) {
	url := testenv.Get(t, testenv.PostgresVar)
	opts := &pgstore.Options{Table: "secondrun_lincheck"}
	if err := pgstore.Migrate(t.Context(), url, opts); err != nil {
		t.Fatal(err)
	}
	var clients []store.Store
	for range 2 {
		s, err := pgstore.Open(t.Context(), url, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		clients = append(clients, s)
	}
	cfg := size()
	cfg.LocksRows, cfg.StaleParent, cfg.ItemErrors, cfg.LatePurge = true, true, true, true
	cfg.ParentGrants = true // it compares fences
	lincheck.Run(t, "pgstore", func() store.Store { return lincheck.Spread(clients...) }, cfg)
}

func TestRedis(t *testing.T) {
	addr := testenv.Get(t, testenv.RedisVar)
	var clients []store.Store
	for range 2 {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		s, err := redisstore.New(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, s)
	}
	cfg := size()
	cfg.Slack = time.Millisecond
	cfg.LooseAdmin = true // a repeated Forget is reported twice rather than not at all
	lincheck.Run(t, "redisstore", func() store.Store { return lincheck.Spread(clients...) }, cfg)
}
