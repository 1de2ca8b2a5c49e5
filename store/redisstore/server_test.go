package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// warnings collects what New warns of.
func warnings(o *redisstore.Options) *[]string {
	var w []string
	o.OnWarning = func(text string) { w = append(w, text) }
	return &w
}

// TestD03_Eviction: every policy that can evict a record is refused when there
// is a memory limit, and warned of where it can only become dangerous.
func TestD03_Eviction(t *testing.T) {
	c := dial(t, startServer(t).addr)
	set := func(name, value string) {
		t.Helper()
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, policy := range []string{
		"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random",
		"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	} {
		t.Run(policy, func(t *testing.T) {
			set("maxmemory-policy", policy)
			for _, limited := range []bool{false, true} {
				set("maxmemory", map[bool]string{true: "1gb", false: "0"}[limited])
				for _, allow := range []bool{false, true} {
					o := &redisstore.Options{AllowEviction: allow}
					warned := warnings(o)
					_, err := redisstore.New(t.Context(), c, o)
					if refused := policy != "noeviction" && limited && !allow; errors.Is(err, store.ErrPermanent) != refused {
						t.Errorf("limited %v, allowed %v: %v", limited, allow, err)
					}
					said := strings.Contains(strings.Join(*warned, "\n"), policy)
					if want := policy != "noeviction" && (!limited || allow); said != want {
						t.Errorf("limited %v, allowed %v: warnings %q", limited, allow, *warned)
					}
				}
			}
		})
	}
}

// TestD04_D05_D06_OutOfMemory: a full server grants nothing, and still records
// what is done and keeps what runs.
func TestD04_D05_D06_OutOfMemory(t *testing.T) {
	c := dial(t, startServer(t).addr)
	s := open(t, c, nil)
	running, ended, effect := request(t), request(t), request(t)
	claim(t, s, running)
	claim(t, s, ended)
	effect.ID = running.ID
	effect.ID.Effect, effect.Parent = "charge", running.Token
	claim(t, s, effect)
	c.ConfigSet(t.Context(), "maxmemory", "1")
	if _, err := tryClaim(t.Context(), s, request(t)); err == nil || errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("D04 claim: %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("D04: Ping is happy with a full server")
	}
	for _, r := range []store.ClaimRequest{ended, effect} {
		if st := settle(t, s, r, store.Succeed); st.Code != store.OK {
			t.Errorf("D05 settle: %+v", st)
		}
	}
	if st, err := tryRenew(t.Context(), s, running); err != nil || st.Code != store.OK {
		t.Errorf("D06 renew: %+v, %v", st, err)
	}
	c.ConfigSet(t.Context(), "maxmemory", "0")
	again := ended
	again.Token = store.NewToken()
	if c := claim(t, s, again); c.Verdict != store.Done || string(c.Payload) != "result" {
		t.Errorf("after D05: %+v", c)
	}
	claim(t, s, request(t))
}

// TestD07_Flush: after SCRIPT FLUSH nothing is different; after FLUSHALL and
// after a restart without persistence there are no records.
func TestD07_Flush(t *testing.T) {
	srv := startServer(t)
	c := dial(t, srv.addr)
	s := open(t, c, nil)
	r := request(t)
	claim(t, s, r)
	c.ScriptFlush(t.Context())
	if st, err := tryRenew(t.Context(), s, r); err != nil || st.Code != store.OK {
		t.Errorf("renew without script: %+v, %v", st, err)
	}
	c.ScriptFlush(t.Context())
	var many []store.ClaimRequest
	for range 10 {
		many = append(many, request(t))
	}
	out, err := s.Claim(t.Context(), many)
	for _, c := range out {
		if err != nil || c.Verdict != store.Granted || c.Fence != 1 {
			t.Errorf("batch without script: %+v, %v", c, err)
		}
	}
	c.FlushAll(t.Context())
	vanished(t, s, r)
	srv.stop()
	srv.start(t)
	eventually(t, "the client is back", func() error { return s.Ping(t.Context()) })
	vanished(t, s, r)
}

// vanished checks the answers to an owner whose record is gone.
func vanished(t *testing.T, s store.Store, r store.ClaimRequest) {
	t.Helper()
	if st, err := tryRenew(t.Context(), s, r); err != nil || st.Code != store.Lost {
		t.Errorf("A07 renew: %+v, %v", st, err)
	}
	if st := settle(t, s, r, store.Fail); st.Code != store.Absent {
		t.Errorf("A07 fail: %+v", st)
	}
	if st := settle(t, s, r, store.Succeed); st.Code != store.Absent {
		t.Errorf("A07 succeed: %+v", st)
	}
	other := r
	other.Token = store.NewToken()
	if c := claim(t, s, other); c.Verdict != store.Done {
		t.Errorf("A07 the late success was not kept: %+v", c)
	}
}

// TestD08_ReadOnly: a replica is never asked twice and never answers: it is a
// server that may become the master.
func TestD08_ReadOnly(t *testing.T) {
	master := startServer(t)
	replica := master.replica(t)
	s := open(t, dial(t, master.addr), nil)
	r := request(t)
	claim(t, s, r)
	settle(t, s, r, store.Succeed)
	c := redis.NewClient(&redis.Options{Addr: replica.addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	if _, err := redisstore.New(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("New on a replica: %v", err)
	}
	host, port, _ := strings.Cut(master.addr, ":")
	c.SlaveOf(t.Context(), "no", "one")
	stale := open(t, c, nil)
	c.SlaveOf(t.Context(), host, port)
	r.Token = store.NewToken()
	for name, err := range map[string]error{
		"claim":  second(tryClaim(t.Context(), stale, r)),
		"renew":  second(tryRenew(t.Context(), stale, r)),
		"settle": second(trySettle(t.Context(), stale, r, store.Succeed)),
		"ping":   stale.Ping(t.Context()),
	} {
		if err == nil || errors.Is(err, store.ErrPermanent) {
			t.Errorf("%s on a replica: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestD08_MovingSlot: records are claimed and settled while their slot moves to
// another node, and afterwards through a client that does not know yet.
func TestD08_MovingSlot(t *testing.T) {
	addrs := privateCluster(t)
	c := cluster(t, addrs)
	s := open(t, c, nil)
	var rs []store.ClaimRequest
	tag := fmt.Sprint("moving", time.Now().UnixNano())
	old, fresh := request(t), request(t)
	old.ID.Key = tag
	key := "secondrun:{" + old.ID.Scope + ":" + tag + "}"
	slot := int(c.ClusterKeySlot(t.Context(), key).Val())
	for i := 0; fresh.ID.Key == "" || int(c.ClusterKeySlot(t.Context(), "secondrun:{"+fresh.ID.Scope+":"+fresh.ID.Key+"}").Val()) != slot; i++ {
		fresh.ID.Key = fmt.Sprint("f", i)
	}
	rs = append(rs, old, fresh)
	claim(t, s, old)
	from, err := c.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	to := dial(t, addrs[0])
	if addrs[0] == from.Options().Addr {
		to = dial(t, addrs[1])
	}
	toID, fromID := nodeID(t, to), nodeID(t, from)
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	do(to, "cluster", "setslot", slot, "importing", fromID)
	do(from, "cluster", "setslot", slot, "migrating", toID)
	if st, err := tryRenew(t.Context(), s, old); err != nil || st.Code != store.OK {
		t.Fatalf("renew of a record that has not moved yet: %+v, %v", st, err)
	}
	if c := claim(t, s, fresh); c.Verdict != store.Granted {
		t.Fatalf("claim of a new record in a moving slot: %+v", c)
	}
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	do(from, "migrate", host, port, key, 0, 5000)
	if st, err := tryRenew(t.Context(), s, old); err != nil || st.Code != store.OK {
		t.Fatalf("renew of a record that has moved (ASK): %+v, %v", st, err)
	}
	for _, n := range []*redis.Client{to, from} {
		do(n, "cluster", "setslot", slot, "node", toID)
	}
	for _, r := range rs {
		if st := settle(t, s, r, store.Succeed); st.Code != store.OK {
			t.Fatalf("settle after the move (MOVED): %+v", st)
		}
	}
}

// TestD09_ReplicaReads: a client that reads from replicas still sends every
// script to the master. The cluster client of the other tests has ReadOnly on;
// here a replica would answer from a copy that lags behind.
func TestD09_ReplicaReads(t *testing.T) {
	master, replica := clusterPair(t)
	rc := dial(t, replica.addr)
	for name, o := range map[string]redis.ClusterOptions{
		"ReadOnly": {ReadOnly: true}, "RouteByLatency": {RouteByLatency: true}, "RouteRandomly": {RouteRandomly: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Addrs, o.ContextTimeoutEnabled = []string{master.addr, replica.addr}, true
			c := redis.NewClusterClient(&o)
			t.Cleanup(func() { _ = c.Close() })
			s := open(t, c, nil)
			rc.ConfigResetStat(t.Context())
			for range 20 {
				r := request(t)
				if c := claim(t, s, r); c.Verdict != store.Granted {
					t.Fatalf("%+v", c)
				}
				other := request(t)
				batch := []store.Settlement{
					{ID: r.ID, Token: r.Token, Kind: store.Succeed, Retention: time.Hour},
					{ID: other.ID, Token: other.Token, Kind: store.Succeed, Retention: time.Hour},
				}
				if _, err := s.Settle(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
				if _, ok, err := s.Get(t.Context(), r.ID); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			stats := rc.Info(t.Context(), "commandstats").Val()
			if i := strings.Index(stats, "cmdstat_evalsha:"); i >= 0 {
				t.Fatalf("the replica got scripts: %s", strings.SplitN(stats[i:], "\r", 2)[0])
			}
		})
	}
}

// TestD12_Retention: the key of a claimed and of a failed record lives as long
// as its retention, not only as long as its lease.
func TestD12_Retention(t *testing.T) {
	c := standalone(t)
	s := open(t, c, nil)
	ttl := func(r store.ClaimRequest) time.Duration {
		return c.PTTL(t.Context(), "secondrun:{"+r.ID.Scope+":"+r.ID.Key+"}").Val()
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if got > want+time.Millisecond || got < want-5*time.Second {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	r := request(t)
	r.Lease, r.Retention = time.Second, 24*time.Hour
	claim(t, s, r)
	near("claimed", ttl(r), 24*time.Hour)
	settle(t, s, r, store.Fail) // retention of an hour
	near("failed", ttl(r), time.Hour)
	short := request(t)
	short.Lease, short.Retention = time.Hour, time.Minute
	claim(t, s, short)
	near("a retention shorter than the lease", ttl(short), time.Hour)
	if _, err := s.Renew(t.Context(), []store.Lease{{ID: short.ID, Token: short.Token}}, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	near("renewed", ttl(short), 2*time.Hour)
	e := short
	e.ID.Effect, e.Parent, e.Token = "charge", short.Token, store.NewToken()
	claim(t, s, e)
	key := "secondrun:{" + e.ID.Scope + ":" + e.ID.Key + "}"
	same := func(what string) {
		t.Helper()
		if a, b := c.PExpireTime(t.Context(), key).Val(), c.PExpireTime(t.Context(), key+":effects").Val(); a != b || a <= 0 {
			t.Errorf("%s: the record ends at %v, its effects at %v", what, a, b)
		}
	}
	same("claimed")
	if _, err := s.Renew(t.Context(), []store.Lease{{ID: short.ID, Token: short.Token}}, 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	same("renewed")
	settle(t, s, short, store.Retry)
	same("settled")
	near("settled", ttl(short), time.Hour)
	short.Token = store.NewToken()
	claim(t, s, short)
	same("granted again")
}

// TestNewRefuses: clients that cannot work, and what their pools are good for.
func TestNewRefuses(t *testing.T) {
	addr := standalone(t).Options().Addr
	client := func(o redis.Options) *redis.Client {
		o.Addr = addr
		c := redis.NewClient(&o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, c := range map[string]struct {
		client redis.UniversalClient
		opts   redisstore.Options
	}{
		"no client":     {nil, redisstore.Options{}},
		"ring":          {ring, redisstore.Options{}},
		"small pool":    {client(redis.Options{PoolSize: 3}), redisstore.Options{}},
		"active limit":  {client(redis.Options{PoolSize: 20, MaxActiveConns: 2}), redisstore.Options{}},
		"braces":        {client(redis.Options{}), redisstore.Options{Prefix: "a{b}"}},
		"long prefix":   {client(redis.Options{}), redisstore.Options{Prefix: strings.Repeat("a", 65)}},
		"wait too long": {client(redis.Options{ReadTimeout: time.Second}), redisstore.Options{WaitReplicas: 1, WaitTimeout: time.Second}},
	} {
		if _, err := redisstore.New(t.Context(), c.client, &c.opts); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for pool, want := range map[int]int{4: 1, 5: 1, 6: 2, 10: 2, 100: 2} {
		if got := open(t, client(redis.Options{PoolSize: pool, ContextTimeoutEnabled: true}), nil).Limits().Parallel; got != want {
			t.Errorf("pool of %d: Parallel %d, want %d", pool, got, want)
		}
	}
	o := &redisstore.Options{}
	warned := warnings(o)
	open(t, client(redis.Options{}), o)
	if !strings.Contains(strings.Join(*warned, "\n"), "ContextTimeoutEnabled") {
		t.Errorf("warnings %q", *warned)
	}
}

// TestRenewalsDoNotWait: with as many claims and settlements in flight as
// Limits allows, all of them stuck, a renewal still gets a connection.
func TestRenewalsDoNotWait(t *testing.T) {
	srv := startServer(t)
	c := redis.NewClient(&redis.Options{Addr: srv.addr, PoolSize: 6, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	s := open(t, c, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 * s.Limits().Parallel {
		conn := c.Conn()
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.Ping(ctx).Err(); err != nil { // takes a connection out of the pool
			t.Fatal(err)
		}
	}
	begin := time.Now()
	if _, err := tryRenew(ctx, s, request(t)); err != nil || time.Since(begin) > time.Second {
		t.Fatalf("%v after %v", err, time.Since(begin))
	}
}
