package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

func newID(t testing.TB) store.ID {
	return store.ID{Scope: t.Name(), Key: fmt.Sprint(store.NewToken().IsZero(), time.Now().UnixNano(), serial.Add(1))}
}

var serial atomic.Int64

func request(t testing.TB) store.ClaimRequest {
	return store.ClaimRequest{
		ID: newID(t), Token: store.NewToken(), Lease: time.Minute, Retention: time.Hour,
		Holder: "holder", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Delivery: "delivery",
	}
}

func claim(t testing.TB, s store.Store, r store.ClaimRequest) store.Claim {
	t.Helper()
	c, err := tryClaim(t.Context(), s, r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryClaim(ctx context.Context, s store.Store, r store.ClaimRequest) (store.Claim, error) {
	out, err := s.Claim(ctx, []store.ClaimRequest{r})
	if err != nil {
		return store.Claim{}, err
	}
	return out[0], out[0].Err
}

func trySettle(ctx context.Context, s store.Store, r store.ClaimRequest, k store.Kind) (store.Status, error) {
	return one(s.Settle(ctx, []store.Settlement{{
		ID: r.ID, Token: r.Token, Kind: k, Payload: []byte("result"), Retention: time.Hour,
	}}))
}

func settle(t testing.TB, s store.Store, r store.ClaimRequest, k store.Kind) store.Status {
	t.Helper()
	st, err := trySettle(t.Context(), s, r, k)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func tryRenew(ctx context.Context, s store.Store, r store.ClaimRequest) (store.Status, error) {
	return one(s.Renew(ctx, []store.Lease{{ID: r.ID, Token: r.Token}}, time.Minute))
}

func one(out []store.Status, err error) (store.Status, error) {
	if err != nil {
		return store.Status{}, err
	}
	return out[0], out[0].Err
}

// operation is one of the five that A01 cuts. do answers whether the answer is
// right; it is repeated with the same token until there is no error.
type operation struct {
	name    string
	prepare bool // claims first
	do      func(context.Context, store.Store, store.ClaimRequest) error
	check   func(store.Record) bool
}

func operations() []operation {
	settles := func(k store.Kind, check func(store.Record) bool) operation {
		return operation{k.String(), true, func(ctx context.Context, s store.Store, r store.ClaimRequest) error {
			st, err := trySettle(ctx, s, r, k)
			if err == nil && st.Code != store.OK && st.Code != store.Already {
				return wrong{st}
			}
			return err
		}, check}
	}
	return []operation{
		{"claim", false, func(ctx context.Context, s store.Store, r store.ClaimRequest) error {
			c, err := tryClaim(ctx, s, r)
			if err == nil && (c.Verdict != store.Granted || c.Fence != 1 || c.Starts != 1 || c.Takeover) {
				return wrong{c}
			}
			return err
		}, func(r store.Record) bool { return r.State == store.StateClaimed && r.Starts == 1 }},
		{"renew", true, func(ctx context.Context, s store.Store, r store.ClaimRequest) error {
			st, err := tryRenew(ctx, s, r)
			if err == nil && st.Code != store.OK {
				return wrong{st}
			}
			return err
		}, func(r store.Record) bool { return r.State == store.StateClaimed && r.Starts == 1 }},
		settles(store.Succeed, func(r store.Record) bool { return r.State == store.StateSucceeded && string(r.Payload) == "result" }),
		settles(store.Fail, func(r store.Record) bool { return r.State == store.StateFailed && r.Failures == 1 }),
		settles(store.Release, func(r store.Record) bool { return r.State == store.StateReleased && r.Failures == 0 }),
	}
}

type wrong struct{ answer any }

func (w wrong) Error() string { return fmt.Sprintf("wrong answer %+v", w.answer) }

// TestA01_Ambiguity cuts every operation in every way. The client does not
// repeat anything by itself, so the store must report an error, which is not
// permanent; repeating with the same token must give the right answer.
func TestA01_Ambiguity(t *testing.T) {
	runFaults(t, -1)
}

// TestA02_ClientRetries is A01 with the retries of go-redis: the same answers.
func TestA02_ClientRetries(t *testing.T) {
	runFaults(t, 3)
}

func runFaults(t *testing.T, retries int) {
	direct := standalone(t)
	real := open(t, direct, nil)
	p, err := faultproxy.Listen(direct.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.SetDelay(300 * time.Millisecond)
	c := redis.NewClient(&redis.Options{
		Addr: p.Addr(), MaxRetries: retries, ContextTimeoutEnabled: true, MaxRetryBackoff: 20 * time.Millisecond,
		ReadTimeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = c.Close() })
	s := open(t, c, nil)
	for _, op := range operations() {
		for _, f := range append(faultproxy.Faults(), 0) { // 0 stands for refused
			t.Run(fmt.Sprintf("%s/%v", op.name, f), func(t *testing.T) {
				r := request(t)
				if op.prepare && claim(t, real, r).Verdict != store.Granted {
					t.Fatal("not granted")
				}
				if f == 0 {
					p.Refuse()
				} else {
					p.Arm(f, 1)
				}
				err := op.do(t.Context(), s, r)
				checkFirst(t, err, retries > 0 && f != 0)
				if f == 0 {
					if err := p.Accept(); err != nil {
						t.Fatal(err)
					}
				} else if p.Met() == 0 {
					t.Fatal("the fault met nothing")
				}
				// After many refusals go-redis dials only once a second.
				eventually(t, "repeating with the same token", func() error {
					err := op.do(t.Context(), s, r)
					if errors.As(err, new(wrong)) || f != 0 && err != nil {
						t.Fatal(err)
					}
					return err
				})
				rec, ok, err := real.Get(t.Context(), r.ID)
				if err != nil || !ok || !op.check(rec) || rec.Fence != 1 {
					t.Fatalf("record %+v, %v, %v", rec, ok, err)
				}
			})
		}
	}
}

func checkFirst(t *testing.T, err error, mended bool) {
	t.Helper()
	var w wrong
	switch {
	case errors.As(err, &w), errors.Is(err, store.ErrPermanent):
		t.Fatal(err)
	case mended && err != nil:
		t.Fatalf("the client's retries did not help: %v", err)
	case !mended && err == nil:
		t.Fatal("no error although the request was cut")
	}
}

// TestD11_SlowScript: the client gives up on a script that waits in the server;
// it is applied once.
func TestD11_SlowScript(t *testing.T) {
	srv := startServer(t, "--busy-reply-threshold", "10000")
	s := open(t, dial(t, srv.addr), nil)
	r := request(t)
	other := dial(t, srv.addr)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = other.Eval(context.Background(), `local t=redis.call('TIME') local e=t[1]*1000+t[2]/1000+400
			repeat t=redis.call('TIME') until t[1]*1000+t[2]/1000 > e`, nil).Err()
	})
	time.Sleep(50 * time.Millisecond) // until the server is busy
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := tryClaim(ctx, s, r); err == nil || errors.Is(err, store.ErrPermanent) {
		t.Fatalf("%+v, %v", c, err)
	}
	wg.Wait()
	if c := claim(t, s, r); c.Verdict != store.Granted || c.Fence != 1 {
		t.Fatalf("%+v", c)
	}
}

// TestU28_LostReply: no claim without a known owner, none without an expiry.
func TestU28_LostReply(t *testing.T) {
	direct := standalone(t)
	real := open(t, direct, nil)
	p, err := faultproxy.Listen(direct.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	s := open(t, c, nil)
	r := request(t)
	p.Arm(faultproxy.CutReply, 1)
	if _, err := tryClaim(t.Context(), s, r); err == nil {
		t.Fatal("the reply was not cut")
	}
	for _, key := range direct.Keys(t.Context(), "secondrun:*"+r.ID.Key+"*").Val() {
		if ttl := direct.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Fatalf("%s has no expiry", key)
		}
	}
	// The worker gives up and releases by token; the next one gets it at once.
	if st := settle(t, s, r, store.Release); st.Code != store.OK {
		t.Fatalf("%+v", st)
	}
	next := r
	next.Token = store.NewToken()
	if c := claim(t, real, next); c.Verdict != store.Granted || c.Takeover || c.Fence != 2 {
		t.Fatalf("%+v", c)
	}
}

// TestU29_NoStore: New reports a server that it cannot reach.
func TestU29_NoStore(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	if s, err := redisstore.New(t.Context(), c, nil); err == nil || s != nil {
		t.Fatal("a store without a server")
	}
}
