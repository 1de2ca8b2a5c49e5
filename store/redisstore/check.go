package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

const (
	oldestMajor = 7
	// What a claim call, a settle call and renewals need at a time.
	minPool         = 4
	renewalConns    = 2
	defaultParallel = 2 // more calls at a time make smaller batches, not more throughput
)

// checker does the checks of New.
type checker struct {
	store *Store
	opts  *Options
	mu    sync.Mutex
}

func (c *checker) warn(format string, args ...any) {
	if c.opts.OnWarning == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.OnWarning(fmt.Sprintf(format, args...))
}

// client checks what can be seen of the client without the server.
func (c *checker) client(client redis.UniversalClient) error {
	c.store.limits = store.Limits{Batch: batch, Parallel: defaultParallel}
	var pool, active int
	var read time.Duration
	var deadlines bool
	switch client := client.(type) {
	case *redis.Client:
		o := client.Options()
		pool, active, read, deadlines = o.PoolSize, o.MaxActiveConns, o.ReadTimeout, o.ContextTimeoutEnabled
	case *redis.ClusterClient:
		o := client.Options()
		pool, active, read, deadlines = o.PoolSize, o.MaxActiveConns, o.ReadTimeout, o.ContextTimeoutEnabled
	case *redis.Ring:
		return fmt.Errorf("redisstore: a Ring moves keys to other servers when one is away, "+
			"which would run handlers again; use Sentinel or Cluster: %w", store.ErrPermanent)
	default:
		c.warn("the pool and the timeouts of a %T cannot be checked", client)
		return nil
	}
	if active > 0 {
		pool = min(pool, active)
	}
	if pool < minPool {
		return fmt.Errorf("redisstore: the client has %d connections and needs %d, "+
			"or renewals would wait behind claims: %w", pool, minPool, store.ErrPermanent)
	}
	c.store.limits.Parallel = min(defaultParallel, (pool-renewalConns)/2)
	if c.opts.WaitReplicas > 0 && read > 0 && c.store.waitTimeout >= read {
		return fmt.Errorf("redisstore: WaitTimeout %v must be less than the client's ReadTimeout %v: %w",
			c.store.waitTimeout, read, store.ErrPermanent)
	}
	if !deadlines {
		c.warn("the client has ContextTimeoutEnabled off: deadlines of calls do not shorten its ReadTimeout of %v", read)
	}
	return nil
}

// server checks one master and loads the scripts into it.
func (c *checker) server(ctx context.Context, client redis.UniversalClient) error {
	info, err := client.Info(ctx).Result()
	switch {
	case err == nil:
		if err := c.info(info); err != nil {
			return err
		}
	case redis.HasErrorPrefix(err, "NOPERM"):
		c.warn("INFO is not permitted: version and eviction policy of the server are not checked")
	default:
		return classify(err)
	}
	for _, sc := range c.store.scripts.all() {
		if err := client.ScriptLoad(ctx, sc.text).Err(); err != nil {
			if redis.HasErrorPrefix(err, "NOPERM") {
				c.warn("SCRIPT LOAD is not permitted: the first calls send the text of the scripts")
				break
			}
			return classify(err)
		}
	}
	return nil
}

func (c *checker) info(info string) error {
	f := fields(info)
	major, _, _ := strings.Cut(f["redis_version"], ".")
	if n, err := strconv.Atoi(major); err != nil {
		c.warn("the server does not tell its version")
	} else if n < oldestMajor {
		return fmt.Errorf("redisstore: server version %s, needed is %d or later: %w",
			f["redis_version"], oldestMajor, store.ErrPermanent)
	}
	if f["aof_enabled"] == "0" {
		c.warn("the append-only file is off: a crash of the server forgets records written since its last snapshot")
	}
	return c.eviction(f["maxmemory_policy"], f["maxmemory"])
}

// eviction judges the policy. Every key of this store has an expiry, so
// the volatile policies evict records as the allkeys policies do.
func (c *checker) eviction(policy, limit string) error {
	switch {
	case policy == "noeviction":
		return nil
	case policy == "":
		c.warn("the server does not tell its maxmemory-policy")
		return nil
	case limit == "0":
		c.warn("maxmemory-policy is %s; nothing is evicted only because maxmemory is not set. Use noeviction", policy)
		return nil
	case c.opts.AllowEviction:
		c.warn("maxmemory-policy %s may evict records: their handlers run again", policy)
		return nil
	default:
		return fmt.Errorf("redisstore: maxmemory-policy %s may evict records, whose handlers would run again; "+
			"use noeviction, or Options.AllowEviction: %w", policy, store.ErrPermanent)
	}
}

func fields(info string) map[string]string {
	f := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}
