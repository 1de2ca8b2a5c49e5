package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

const (
	// maxSingles is the largest batch that is sent as that many statements in
	// one round trip: up to here that costs the server less than the statement
	// for many.
	maxSingles = 4
	// maxTries is how often a claim is judged anew after it has met another
	// one. The first has always been enough to see a row that the other one has
	// inserted; the others, a millisecond or a few apart, give a row that
	// another claim has locked the time to be committed. A row that a handler
	// has locked stays so.
	maxTries = 4
	// contended is how long a claim is told to wait that met others in every
	// try, or a row that somebody has locked.
	contended = 50 * time.Millisecond
)

// Claim implements [store.Store] with one round trip for up to 256 requests.
// Another one is added where single claims find a record that they have to
// change (a takeover, a retry), and where claims meet others of the same keys
// at the same instant.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	out := make([]store.Claim, len(reqs))
	items := make([]int, 0, len(reqs))
	for i := range reqs {
		if out[i].Err = checkClaim(&reqs[i]); out[i].Err == nil {
			items = append(items, i)
		}
	}
	for len(items) > 0 {
		n := min(len(items), maxBatch)
		if err := s.claimChunk(ctx, reqs, out, items[:n]); err != nil {
			return nil, wrap("claim", err)
		}
		items = items[n:]
	}
	return out, nil
}

func checkClaim(r *store.ClaimRequest) error {
	switch {
	case r.Token.IsZero():
		return invalid("the token is zero")
	case r.Lease <= 0:
		return invalid("the lease is not positive")
	case len(r.Delivery) > store.MaxText || len(r.Holder) > store.MaxText || len(r.Trace) > store.MaxText:
		return invalid(fmt.Sprintf("Delivery, Holder or Trace is longer than %d bytes", store.MaxText))
	}
	return nil
}

func invalid(what string) error { return fmt.Errorf("pgstore: %s: %w", what, store.ErrPermanent) }

// claimChunk decides the requests that items names. The first try is the cheap
// one, see claimHotText. Those that met somebody else in every try are busy.
func (s *Store) claimChunk(ctx context.Context, reqs []store.ClaimRequest, out []store.Claim, items []int) error {
	for try := range 1 + maxTries {
		var open []int
		err := isolated(ctx, func() (err error) {
			open, err = s.claimOnce(ctx, reqs, out, items, try == 0)
			return err
		})
		if sqlState(err) == codeLockTimeout {
			return s.claimBlocked(ctx, reqs, out, items)
		}
		if err != nil || len(open) == 0 {
			return err
		}
		if items = open; try > 0 && try < maxTries {
			if err := pause(ctx, backoff(try)); err != nil {
				return err
			}
		}
	}
	return nil // out says busy
}

// claimBlocked is for a call that has waited too long for the end of another
// transaction's insert. One by one, only the request that meets it is busy.
func (s *Store) claimBlocked(ctx context.Context, reqs []store.ClaimRequest, out []store.Claim, items []int) error {
	if len(items) == 1 {
		c := store.Claim{Verdict: store.Busy, Remaining: contended}
		err := s.work.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&c.At)
		out[items[0]] = c
		return err
	}
	for k := range items {
		if err := s.claimChunk(ctx, reqs, out, items[k:k+1]); err != nil {
			return err
		}
	}
	return nil
}

// claimOnce sends the requests that items names and returns those that have to
// be sent again; out has busy for them.
func (s *Store) claimOnce(ctx context.Context, reqs []store.ClaimRequest, out []store.Claim, items []int, hot bool) ([]int, error) {
	rows := make([]claimRow, len(items))
	var err error
	switch {
	case len(items) > maxSingles:
		err = s.claimMany(ctx, reqs, items, rows)
	case len(items) == 1:
		sql, args := s.claimSingle(&reqs[items[0]], hot)
		err = rows[0].scan(s.work.QueryRow(ctx, sql, args...))
	default:
		b := &pgx.Batch{}
		for _, i := range items {
			sql, args := s.claimSingle(&reqs[i], hot)
			b.Queue(sql, args...)
		}
		err = sendBatch(ctx, s.work, b, func(k int, r pgx.Row) error { return rows[k].scan(r) })
	}
	if err != nil {
		return nil, err
	}
	var again []int
	for k, i := range items {
		out[i] = rows[k].claim(&reqs[i])
		if rows[k].open() {
			again = append(again, i)
		}
	}
	return again, nil
}

// claimSingle returns the statement for one request.
func (s *Store) claimSingle(r *store.ClaimRequest, hot bool) (sql string, args []any) {
	scope, key, effect := r.ID.Encode()
	if hot && effect == "" {
		return s.sql.claimHot, []any{
			scope, key, r.Token[:], micros(r.Lease), micros(r.Retention), count(r.MaxFailures), count(r.MaxCrashes),
			r.KeepFailures, r.Fingerprint.Bytes(), text(r.Delivery), text(r.Holder), text(r.Trace),
		}
	}
	return s.sql.claimOne, []any{
		scope, key, effect, r.Token[:], micros(r.Lease), micros(r.Retention), count(r.MaxFailures), count(r.MaxCrashes),
		r.ParkOnTakeover, r.KeepFailures, r.Fingerprint.Bytes(), text(r.Delivery), r.Parent[:], text(r.Holder), text(r.Trace),
	}
}

