package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

// TestG01_RowLocked locks rows that a claim would take over, regrant or have
// for the first time, as a handler's open transaction does.
func TestG01_RowLocked(t *testing.T) {
	st := fresh(t)
	over, released, expired := request("over"), request("released"), request("expired")
	expired.Retention = time.Microsecond
	for _, r := range []*store.ClaimRequest{&over, &released, &expired} {
		claim(t, st, *r, store.Granted)
	}
	settle(t, st, settlement(&released, store.Release, ""), store.OK)
	runOut(t, st, &over)
	s := settlement(&expired, store.Succeed, "")
	s.Retention = time.Microsecond
	settle(t, st, s, store.OK)
	for _, r := range []*store.ClaimRequest{&over, &released, &expired} {
		unlock := lockRow(t, st, r.ID)
		soon(t, func() {
			c := claim(t, st, request(r.ID.Key), store.Busy)
			if c.Remaining <= 0 || c.Remaining > time.Second || c.At.IsZero() {
				t.Errorf("%s: %+v", r.ID.Key, c)
			}
		})
		unlock()
		claim(t, st, request(r.ID.Key), store.Granted)
	}
}

func TestG01_RowLockedInABatch(t *testing.T) {
	for _, size := range []int{3, 20} {
		st := fresh(t)
		var reqs []store.ClaimRequest
		for i := range size {
			reqs = append(reqs, request(fmt.Sprintf("key-%02d", i)))
		}
		claim(t, st, reqs[1], store.Granted)
		runOut(t, st, &reqs[1])
		unlock := lockRow(t, st, reqs[1].ID)
		reqs[1].Token = store.NewToken()
		soon(t, func() {
			out, err := st.Claim(t.Context(), reqs)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range out {
				if want := map[bool]store.Verdict{true: store.Busy, false: store.Granted}[i == 1]; c.Verdict != want {
					t.Errorf("%d of %d: %+v", i, size, c)
				}
			}
		})
		unlock()
	}
}

