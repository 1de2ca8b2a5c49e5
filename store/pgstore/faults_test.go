package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/store"
)

// proxied returns a proxy in front of the server and the URL through it.
func proxied(t *testing.T, dsn string) (*faultproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultproxy.Listen(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Addr()
	return p, u.String()
}

// operation is what a fault hits. run answers with an error where the answer
// is wrong for a repetition with the same token; prepare is undisturbed.
type operation struct {
	name    string
	prepare func(t *testing.T, st store.Store, r *store.ClaimRequest)
	run     func(ctx context.Context, st store.Store, r *store.ClaimRequest) (answer error, failure error)
}

func operations() []operation {
	claimed := func(t *testing.T, st store.Store, r *store.ClaimRequest) { claim(t, st, *r, store.Granted) }
	return []operation{
		{"claim", nil, func(ctx context.Context, st store.Store, r *store.ClaimRequest) (error, error) {
			out, err := st.Claim(ctx, []store.ClaimRequest{*r})
			if err == nil && (out[0].Verdict != store.Granted || out[0].Fence != 1 || out[0].Starts != 1) {
				return fmt.Errorf("%+v", out[0]), nil
			}
			return nil, err
		}},
		{"claim of an effect", func(t *testing.T, st store.Store, r *store.ClaimRequest) {
			parent := request(r.ID.Key)
			claim(t, st, parent, store.Granted)
			r.ID.Effect, r.Parent = "charge", parent.Token
		}, func(ctx context.Context, st store.Store, r *store.ClaimRequest) (error, error) {
			out, err := st.Claim(ctx, []store.ClaimRequest{*r})
			if err == nil && (out[0].Verdict != store.Granted || out[0].Fence != 1 || out[0].Starts != 1) {
				return fmt.Errorf("%+v", out[0]), nil
			}
			return nil, err
		}},
		{"renew", claimed, func(ctx context.Context, st store.Store, r *store.ClaimRequest) (error, error) {
			out, err := st.Renew(ctx, []store.Lease{{ID: r.ID, Token: r.Token}}, hour)
			if err == nil && out[0].Code != store.OK && out[0].Code != store.Locked {
				return fmt.Errorf("%+v", out[0]), nil
			}
			return nil, err
		}},
		{"succeed", claimed, settleOperation(store.Succeed, store.StateSucceeded)},
		{"release", claimed, settleOperation(store.Release, store.StateReleased)},
	}
}

func settleOperation(k store.Kind, state store.State) func(context.Context, store.Store, *store.ClaimRequest) (error, error) {
	return func(ctx context.Context, st store.Store, r *store.ClaimRequest) (error, error) {
		out, err := st.Settle(ctx, []store.Settlement{settlement(r, k, "result")})
		if err != nil {
			return nil, err
		}
		if out[0].Err != nil {
			return nil, out[0].Err
		}
		if out[0].Code != store.OK && (out[0].Code != store.Already || out[0].State != state) {
			return fmt.Errorf("%+v", out[0]), nil
		}
		return nil, nil
	}
}

// TestA01 hits every operation with every fault and repeats it with the same
// token: also C02, C06, C10, C11 and U28.
func TestA01_FaultsOnEveryOperation(t *testing.T) {
	for _, op := range operations() {
		for _, fault := range append(faultproxy.Faults(), 0) {
			name := fault.String()
			if fault == 0 {
				name = "refused"
			}
			t.Run(op.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				cell(t, op, fault)
			})
		}
	}
}

func cell(t *testing.T, op operation, fault faultproxy.Fault) {
	proxy, dsn := proxied(t, direct(t))
	opts := freshTable(t)
	st, healthy := open(t, dsn, opts), open(t, direct(t), opts)
	warm(t, st)
	r := request("key")
	if op.prepare != nil {
		op.prepare(t, healthy, &r)
	}
	if fault == 0 {
		proxy.Refuse()
	} else {
		proxy.Arm(fault, 1)
	}
	failed := 0
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		wrong, err := op.run(ctx, st, &r)
		cancel()
		if wrong != nil {
			t.Fatalf("try %d: %v", try, wrong)
		}
		if err == nil {
			break
		}
		if failed++; errors.Is(err, store.ErrPermanent) {
			t.Fatalf("try %d: an error that passes is called permanent: %v", try, err)
		}
		if failed == 20 {
			t.Fatalf("does not recover: %v", err)
		}
		if fault == 0 {
			if err := proxy.Accept(); err != nil {
				t.Fatal(err)
			}
			fault = faultproxy.Delay // accepted once
		}
	}
	if failed == 0 {
		t.Error("the fault has hit nothing")
	}
	if rec, ok, err := healthy.Get(t.Context(), r.ID); err != nil || !ok || rec.Starts != 1 {
		t.Errorf("record %+v, %v, %v", rec, ok, err)
	}
}

