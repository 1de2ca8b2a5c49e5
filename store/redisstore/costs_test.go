package redisstore_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
	"github.com/secondrun/secondrun/store/storetest"
)

// trips counts round trips.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.n.Add(1); return next(ctx, cmd) }
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.n.Add(1); return next(ctx, cmds) }
}

// TestRoundTrips counts what goes over the network and what a duplicate
// changes: nothing.
func TestRoundTrips(t *testing.T) {
	c := dial(t, startServer(t).addr)
	h := &trips{}
	c.AddHook(h)
	s := open(t, c, nil)
	scripts := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)
	count := func(what string, wantTrips, wantScripts int, f func()) {
		t.Helper()
		c.ConfigResetStat(t.Context())
		before := h.n.Load()
		f()
		got := int(h.n.Load() - before)
		calls := 0
		if m := scripts.FindStringSubmatch(c.Info(t.Context(), "commandstats").Val()); m != nil {
			calls, _ = strconv.Atoi(m[1])
		}
		if got != wantTrips || calls != wantScripts {
			t.Errorf("%s: %d round trips and %d scripts, want %d and %d", what, got, calls, wantTrips, wantScripts)
		}
	}
	r := request(t)
	count("fresh", 1, 1, func() { claim(t, s, r) })
	count("renew", 1, 1, func() { _, _ = tryRenew(t.Context(), s, r) })
	count("busy", 1, 1, func() { d := r; d.Token = store.NewToken(); claim(t, s, d) })
	count("settle", 1, 1, func() { settle(t, s, r, store.Succeed) })
	count("duplicate", 1, 1, func() { d := r; d.Token = store.NewToken(); claim(t, s, d) })
	var reqs []store.ClaimRequest
	var leases []store.Lease
	var settlements []store.Settlement
	for range 10 {
		r := request(t)
		reqs = append(reqs, r)
		leases = append(leases, store.Lease{ID: r.ID, Token: r.Token})
		settlements = append(settlements, store.Settlement{ID: r.ID, Token: r.Token, Kind: store.Succeed, Retention: time.Hour})
	}
	count("ten claims", 1, 10, func() { _, _ = s.Claim(t.Context(), reqs) })
	count("ten renewals", 1, 10, func() { _, _ = s.Renew(t.Context(), leases, time.Minute) })
	count("ten settlements", 1, 10, func() { _, _ = s.Settle(t.Context(), settlements) })
	count("none", 0, 0, func() { _, _ = s.Claim(t.Context(), nil) })

	busy := request(t)
	claim(t, s, busy)
	state := func() string {
		var dump string
		for _, r := range []store.ClaimRequest{r, busy} {
			key := "secondrun:{" + r.ID.Scope + ":" + r.ID.Key + "}"
			dump += c.Dump(t.Context(), key).Val() + c.PExpireTime(t.Context(), key).String()
		}
		dirty := regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(c.Info(t.Context(), "persistence").Val())
		return dump + dirty
	}
	before := state()
	for _, d := range []store.ClaimRequest{r, busy} {
		d.Token = store.NewToken()
		claim(t, s, d)
		if _, err := trySettle(t.Context(), s, d, store.Succeed); err != nil { // lost
			t.Fatal(err)
		}
	}
	settle(t, s, r, store.Succeed) // already
	if state() != before {
		t.Error("a duplicate changed something")
	}
}

// TestACL: a user with exactly the rights that the package documents.
func TestACL(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^//\t.*`).FindAllString(string(text), -1)
	var basic, in, all []string
	for i, line := range lines {
		_, rights, ok := strings.Cut(line, ":  ")
		if !ok {
			rights = strings.TrimPrefix(line, "//\t")
		}
		words := slices.DeleteFunc(strings.Fields(rights), func(w string) bool { return !strings.ContainsAny(w[:1], "+-~>") && w != "on" && w != "resetchannels" })
		if i < 3 {
			basic = append(basic, words...)
		}
		if i < 3 || strings.Contains(line, "cluster") {
			in = append(in, words...)
		}
		all = append(all, words...)
	}
	t.Run("basic", func(t *testing.T) {
		srv := startServer(t)
		c := user(t, dial(t, srv.addr), basic)
		s := open(t, c, nil)
		basicFlow(t, s)
		strange := redis.NewClient(c.Options())
		t.Cleanup(func() { _ = strange.Close() })
		other, err := redisstore.New(t.Context(), strange, &redisstore.Options{Prefix: "other"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tryClaim(t.Context(), other, request(t)); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("a foreign prefix: %v", err)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		master, replica := clusterPair(t)
		user(t, dial(t, replica.addr), in)
		o := user(t, dial(t, master.addr), in).Options()
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{master.addr}, Username: o.Username, Password: o.Password})
		t.Cleanup(func() { _ = c.Close() })
		basicFlow(t, open(t, c, nil))
	})
	t.Run("without info and script load", func(t *testing.T) {
		c := user(t, dial(t, startServer(t).addr), append(slices.Clone(basic), "-info", "-script|load"))
		o := &redisstore.Options{}
		warned := warnings(o)
		basicFlow(t, open(t, c, o))
		if len(*warned) < 2 {
			t.Errorf("warnings %q", *warned)
		}
	})
	t.Run("without a needed command", func(t *testing.T) {
		c := user(t, dial(t, startServer(t).addr), append(slices.Clone(basic), "-set"))
		if _, err := tryClaim(t.Context(), open(t, c, nil), request(t)); !errors.Is(err, store.ErrPermanent) {
			t.Errorf("%v", err)
		}
	})
	t.Run("everything", func(t *testing.T) {
		c := user(t, dial(t, startServer(t).addr), all)
		storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, c, c) })
	})
}

// user makes the user "app" and answers a client for it.
func user(t *testing.T, admin *redis.Client, rights []string) *redis.Client {
	t.Helper()
	args := []any{"acl", "setuser", "app"}
	for _, r := range rights {
		args = append(args, r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(args, err)
	}
	c := redis.NewClient(&redis.Options{
		Addr: admin.Options().Addr, Username: "app", Password: "password", ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func basicFlow(t *testing.T, s *redisstore.Store) {
	t.Helper()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := request(t)
	claim(t, s, r)
	for _, k := range []store.Kind{store.Succeed, store.Retry} {
		e := r
		e.ID.Effect, e.Parent, e.Token = k.String(), r.Token, store.NewToken()
		if c := claim(t, s, e); c.Verdict != store.Granted {
			t.Fatalf("%+v", c)
		}
		if st, err := tryRenew(t.Context(), s, e); err != nil || st.Code != store.OK {
			t.Fatalf("%+v, %v", st, err)
		}
		if st := settle(t, s, e, k); st.Code != store.OK {
			t.Fatalf("%+v", st)
		}
	}
	if st, err := tryRenew(t.Context(), s, r); err != nil || st.Code != store.OK {
		t.Fatalf("%+v, %v", st, err)
	}
	if st := settle(t, s, r, store.Succeed); st.Code != store.OK {
		t.Fatalf("%+v", st)
	}
	if rec, ok, err := s.Get(t.Context(), r.ID); err != nil || !ok || rec.State != store.StateSucceeded {
		t.Fatalf("%+v, %v, %v", rec, ok, err)
	}
	r.Token = store.NewToken()
	if c := claim(t, s, r); c.Verdict != store.Done {
		t.Fatalf("%+v", c)
	}
}
