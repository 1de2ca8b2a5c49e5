package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// TestD01_D02_Failover shows what a failover may lose, and what holds
// nevertheless: on the promoted side there is one owner and one outcome.
func TestD01_D02_Failover(t *testing.T) {
	sentinels, master, replica := sentinelServers(t)
	c := failoverClient(t, sentinels.addr)
	s := open(t, c, nil)
	careful := open(t, c, &redisstore.Options{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
	kept, claimed, done := request(t), request(t), request(t)
	if c := claim(t, careful, kept); c.Verdict != store.Granted {
		t.Fatalf("%+v", c)
	}
	settle(t, careful, kept, store.Succeed)

	// The replica is cut off: what is written from here on is lost.
	replica.freeze(t)
	dial(t, master.addr).ClientKillByFilter(t.Context(), "type", "replica")
	claim(t, s, claimed)
	claim(t, s, done)
	settle(t, s, done, store.Succeed)
	if _, err := tryClaim(t.Context(), careful, request(t)); !errors.Is(err, redisstore.ErrTooFewReplicas) {
		t.Errorf("WaitReplicas did not detect that the claim can be lost: %v", err)
	}
	master.stop()
	replica.thaw(t)
	eventually(t, "the replica is promoted", func() error { return s.Ping(t.Context()) })

	again := func(r store.ClaimRequest) store.ClaimRequest { r.Token = store.NewToken(); return r }
	if c := claim(t, s, again(kept)); c.Verdict != store.Done {
		t.Errorf("an acknowledged outcome was lost: %+v", c)
	}
	newOwner := again(claimed)
	if c := claim(t, s, newOwner); c.Verdict != store.Granted || c.Fence != 1 {
		t.Errorf("D01: %+v", c)
	}
	if st := settle(t, s, claimed, store.Succeed); st.Code != store.Lost {
		t.Errorf("D01: the owner of before settled: %+v", st)
	}
	if st := settle(t, s, newOwner, store.Succeed); st.Code != store.OK {
		t.Errorf("D01: the new owner did not settle: %+v", st)
	}
	rerun := again(done)
	if c := claim(t, s, rerun); c.Verdict != store.Granted {
		t.Errorf("D02: %+v", c)
	}
	settle(t, s, rerun, store.Succeed)
	if c := claim(t, s, again(done)); c.Verdict != store.Done {
		t.Errorf("D02: no single outcome: %+v", c)
	}
}

// TestWaitReplicas: an operation that too few replicas have fails, also when it
// is repeated, until they have it.
func TestWaitReplicas(t *testing.T) {
	for _, mode := range []string{"standalone", "cluster"} {
		t.Run(mode, func(t *testing.T) {
			var c redis.UniversalClient
			var replica *server
			if mode == "standalone" {
				master := startServer(t)
				replica = master.replica(t)
				c = dial(t, master.addr)
			} else {
				var master *server
				master, replica = clusterPair(t)
				c = cluster(t, []string{master.addr})
			}
			waitReplicas(t, c, replica)
		})
	}
}

func allGranted(out []store.Claim, err error) bool {
	return err == nil && !slices.ContainsFunc(out, func(c store.Claim) bool { return c.Verdict != store.Granted })
}

func waitReplicas(t *testing.T, c redis.UniversalClient, replica *server) {
	s := open(t, c, &redisstore.Options{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
	batch := []store.ClaimRequest{request(t), request(t), request(t)}
	out, err := s.Claim(t.Context(), batch)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !allGranted(out, err); { // a busy machine
		out, err = s.Claim(t.Context(), batch)
	}
	if !allGranted(out, err) {
		t.Fatalf("%+v, %v", out, err)
	}
	replica.freeze(t)
	r := request(t)
	fewer := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, redisstore.ErrTooFewReplicas) || errors.Is(err, store.ErrPermanent) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fewer("claim", second(tryClaim(t.Context(), s, r)))
	fewer("claim again", second(tryClaim(t.Context(), s, r)))
	fewer("settle", second(trySettle(t.Context(), s, batch[0], store.Succeed)))
	fewer("settle again", second(trySettle(t.Context(), s, batch[0], store.Succeed)))
	other := batch[1]
	other.Token = store.NewToken()
	if c := claim(t, s, other); c.Verdict != store.Busy {
		t.Errorf("busy needs no replica: %+v", c)
	}
	if st, err := tryRenew(t.Context(), s, r); err != nil || st.Code != store.OK {
		t.Errorf("a renewal needs no replica: %+v, %v", st, err)
	}
	replica.thaw(t)
	eventually(t, "the replica has the claim", func() error {
		c, err := tryClaim(t.Context(), s, r)
		if err == nil && (c.Verdict != store.Granted || c.Fence != 1) {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	if st := settle(t, s, batch[0], store.Succeed); st.Code != store.Already || st.State != store.StateSucceeded {
		t.Errorf("settle after all: %+v", st)
	}
}