// TestG01_InsertedByAnOpenTransaction has a record that nobody can see yet: the
// claim cannot but wait for it, and stops at the lock timeout.
func TestG01_InsertedByAnOpenTransaction(t *testing.T) {
	opts := freshTable(t)
	opts.LockTimeout = 200 * time.Millisecond
	st := open(t, direct(t), opts)
	tx := begin(t)
	if err := st.Complete(heldContext(t.Context(), id("key-01"), store.NewToken()), tx, nil); err != nil {
		t.Fatal(err)
	}
	soon(t, func() { claim(t, st, request("key-01"), store.Busy) })
	for _, size := range []int{3, 20} {
		var reqs []store.ClaimRequest
		for i := range size {
			reqs = append(reqs, request(fmt.Sprintf("key-%02d", i)))
			reqs[i].Token = store.Token{byte(i + 1)} // the same in both sizes
		}
		out, err := st.Claim(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range out {
			if want := map[bool]store.Verdict{true: store.Busy, false: store.Granted}[i == 1]; c.Verdict != want || c.At.IsZero() {
				t.Errorf("%d of %d: %+v", i, size, c)
			}
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim(t, st, request("key-01"), store.Done)
}

// TestSettle_LockedRow: the item with a locked row fails by itself, and can be
// repeated.
func TestSettle_LockedRow(t *testing.T) {
	opts := freshTable(t)
	opts.LockTimeout = 200 * time.Millisecond
	st := open(t, direct(t), opts)
	for _, size := range []int{1, 3, 20} {
		var in []store.Settlement
		for i := range size {
			r := request(fmt.Sprintf("key-%02d-%02d", size, i))
			claim(t, st, r, store.Granted)
			in = append(in, settlement(&r, store.Succeed, "result"))
		}
		unlock := lockRow(t, st, in[size/2].ID)
		out, err := st.Settle(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range out {
			switch {
			case i != size/2 && s.Code != store.OK:
				t.Errorf("%d of %d: %+v", i, size, s)
			case i == size/2 && (s.Err == nil || s.Code != 0 || errors.Is(s.Err, store.ErrPermanent)):
				t.Errorf("%d of %d: %+v, want a retryable error", i, size, s)
			}
		}
		unlock()
		settle(t, st, in[size/2], store.OK)
	}
}

// TestSettle_WaitsForTheLock: a settlement looks at what the other transaction
// has left.
func TestSettle_WaitsForTheLock(t *testing.T) {
	st := fresh(t)
	r := request("key")
	claim(t, st, r, store.Granted)
	tx := begin(t)
	if err := st.Complete(heldContext(t.Context(), r.ID, r.Token), tx, nil); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { committed <- tx.Commit(context.Background()) })
	if s := settle(t, st, settlement(&r, store.Retry, "failed"), store.Already); s.State != store.StateSucceeded {
		t.Errorf("%+v", s)
	}
	if err := <-committed; err != nil {
		t.Error(err)
	}
}

// TestG18_RenewalSkipsItsOwnRowLock has the lock of the handler's Complete.
func TestG18_RenewalSkipsItsOwnRowLock(t *testing.T) {
	st := fresh(t)
	r, other := request("key"), request("other")
	claim(t, st, r, store.Granted)
	claim(t, st, other, store.Granted)
	tx := begin(t)
	if err := st.Complete(heldContext(t.Context(), r.ID, r.Token), tx, nil); err != nil {
		t.Fatal(err)
	}
	soon(t, func() {
		out, err := st.Renew(t.Context(), []store.Lease{{ID: r.ID, Token: r.Token}, {ID: other.ID, Token: other.Token}}, minute)
		if err != nil || out[0].Code != store.Locked || out[1].Code != store.OK {
			t.Errorf("%+v %v", out, err)
		}
	})
	claim(t, st, request("key"), store.Busy)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	renew(t, st, &r, minute, store.OK)
}

// TestG19_RenewalHasAConnection takes every connection that claims and
// settlements may have.
func TestG19_RenewalHasAConnection(t *testing.T) {
	st := fresh(t)
	r := request("key")
	claim(t, st, r, store.Granted)
	for range st.work.Config().MaxConns {
		c, err := st.work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := st.Claim(ctx, []store.ClaimRequest{request("x")}); err == nil {
		t.Error("there still was a connection for a claim")
	}
	soon(t, func() { renew(t, st, &r, minute, store.OK) })
	if n := st.work.Config().MaxConns + st.renew.Config().MaxConns; n != 4 {
		t.Errorf("%d connections in all", n)
	}
}

func heldContext(ctx context.Context, id store.ID, token store.Token) context.Context {
	return store.WithHeld(ctx, &store.Held{
		Lease: store.Lease{ID: id, Token: token}, Retention: hour,
		Encode:     func(result any) []byte { return fmt.Append(nil, result) },
		Completing: func() {},
	})
}

// TestG15_PurgeBesideEverything: no record that lives is ever removed.
func TestG15_PurgeBesideEverything(t *testing.T) {
	opts := freshTable(t)
	st, purger := open(t, direct(t), opts), open(t, direct(t), opts)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	removed := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				removed += purgeAll(t, purger)
			}
		}
	})
	var work sync.WaitGroup
	const workers, rounds = 4, 60
	for w := range workers {
		work.Go(func() {
			for i := range rounds {
				purgeRound(t, st, fmt.Sprintf("%d-%d", w, i))
			}
		})
	}
	work.Wait()
	close(stop)
	wg.Wait()
	removed += purgeAll(t, purger)
	removed += purgeAll(t, purger) // an effect goes one cycle after its parent's row
	if rows := query[int](t, "SELECT count(*) FROM "+st.opts.table()); rows != workers*rounds || removed != 2*workers*rounds {
		t.Errorf("%d rows are left, want %d; %d removed, want twice that", rows, workers*rounds, removed)
	}
}

