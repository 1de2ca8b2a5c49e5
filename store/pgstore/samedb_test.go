package pgstore

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/store"
)

// effects makes a table that handlers write to.
func effects(t *testing.T) (table string) {
	table = "effects_" + random()
	exec(t, "CREATE TABLE "+table+" (v text)")
	t.Cleanup(func() { exec(t, "DROP TABLE "+table) })
	return table
}

// held is the context of a handler, and what the store did with it.
func held(t *testing.T, r *store.ClaimRequest) (ctx context.Context, completing *int) {
	n := 0
	return store.WithHeld(t.Context(), &store.Held{
		Lease: store.Lease{ID: r.ID, Token: r.Token}, Fence: 1, Retention: hour,
		Encode: func(result any) []byte {
			if result == nil {
				return nil
			}
			return []byte(result.(string))
		},
		Completing: func() { n++ },
	}), &n
}

func TestWrapTx_CommitsBothOrNothing(t *testing.T) {
	st := fresh(t)
	pool := poolOf(t, direct(t), 2)
	table := effects(t)
	failure := errors.New("handler failed")
	insert := func(ctx context.Context, tx pgx.Tx, m string) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", m)
		if m == "fails" {
			return failure
		}
		if m == "result" {
			return errors.Join(err, st.Complete(ctx, tx, "the result"))
		}
		if m == "panics" {
			panic(m)
		}
		return err
	}
	run := func(m string) (r store.ClaimRequest, completing int, err error) {
		r = request(m)
		claim(t, st, r, store.Granted)
		ctx, n := held(t, &r)
		defer func() {
			completing = *n
			if p := recover(); p != nil {
				err = errors.New("panicked")
			}
		}()
		return r, 0, WrapTx(st, pool, insert)(ctx, m)
	}
	for _, c := range []struct {
		name  string
		fails bool
		calls int
	}{{"fine", false, 1}, {"result", false, 2}, {"fails", true, 0}, {"panics", true, 0}} {
		r, n, err := run(c.name)
		if (err != nil) != c.fails || n != c.calls {
			t.Errorf("%s: %v, completing %d times", c.name, err, n)
		}
		if c.name == "fails" && !errors.Is(err, failure) {
			t.Errorf("the handler's error is hidden: %v", err)
		}
		if rows := query[int](t, "SELECT count(*) FROM "+table+" WHERE v = $1", c.name); (rows == 0) != c.fails {
			t.Errorf("%s: %d effects", c.name, rows)
		}
		want := store.Done
		if c.fails {
			want = store.Busy
		}
		if got := claim(t, st, request(r.ID.Key), want); c.name == "result" && string(got.Payload) != "the result" {
			t.Errorf("%s: payload %q", c.name, got.Payload)
		}
	}
}

func TestG16_CompleteOfADisplacedOwner(t *testing.T) {
	st := fresh(t)
	pool := poolOf(t, direct(t), 2)
	table := effects(t)
	old, next := request("key"), request("key")
	claim(t, st, old, store.Granted)
	runOut(t, st, &old)
	ctx, completing := held(t, &old)
	err := WrapTx(st, pool, func(ctx context.Context, tx pgx.Tx, _ struct{}) error {
		claim(t, st, next, store.Granted)
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ('late')")
		return err
	})(ctx, struct{}{})
	if !errors.Is(err, ErrDisplaced) || *completing != 1 {
		t.Errorf("%v, completing %d times", err, *completing)
	}
	if n := query[int](t, "SELECT count(*) FROM "+table); n != 0 {
		t.Errorf("%d effects of a displaced owner", n)
	}
	settle(t, st, settlement(&next, store.Succeed, "next"), store.OK)
	ctx, _ = held(t, &old)
	if err := st.Complete(ctx, begin(t), nil); !errors.Is(err, ErrDisplaced) {
		t.Errorf("after the successor's success: %v", err)
	}
	// What the owner itself gave back is not its own any more either.
	released := request("released")
	claim(t, st, released, store.Granted)
	settle(t, st, settlement(&released, store.Release, ""), store.OK)
	ctx, _ = held(t, &released)
	if err := st.Complete(ctx, begin(t), nil); !errors.Is(err, ErrDisplaced) {
		t.Errorf("after a release: %v", err)
	}
}

