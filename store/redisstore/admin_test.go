package redisstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/redisstore"
)

// secondCommand arms the proxy before the second command of a call: the first one only
// reads.
type secondCommand struct {
	proxy *faultproxy.Proxy
	seen  int
}

func (h *secondCommand) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *secondCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *secondCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.seen++; h.seen == 2 {
			h.proxy.Arm(faultproxy.CutReply, 1)
		}
		return next(ctx, cmd)
	}
}

// TestAdminLostReply: the client repeats an admin script whose reply was lost.
// The use is reported once all the same, with the record as it was.
func TestAdminLostReply(t *testing.T) {
	direct := standalone(t)
	real := open(t, direct, nil)
	p, err := faultproxy.Listen(direct.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	var audits []store.Audit
	s := open(t, c, &redisstore.Options{Audit: func(a store.Audit) { audits = append(audits, a) }})
	h := &secondCommand{proxy: p}
	c.AddHook(h)
	for action, do := range map[string]func(context.Context, store.ID, string) (bool, error){
		"reopen": s.Reopen, "forget": s.Forget, "force-release": s.ForceRelease,
	} {
		t.Run(action, func(t *testing.T) {
			r := request(t)
			claim(t, real, r)
			want := store.StateClaimed
			if action == "reopen" {
				settle(t, real, r, store.Park)
				want = store.StateFailed
			}
			audits, h.seen = nil, 0
			if ok, err := do(t.Context(), r.ID, "test"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if p.Met() != 1 {
				t.Fatal("no reply was lost")
			}
			if len(audits) != 1 || audits[0].Action != action || audits[0].Before.State != want || audits[0].ID != r.ID {
				t.Errorf("%+v", audits)
			}
			if st := settle(t, real, r, store.Fail); st.Code != store.Lost && st.Code != store.Absent {
				t.Errorf("the owner of before: %+v", st)
			}
			p.Arm(faultproxy.CutReply, 0)
			h.seen = 2
			if ok, err := do(t.Context(), r.ID, "test"); ok || err != nil || len(audits) != 1 {
				t.Errorf("again: %v, %v, %d audits", ok, err, len(audits))
			}
		})
	}
	if _, err := s.Forget(t.Context(), newID(t), ""); !errors.Is(err, store.ErrPermanent) {
		t.Errorf("without a reason: %v", err)
	}
}

// TestReopenKeepsSucceededEffects, and reopens those that failed.
func TestReopenKeepsSucceededEffects(t *testing.T) {
	s := open(t, standalone(t), nil)
	r := request(t)
	claim(t, s, r)
	for name, kind := range map[string]store.Kind{"charge": store.Succeed, "email": store.Park} {
		e := r
		e.ID.Effect, e.Parent, e.Token = name, r.Token, store.NewToken()
		claim(t, s, e)
		settle(t, s, e, kind)
	}
	settle(t, s, r, store.Fail)
	if ok, err := s.Reopen(t.Context(), r.ID, "test"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Token = store.NewToken()
	if c := claim(t, s, r); c.Verdict != store.Granted || c.Failures != 0 || c.Fence != 2 {
		t.Fatalf("%+v", c)
	}
	for name, want := range map[string]store.Verdict{"charge": store.Done, "email": store.Granted} {
		e := r
		e.ID.Effect, e.Parent, e.Token = name, r.Token, store.NewToken()
		if c := claim(t, s, e); c.Verdict != want {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