// sendBatch reads one row for each statement. The statements of a batch are one
// transaction: its answers count only when the whole of it was committed, which
// Close reports.
func sendBatch(ctx context.Context, db querier, b *pgx.Batch, scan func(k int, r pgx.Row) error) error {
	res := db.SendBatch(ctx, b)
	for k := range b.Len() {
		if err := scan(k, res.QueryRow()); err != nil {
			_ = res.Close() // reports the same error
			return err
		}
	}
	return res.Close()
}

func (s *Store) claimMany(ctx context.Context, reqs []store.ClaimRequest, items []int, rows []claimRow) error {
	res, err := s.work.Query(ctx, s.sql.claimMany, claimColumns(reqs, items)...)
	if err != nil {
		return err
	}
	defer res.Close()
	for res.Next() {
		var row claimRow
		if err := row.scan(res); err != nil {
			return err
		}
		rows[row.ord-1] = row
	}
	return res.Err()
}

func claimColumns(reqs []store.ClaimRequest, items []int) []any {
	n := len(items)
	scopes, keys, effects := make([]string, n), make([]string, n), make([]string, n)
	tokens, parents, fingerprints := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	leases, retentions := make([]int64, n), make([]int64, n)
	failures, crashes := make([]int32, n), make([]int32, n)
	park, keep := make([]bool, n), make([]bool, n)
	deliveries, holders, traces := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for k, i := range items {
		r := &reqs[i]
		scopes[k], keys[k], effects[k] = r.ID.Encode()
		tokens[k], parents[k], fingerprints[k] = r.Token[:], r.Parent[:], r.Fingerprint.Bytes()
		leases[k], retentions[k] = micros(r.Lease), micros(r.Retention)
		failures[k], crashes[k] = count(r.MaxFailures), count(r.MaxCrashes)
		park[k], keep[k] = r.ParkOnTakeover, r.KeepFailures
		deliveries[k], holders[k], traces[k] = text(r.Delivery), text(r.Holder), text(r.Trace)
	}
	return []any{
		scopes, keys, effects, tokens, leases, retentions, failures, crashes, park, keep,
		fingerprints, deliveries, parents, holders, traces,
	}
}

// text returns s as a bytea: it may hold what a text column refuses. Empty is
// null.
func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// micros returns d in microseconds, rounded up. What is longer than a hundred
// years is cut there, so that no instant leaves the server's range.
func micros(d time.Duration) int64 {
	const limit = 100 * 365 * 24 * time.Hour
	if d >= limit {
		return limit.Microseconds()
	}
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func count(n int) int32 {
	return int32(max(0, min(n, math.MaxInt32))) //nolint:gosec // bounded
}

// claimRow is a row of claimText: the record as it was before the claim.
type claimRow struct {
	ord      int64
	act      int32
	written  bool
	now      time.Time
	fence    int64
	starts   int32
	failures int32
	crashes  int32
	failure  int16
	tookOver bool
	until    time.Time // end of the lease, or of the wait

	holder, trace, payload []byte
}

// scan reads a row. None at all, which claimHotText can answer with, leaves the
// row open.
func (r *claimRow) scan(row pgx.Row) error {
	err := row.Scan(&r.ord, &r.act, &r.written, &r.now, &r.fence, &r.starts, &r.failures, &r.crashes, &r.failure,
		&r.tookOver, &r.until, &r.holder, &r.trace, &r.payload)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// open reports whether the claim was to write and has not.
func (r *claimRow) open() bool { return r.act < actWrites && !r.written }

// claim makes the answer to req.
func (r *claimRow) claim(req *store.ClaimRequest) store.Claim {
	c := store.Claim{
		Fence: r.fence, Starts: int(r.starts), Failures: int(r.failures), Crashes: int(r.crashes),
		Failure: store.Failure(r.failure), //nolint:gosec // 0 to 4, else actUnknown
		Holder:  string(r.holder), Trace: string(r.trace), Payload: r.payload, At: r.now,
	}
	if r.open() {
		return store.Claim{Verdict: store.Busy, Remaining: contended, At: r.now}
	}
	switch r.act {
	case actFresh, actGrant, actReset, actTakeover:
		return r.granted(req, c)
	case actAgain:
		c.Verdict, c.Takeover, c.Remaining = store.Granted, r.tookOver, r.until.Sub(r.now)
		c.Holder, c.Trace = "", ""
	case actDone:
		c.Verdict = store.Done
	case actLeased, actWaiting:
		c.Verdict, c.Remaining = store.Busy, r.until.Sub(r.now)
	case actFailed:
		c.Verdict = store.Failed
	case actPark:
		c.Verdict, c.Failure = store.Failed, store.FailedParked
	case actExhaust, actExhausted:
		c.Verdict, c.Failure = store.Exhausted, store.FailedExhausted
	case actConflict:
		c.Verdict, c.Failure, c.Holder, c.Trace = store.Conflict, 0, "", ""
	case actRefused:
		return store.Claim{Verdict: store.Refused, At: r.now}
	default:
		return store.Claim{Err: fmt.Errorf("pgstore: %w", store.ErrIncompatible)}
	}
	return c
}

func (r *claimRow) granted(req *store.ClaimRequest, c store.Claim) store.Claim {
	c.Verdict, c.Failure, c.Remaining = store.Granted, 0, req.Lease
	if r.act != actTakeover {
		c.Holder, c.Trace = "", ""
	}
	c.Fence++
	c.Starts++
	switch r.act {
	case actFresh:
		c.Fence, c.Starts, c.Failures, c.Crashes = 1, 1, 0, 0
	case actReset:
		c.Failures, c.Crashes = 0, 0
	case actTakeover:
		c.Crashes++
		c.Takeover = true
	}
	return c
}
