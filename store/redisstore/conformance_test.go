package redisstore_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
	"github.com/secondrun/secondrun/store/storetest"
)

func TestConformanceStandalone(t *testing.T) {
	c, peer := standalone(t), (*redis.Client)(nil)
	peer = dial(t, c.Options().Addr)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, c, peer) })
}

func TestConformanceSentinel(t *testing.T) {
	c := sentinel(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, c, c) })
}

func TestConformanceCluster(t *testing.T) {
	addrs := clusterAddrs(t)
	c, peer := cluster(t, addrs), cluster(t, addrs)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, c, peer) })
}

func harness(tb testing.TB, c, peer redis.UniversalClient) storetest.Harness {
	tb.Helper()
	var mu sync.Mutex
	var audits []store.Audit
	o := &redisstore.Options{Audit: func(a store.Audit) {
		mu.Lock()
		defer mu.Unlock()
		audits = append(audits, a)
	}}
	return storetest.Harness{
		Store: open(tb, c, o), Peer: open(tb, peer, o),
		Audits: func() []store.Audit {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(audits)
		},
	}
}