// warm lets the connections exist and their statements be prepared.
func warm(t *testing.T, st *Store) {
	t.Helper()
	r := request("warm-" + random())
	claim(t, st, r, store.Granted)
	e := request(r.ID.Key)
	e.ID.Effect, e.Parent = "effect", r.Token
	claim(t, st, e, store.Granted)
	renew(t, st, &r, minute, store.OK)
	settle(t, st, settlement(&r, store.Succeed, ""), store.OK)
}

func TestG04_ConnectionDroppedAtCommit(t *testing.T) {
	proxy, dsn := proxied(t, direct(t))
	opts := freshTable(t)
	st, healthy := open(t, dsn, opts), open(t, direct(t), opts)
	warm(t, st)
	r := request("key")
	proxy.Arm(faultproxy.CutReply, 1)
	if _, err := st.Claim(t.Context(), []store.ClaimRequest{r}); err == nil || proxy.Met() != 1 {
		t.Fatalf("the reply was not cut: %v", err)
	}
	claim(t, healthy, request("key"), store.Busy) // it was applied
	if c := claim(t, st, r, store.Granted); c.Starts != 1 || c.Fence != 1 {
		t.Errorf("repeated: %+v", c)
	}
	warm(t, st)
	proxy.Arm(faultproxy.CutReply, 1)
	s := settlement(&r, store.Succeed, "result")
	if _, err := st.Settle(t.Context(), []store.Settlement{s}); err == nil {
		t.Fatal("the reply was not cut")
	}
	if got := settle(t, st, s, store.Already); got.State != store.StateSucceeded {
		t.Errorf("repeated: %+v", got)
	}
}

func TestG05_DeadlineDuringReply(t *testing.T) {
	proxy, dsn := proxied(t, direct(t))
	st := open(t, dsn, freshTable(t))
	warm(t, st)
	r := request("key")
	proxy.Arm(faultproxy.Delay, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := st.Claim(ctx, []store.ClaimRequest{r})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrPermanent) {
		t.Fatalf("deadline: %v", err)
	}
	claim(t, st, request("key"), store.Busy)
	if c := claim(t, st, r, store.Granted); c.Starts != 1 {
		t.Errorf("repeated: %+v", c)
	}
}

func TestG07_StatementTimeout(t *testing.T) {
	opts := freshTable(t)
	st := open(t, withParam(direct(t), "statement_timeout", "150"), opts)
	r := request("key")
	claim(t, st, r, store.Granted)
	unlock := lockRow(t, st, r.ID)
	s := settlement(&r, store.Succeed, "result")
	_, err := st.Settle(t.Context(), []store.Settlement{s})
	var pg *Error
	if !errors.As(err, &pg) || pg.Code != "57014" || errors.Is(err, store.ErrPermanent) {
		t.Fatalf("statement timeout: %v", err)
	}
	unlock()
	settle(t, st, s, store.OK)
}

func TestG13_RestartAndTooManyConnections(t *testing.T) {
	st := fresh(t)
	r := request("key")
	claim(t, st, r, store.Granted)
	renew(t, st, &r, minute, store.OK)
	exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%'||$1||'%' AND pid <> pg_backend_pid()`, st.opts.Table)
	for try := 0; ; try++ {
		_, err := st.Settle(t.Context(), []store.Settlement{settlement(&r, store.Succeed, "")})
		if err == nil {
			break
		}
		if errors.Is(err, store.ErrPermanent) || try == 10 {
			t.Fatalf("after a restart: %v", err)
		}
	}
	renewAfterRestart(t, st, &r)

	role := limitedRole(t, st.opts.Table, "SELECT, INSERT, UPDATE, DELETE", "CONNECTION LIMIT 1")
	first := open(t, role, &st.opts)
	claim(t, first, request("other"), store.Granted)
	_, err := Open(t.Context(), role, &st.opts)
	if err == nil || errors.Is(err, store.ErrPermanent) {
		t.Errorf("too many connections: %v", err)
	}
}

func renewAfterRestart(t *testing.T, st *Store, r *store.ClaimRequest) {
	t.Helper()
	for try := 0; ; try++ {
		out, err := st.Renew(t.Context(), []store.Lease{{ID: r.ID, Token: r.Token}}, minute)
		if err == nil && out[0].Code == store.Already {
			return
		}
		if errors.Is(err, store.ErrPermanent) || try == 10 {
			t.Fatalf("after a restart: %+v, %v", out, err)
		}
	}
}

// limitedRole makes a role with rights on one table and returns its URL.
func limitedRole(t *testing.T, table, rights, attributes string) string {
	t.Helper()
	role := "role_" + random()
	exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret' "+attributes)
	exec(t, "GRANT USAGE ON SCHEMA public TO "+role)
	if rights != "" {
		exec(t, "GRANT "+rights+" ON public."+table+" TO "+role)
	}
	t.Cleanup(func() { exec(t, "DROP OWNED BY "+role); exec(t, "DROP ROLE "+role) })
	u, err := url.Parse(direct(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return u.String()
}