// TestG16_ThirtyOwnersOneEffect lets owners with leases that are over race in
// same-database mode: one transaction commits.
func TestG16_ThirtyOwnersOneEffect(t *testing.T) {
	st := fresh(t)
	pool := poolOf(t, direct(t), 8)
	table := effects(t)
	handler := WrapTx(st, pool, func(ctx context.Context, tx pgx.Tx, _ struct{}) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ('x')")
		return err
	})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			r := request("key")
			r.Lease = 1000 // a microsecond
			out, err := st.Claim(t.Context(), []store.ClaimRequest{r})
			if err != nil {
				t.Error(err)
				return
			}
			if out[0].Verdict != store.Granted {
				return
			}
			ctx, _ := held(t, &r)
			if err := handler(ctx, struct{}{}); err != nil && !errors.Is(err, ErrDisplaced) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := query[int](t, "SELECT count(*) FROM "+table); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

func TestG17_CommitAmbiguous(t *testing.T) {
	for _, fault := range []faultproxy.Fault{faultproxy.CutReply, faultproxy.Reset} {
		t.Run(fault.String(), func(t *testing.T) {
			st := fresh(t)
			proxy, dsn := proxied(t, direct(t))
			pool := poolOf(t, dsn, 1)
			table := effects(t)
			r := request("key")
			claim(t, st, r, store.Granted)
			ctx, _ := held(t, &r)
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ('x')"); err != nil {
				t.Fatal(err)
			}
			if err := st.Complete(ctx, tx, "result"); err != nil {
				t.Fatal(err)
			}
			proxy.Arm(fault, 1)
			if err := tx.Commit(ctx); err == nil {
				t.Fatal("the commit was not cut")
			}
			// What the middleware sends then: the failure, which must not win.
			want, state, effects := store.Already, store.StateSucceeded, 1
			if fault == faultproxy.Reset { // the server has got nothing and rolls back
				want, state, effects = store.OK, 0, 0
			}
			if s := settle(t, st, settlement(&r, store.Retry, "not committed"), want); s.State != state {
				t.Errorf("%+v", s)
			}
			if n := query[int](t, "SELECT count(*) FROM "+table); n != effects {
				t.Errorf("%d effects, want %d", n, effects)
			}
		})
	}
}

func TestComplete_AbsentRecordAndEffects(t *testing.T) {
	st := fresh(t)
	r := request("key")
	claim(t, st, r, store.Granted)
	if ok, err := st.Forget(t.Context(), r.ID, "test"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	ctx, _ := held(t, &r)
	tx := begin(t)
	if err := st.Complete(ctx, tx, "late"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if c := claim(t, st, request("key"), store.Done); string(c.Payload) != "late" {
		t.Errorf("%+v", c)
	}

	parent := request("parent")
	claim(t, st, parent, store.Granted)
	e := request("parent")
	e.ID.Effect, e.Parent = "charge", parent.Token
	claim(t, st, e, store.Granted)
	if _, err := st.Forget(t.Context(), parent.ID, "test"); err != nil {
		t.Fatal(err)
	}
	ctx, _ = held(t, &e)
	if err := st.Complete(ctx, begin(t), nil); !errors.Is(err, ErrDisplaced) {
		t.Errorf("an effect without its parent: %v", err)
	}
	if err := st.Complete(t.Context(), begin(t), nil); err == nil {
		t.Error("completed without a claim")
	}
}

func TestComplete_BehindPgBouncer(t *testing.T) {
	st := open(t, bouncer(t), freshTable(t))
	pool := poolOf(t, bouncer(t), 2)
	r := request("key")
	claim(t, st, r, store.Granted)
	ctx, _ := held(t, &r)
	if err := WrapTx(st, pool, func(context.Context, pgx.Tx, int) error { return nil })(ctx, 1); err != nil {
		t.Fatal(err)
	}
	claim(t, st, request("key"), store.Done)
}
