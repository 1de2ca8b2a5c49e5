package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
)

// tracer counts round trips and errors.
type tracer struct {
	trips  atomic.Int64
	errors sync.Map // SQLSTATE → *atomic.Int64
}

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.trips.Add(1)
	return ctx
}

func (c *tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if code := sqlState(d.Err); code != "" {
		n, _ := c.errors.LoadOrStore(code, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
}

func (c *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.trips.Add(1)
	return ctx
}
func (c *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *tracer) TraceBatchEnd(_ context.Context, conn *pgx.Conn, d pgx.TraceBatchEndData) {
	c.TraceQueryEnd(context.Background(), conn, pgx.TraceQueryEndData{Err: d.Err})
}

func (c *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	c.trips.Add(1)
	return ctx
}
func (c *tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

func (c *tracer) seen(code string) int64 {
	if n, ok := c.errors.Load(code); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// traced opens a store on a pool of conns connections.
func traced(tb testing.TB, dsn string, conns int32) (*Store, *tracer) {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tr := &tracer{}
	cfg.MaxConns, cfg.ConnConfig.Tracer = conns, tr
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	st, err := New(tb.Context(), pool, freshTable(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return st, tr
}

// TestRace_SixteenClaimsOfOneKey: one wins, whatever the isolation level, and
// nobody gets an error.
func TestRace_SixteenClaimsOfOneKey(t *testing.T) {
	waves := testenv.Size(1000, 10_000)
	t.Run("read committed", func(t *testing.T) { race(t, direct(t), waves, false) })
	t.Run("read committed in batches", func(t *testing.T) { race(t, direct(t), waves/10, true) })
}

func TestG02_RaceAtHigherIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			dsn := withParam(direct(t), "default_transaction_isolation", strings.ReplaceAll(level, " ", "%20"))
			race(t, dsn, testenv.Size(100, 1000), false)
			race(t, dsn, testenv.Size(20, 200), true)
		})
	}
}

func TestG06_RaceBehindPgBouncer(t *testing.T) { race(t, bouncer(t), testenv.Size(100, 1000), true) }

const racers = 16

// race lets 16 goroutines claim a key at once, over and over; in batches every
// one of them also claims nine others that nobody else wants.
func race(t *testing.T, dsn string, waves int, batches bool) {
	st, tr := traced(t, dsn, racers)
	for wave := range waves {
		var wins, wrong atomic.Int64
		start := make(chan struct{})
		var wg sync.WaitGroup
		for g := range racers {
			wg.Go(func() {
				<-start
				reqs := []store.ClaimRequest{request(fmt.Sprintf("wave-%d", wave))}
				for i := 0; batches && i < 9; i++ {
					reqs = append(reqs, request(fmt.Sprintf("wave-%d-%02d-%d", wave, g, i)))
				}
				out, err := st.Claim(t.Context(), reqs)
				if err != nil {
					t.Errorf("wave %d: %v", wave, err)
					return
				}
				for i, c := range out {
					switch {
					case i == 0 && c.Verdict == store.Granted:
						wins.Add(1)
					case i == 0 && c.Verdict != store.Busy, i > 0 && c.Verdict != store.Granted:
						wrong.Add(1)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		if wins.Load() != 1 || wrong.Load() != 0 {
			t.Fatalf("wave %d: %d winners, %d wrong answers", wave, wins.Load(), wrong.Load())
		}
	}
	t.Logf("%d serialization failures were repeated", tr.seen(codeSerialization))
}

// TestRace_Takeover is the race for a lease that is over.
func TestRace_Takeover(t *testing.T) {
	st, _ := traced(t, direct(t), racers)
	for wave := range testenv.Size(200, 5000) {
		key := fmt.Sprint("key-", wave)
		first := request(key)
		first.Lease = time.Microsecond
		claim(t, st, first, store.Granted)
		var wins, fence atomic.Int64
		var wg sync.WaitGroup
		for range racers {
			wg.Go(func() {
				out, err := st.Claim(t.Context(), []store.ClaimRequest{request(key)})
				if err != nil {
					t.Error(err)
				} else if out[0].Verdict == store.Granted {
					wins.Add(1)
					fence.Add(out[0].Fence)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 || fence.Load() != 2 {
			t.Fatalf("wave %d: %d winners, fences %d", wave, wins.Load(), fence.Load())
		}
		settle(t, st, settlement(&first, store.Succeed, ""), store.Lost)
	}
}

// TestRace_DisplacedParentsEffect lets a displaced parent claim an effect while
// its successor takes the parent over and claims the same effect: the successor
// keeps it.
func TestRace_DisplacedParentsEffect(t *testing.T) {
	st, _ := traced(t, direct(t), 4)
	late := 0
	for wave := range testenv.Size(400, 10_000) {
		p1, p2 := request(fmt.Sprint("key-", wave)), request(fmt.Sprint("key-", wave))
		p1.Lease = time.Microsecond
		claim(t, st, p1, store.Granted)
		e1, e2 := request(p1.ID.Key), request(p1.ID.Key)
		e1.ID.Effect, e2.ID.Effect = "charge", "charge"
		e1.Parent, e2.Parent = p1.Token, p2.Token
		if wave%2 == 0 {
			claim(t, st, e1, store.Granted) // then it is a takeover, else an insert
			e1.Token = store.NewToken()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			out, err := st.Claim(t.Context(), []store.ClaimRequest{e1})
			if err != nil {
				t.Error(err)
			} else if out[0].Verdict == store.Granted {
				late++
			}
		})
		claim(t, st, p2, store.Granted)
		for try := 0; ; try++ {
			out, err := st.Claim(t.Context(), []store.ClaimRequest{e2})
			if err != nil {
				t.Fatal(err)
			}
			if out[0].Verdict == store.Granted {
				break
			}
			if out[0].Verdict != store.Busy || out[0].Remaining > contended || try == 5 {
				t.Fatalf("wave %d: the successor's effect: %+v", wave, out[0])
			}
		}
		wg.Wait()
		settle(t, st, settlement(&e2, store.Succeed, ""), store.OK)
	}
	t.Logf("%d times the displaced parent came first", late)
}

// TestG03_OverlappingBatches: sorted batches of takeovers, renewals and
// settlements over the same keys never deadlock.
func TestG03_OverlappingBatches(t *testing.T) {
	for _, size := range []int{3, 12} {
		st, tr := traced(t, direct(t), 8)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range testenv.Size(40, 500) {
					overlapping(t, st, size, g+i)
				}
			})
		}
		wg.Wait()
		if n := tr.seen(codeDeadlock); n != 0 {
			t.Errorf("batches of %d: %d deadlocks", size, n)
		}
	}
}

func overlapping(t *testing.T, st *Store, size, from int) {
	var reqs []store.ClaimRequest
	for k := range size {
		r := request(fmt.Sprintf("key-%02d", (from%4)+k*2))
		r.Lease = time.Microsecond
		reqs = append(reqs, r)
	}
	out, err := st.Claim(t.Context(), reqs)
	if err != nil {
		t.Error(err)
		return
	}
	var in []store.Settlement
	var leases []store.Lease
	for i, c := range out {
		if c.Verdict == store.Granted {
			in = append(in, settlement(&reqs[i], store.Release, ""))
			leases = append(leases, store.Lease{ID: reqs[i].ID, Token: reqs[i].Token})
		}
	}
	if _, err := st.Renew(t.Context(), leases, time.Microsecond); err != nil {
		t.Error(err)
	}
	if _, err := st.Settle(t.Context(), in); err != nil {
		t.Error(err)
	}
}

// TestG06_PreparedStatements uses pgx's default mode behind PgBouncer.
func TestG06_PreparedStatements(t *testing.T) {
	opts := freshTable(t)
	dsn := testenv.Get(t, testenv.PgBouncerVar)
	var mu sync.Mutex
	var got error
	check := func(err error) {
		if code := sqlState(err); code == "26000" || code == "42P05" {
			mu.Lock()
			defer mu.Unlock()
			got = err
		}
	}
	for range 3 {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				st, err := Open(t.Context(), dsn, opts)
				if check(err); err != nil {
					return
				}
				defer st.Close()
				for i := range 20 {
					_, err := st.Claim(t.Context(), []store.ClaimRequest{request(fmt.Sprint(g, i))})
					check(err)
				}
			})
		}
		wg.Wait()
	}
	if got == nil {
		t.Skip("this PgBouncer keeps prepared statements (max_prepared_statements)")
	}
	var e *Error
	if !errors.As(got, &e) || !strings.Contains(e.Hint, "QueryExecModeExec") || !errors.Is(got, store.ErrPermanent) {
		t.Errorf("%#v", got)
	}
	t.Log(got)
}

// TestRace_BatchesOfSettlementsAndTakeovers: of an owner whose lease is over and
// its successor, each record has one winner, and both know it.
func TestRace_BatchesOfSettlementsAndTakeovers(t *testing.T) {
	st, _ := traced(t, direct(t), 4)
	const size = 12
	old, taken := 0, 0
	for wave := range testenv.Size(150, 5000) {
		owners, next := batch(fmt.Sprint("wave-", wave), size), batch(fmt.Sprint("wave-", wave), size)
		for i := range owners {
			owners[i].Lease = time.Microsecond
		}
		claimAll(t, st, owners, store.Granted)
		var claims []store.Claim
		var settled []store.Status
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if claims, err = st.Claim(t.Context(), next); err != nil {
				t.Error(err)
			}
		})
		settled, err := st.Settle(t.Context(), settlements(owners, "old"))
		wg.Wait()
		if err != nil || t.Failed() {
			t.Fatal(err)
		}
		for i := range size {
			ok, granted := settled[i].Code == store.OK, claims[i].Verdict == store.Granted
			if ok == granted || !ok && settled[i].Code != store.Lost {
				t.Fatalf("wave %d: settled %+v, claimed %+v", wave, settled[i], claims[i])
			}
			want := store.Already
			if granted {
				taken++
				want = store.OK
			} else {
				old++
				next[i] = owners[i]
			}
			settle(t, st, settlement(&next[i], store.Succeed, "new"), want)
		}
	}
	t.Logf("%d kept by the owner, %d taken over", old, taken)
}
