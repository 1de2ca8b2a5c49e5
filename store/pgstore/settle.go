package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

const (
	// settleTries is how often a settlement is judged anew that met a row in
	// the middle of a change. Renewals, the only changes that happen to a claim
	// again and again, are seconds apart.
	settleTries = 10
	// maxBytes is the size of the payloads in one statement.
	maxBytes = 4 << 20
)

var errChanging = errors.New("the record changed during every try")

// Settle implements [store.Store] with one round trip for up to 256
// settlements and 4 MiB of payload; where there is nothing to be settled, up to
// four settlements take another one each to find out why. A settlement waits for a transaction that
// has its record locked, for at most Options.LockTimeout; then its item fails
// with a retryable error. It does not make the other items wait.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	run := settling{db: s.work, sql: &s.sql.settle, retry: true, in: settlements, out: make([]store.Status, len(settlements))}
	items := make([]int, 0, len(settlements))
	for i := range settlements {
		if run.out[i].Err = checkSettlement(&settlements[i]); run.out[i].Err == nil {
			items = append(items, i)
		}
	}
	for len(items) > 0 {
		n := run.chunk(items)
		if err := run.settle(ctx, items[:n]); err != nil {
			return nil, wrap("settle", err)
		}
		items = items[n:]
	}
	return run.out, nil
}

func checkSettlement(s *store.Settlement) error {
	switch {
	case s.Token.IsZero():
		return invalid("the token is zero")
	case s.Kind < store.Succeed || s.Kind > store.Park:
		return invalid(fmt.Sprintf("there is no settlement of kind %d", s.Kind))
	case len(s.Payload) > store.MaxPayload:
		return invalid(fmt.Sprintf("the payload is longer than %d bytes", store.MaxPayload))
	}
	return nil
}

// settling is the state of one call.
type settling struct {
	db    querier
	sql   *settleTexts
	retry bool // every statement is a transaction of its own and can be repeated
	in    []store.Settlement
	out   []store.Status
}

// chunk returns how many of the items travel together.
func (r *settling) chunk(items []int) int {
	size := 0
	for n, i := range items {
		size += len(r.in[i].Payload)
		if n == maxBatch || n > 0 && size > maxBytes {
			return n
		}
	}
	return len(items)
}