// purgeRound leaves a record that lives, and one with an effect that does not.
func purgeRound(t *testing.T, st *Store, key string) {
	r := request("keep-" + key)
	r.Retention = time.Microsecond // but the lease is running
	claim(t, st, r, store.Granted)
	renew(t, st, &r, minute, store.OK)
	settle(t, st, settlement(&r, store.Succeed, ""), store.OK)
	claim(t, st, request(r.ID.Key), store.Done)

	gone := request("gone-" + key)
	claim(t, st, gone, store.Granted)
	e := request(gone.ID.Key)
	e.ID.Effect, e.Parent, e.Retention = "effect", gone.Token, 0
	claim(t, st, e, store.Granted)
	settle(t, st, settlement(&e, store.Succeed, ""), store.OK)
	claim(t, st, e, store.Done)
	s := settlement(&gone, store.Fail, "")
	s.Retention = time.Microsecond
	settle(t, st, s, store.OK)
}

func purgeAll(t *testing.T, st *Store) int {
	n := 0
	for cursor := ""; ; {
		removed, next, err := st.Purge(t.Context(), cursor)
		if err != nil {
			t.Error(err)
			return n
		}
		if n += removed; next == "" {
			return n
		}
		cursor = next
	}
}

// TestRace_RenewalOfWhatIsAbsentByNow pauses a renewal between its snapshot and
// its clock. Meanwhile another one with the same token shortens the lease, and
// the record becomes absent: it must stay so.
func TestRace_RenewalOfWhatIsAbsentByNow(t *testing.T) {
	opts := freshTable(t)
	st, slow := open(t, direct(t), opts), open(t, direct(t), opts)
	lock := time.Now().UnixNano()
	const clock = "(SELECT clock_timestamp() AS now)"
	if !strings.Contains(slow.sql.renew, clock) {
		t.Fatal("the statement does not read the clock where it is to be paused")
	}
	slow.sql.renew = strings.Replace(slow.sql.renew, clock,
		fmt.Sprintf("(SELECT clock_timestamp() AS now FROM pg_advisory_xact_lock(%d))", lock), 1)
	tx := begin(t)
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
		t.Fatal(err)
	}
	r := request("key")
	r.Retention = time.Microsecond
	claim(t, st, r, store.Granted)
	var out []store.Status
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		out, err = slow.Renew(t.Context(), []store.Lease{{ID: r.ID, Token: r.Token}}, minute)
	})
	waiting := `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND (classid::bigint << 32) + objid::bigint = $1`
	for try := 0; query[int](t, waiting, lock) == 0; try++ {
		if try == 10_000 {
			t.Fatal("the renewal does not wait")
		}
		time.Sleep(time.Millisecond) // for a real server
	}
	renew(t, st, &r, time.Microsecond, store.OK)
	settle(t, st, settlement(&r, store.Fail, ""), store.Absent)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err != nil || out[0].Code != store.Locked {
		t.Errorf("%+v, %v", out, err)
	}
	settle(t, st, settlement(&r, store.Fail, ""), store.Absent)
	renew(t, st, &r, minute, store.Lost)
	if c := claim(t, st, request("key"), store.Granted); c.Fence != 1 || c.Takeover {
		t.Errorf("%+v", c)
	}
}

func TestG15_PurgeDoesNotWait(t *testing.T) {
	st := fresh(t)
	r := request("key")
	r.Lease, r.Retention = time.Microsecond, time.Microsecond
	claim(t, st, r, store.Granted)
	unlock := lockRow(t, st, r.ID)
	soon(t, func() {
		if n := purgeAll(t, st); n != 0 {
			t.Errorf("removed %d locked rows", n)
		}
	})
	unlock()
	if n := purgeAll(t, st); n != 1 {
		t.Errorf("removed %d", n)
	}
}