// settle settles the items together as far as that goes, and what is then
// left, because it was locked or in the middle of a change, one by one.
func (r *settling) settle(ctx context.Context, items []int) error {
	hot := len(items) == 1
	if !hot {
		open, err := r.together(ctx, items)
		if err != nil {
			return err
		}
		items = open
	}
	for _, i := range items {
		err := r.single(ctx, i, hot)
		if sqlState(err) == codeLockTimeout && r.retry {
			r.out[i] = store.Status{Err: wrap("settle", err)}
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *settling) together(ctx context.Context, items []int) ([]int, error) {
	rows := make([]settleRow, len(items))
	err := r.isolated(ctx, func() error {
		if len(items) <= maxSingles {
			return r.sendSingles(ctx, items, rows)
		}
		return r.sendMany(ctx, items, rows)
	})
	if sqlState(err) == codeLockTimeout {
		return items, nil // all of it was rolled back
	}
	if err != nil {
		return nil, err
	}
	var open []int
	for k, i := range items {
		if !rows[k].final() {
			open = append(open, i)
			continue
		}
		r.out[i] = rows[k].status()
	}
	return open, nil
}

// single settles one item, however often that has to be tried; at first, if hot
// is set, with the statement for a claim that is there to be settled.
func (r *settling) single(ctx context.Context, i int, hot bool) error {
	for try := 1; try <= settleTries; try++ {
		row, err := r.sendSingle(ctx, i, hot)
		if err != nil {
			return err
		}
		if row.final() {
			r.out[i] = row.status()
			return nil
		}
		if hot {
			hot = false
			continue
		}
		if err := pause(ctx, backoff(try)); err != nil {
			return err
		}
	}
	r.out[i] = store.Status{Err: wrap("settle", errChanging)}
	return nil
}

func (r *settling) sendSingle(ctx context.Context, i int, hot bool) (settleRow, error) {
	var row settleRow
	text := r.sql.one
	if hot {
		text = r.sql.hot
	}
	err := r.isolated(ctx, func() error {
		row = settleRow{}
		err := row.scanOne(r.db.QueryRow(ctx, text, settleArgs(&r.in[i])...))
		if err == nil && row.act == actCreate {
			rows := make([]settleRow, 1)
			err = r.sendMany(ctx, []int{i}, rows)
			row = rows[0]
		}
		return err
	})
	return row, err
}

func (r *settling) isolated(ctx context.Context, once func() error) error {
	if !r.retry {
		return once()
	}
	return isolated(ctx, once)
}

func (r *settling) sendSingles(ctx context.Context, items []int, rows []settleRow) error {
	b := &pgx.Batch{}
	for _, i := range items {
		b.Queue(r.sql.hot, settleArgs(&r.in[i])...)
	}
	return sendBatch(ctx, r.db, b, func(k int, row pgx.Row) error { return rows[k].scanOne(row) })
}

func (r *settling) sendMany(ctx context.Context, items []int, rows []settleRow) error {
	res, err := r.db.Query(ctx, r.sql.many, r.columns(items)...)
	if err != nil {
		return err
	}
	defer res.Close()
	for res.Next() {
		var ord int64
		var row settleRow
		if err := res.Scan(&ord, &row.act, &row.written, &row.now, &row.state, &row.failure); err != nil {
			return err
		}
		rows[ord-1] = row
	}
	return res.Err()
}

func settleArgs(s *store.Settlement) []any {
	scope, key, effect := s.ID.Encode()
	state, failure := outcome(s.Kind)
	return []any{
		scope, key, effect, s.Token[:], state, failure, payload(s), notBefore(s), micros(s.Retention),
	}
}

func (r *settling) columns(items []int) []any {
	n := len(items)
	scopes, keys, effects := make([]string, n), make([]string, n), make([]string, n)
	tokens, payloads := make([][]byte, n), make([][]byte, n)
	states, failures := make([]int16, n), make([]int16, n)
	waits, retentions := make([]int64, n), make([]int64, n)
	for k, i := range items {
		s := &r.in[i]
		scopes[k], keys[k], effects[k] = s.ID.Encode()
		states[k], failures[k] = outcome(s.Kind)
		tokens[k], payloads[k] = s.Token[:], payload(s)
		waits[k], retentions[k] = notBefore(s), micros(s.Retention)
	}
	return []any{scopes, keys, effects, tokens, states, failures, payloads, waits, retentions}
}

// outcome returns the state and the failure that a settlement leaves.
func outcome(k store.Kind) (state, failure int16) {
	switch k {
	case store.Succeed:
		return int16(store.StateSucceeded), 0
	case store.Release:
		return int16(store.StateReleased), 0
	case store.Retry:
		return int16(store.StateFailed), int16(store.FailedTransient)
	case store.Fail:
		return int16(store.StateFailed), int16(store.FailedTerminal)
	default: // Park; checkSettlement refuses anything else
		return int16(store.StateFailed), int16(store.FailedParked)
	}
}

func payload(s *store.Settlement) []byte {
	if s.Kind == store.Release {
		return nil
	}
	return s.Payload
}

func notBefore(s *store.Settlement) int64 {
	if s.Kind != store.Retry && s.Kind != store.Release {
		return 0
	}
	return micros(s.NotBefore)
}

// settleRow is a row of the settle statements: what was found and done.
type settleRow struct {
	act     int32
	written bool
	now     time.Time
	state   int16
	failure int16
}

// scanOne reads a row. None at all, which settleHotText can answer with, leaves
// the row open.
func (r *settleRow) scanOne(row pgx.Row) error {
	err := row.Scan(&r.act, &r.written, &r.now, &r.state, &r.failure)
	if errors.Is(err, pgx.ErrNoRows) {
		r.act, r.written = actSettle, false
		return nil
	}
	return err
}

// final reports whether there is an answer.
func (r *settleRow) final() bool {
	return r.written || r.act != actSettle && r.act != actCreate
}

func (r *settleRow) status() store.Status {
	switch r.act {
	case actSettle:
		return store.Status{Code: store.OK, At: r.now}
	case actCreate, actAbsent:
		return store.Status{Code: store.Absent, At: r.now}
	case actLost:
		return store.Status{Code: store.Lost, At: r.now}
	case actAlready:
		return already(r.now, r.state, r.failure)
	default:
		return store.Status{Err: wrap("settle", store.ErrIncompatible)}
	}
}
