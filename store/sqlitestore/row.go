package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// name is an ID in the spelling of the file.
type name struct{ scope, key, effect string }

func nameOf(id store.ID) name {
	var n name
	n.scope, n.key, n.effect = id.Encode()
	return n
}

func (n name) parent() name { return name{n.scope, n.key, ""} }

// row is a record with its place in the file.
type row struct {
	id  int64 // 0: there is no row
	rec rules.Record
	err error // the row cannot be understood
}

// rows are what the file has for some names, and what a transaction makes of
// it.
type rows map[name]*row

// at returns the row of n; one without a record stands for none.
func (rs rows) at(n name) *row {
	r := rs[n]
	if r == nil {
		r = &row{}
		rs[n] = r
	}
	return r
}

// parentOf returns the parent's record of an effect, nil for anything else.
func (rs rows) parentOf(n name) (*rules.Record, error) {
	if n.effect == "" {
		return nil, nil //nolint:nilnil // no parent is no error
	}
	p := rs.at(n.parent())
	return &p.rec, p.err
}

const columns = `r.id, r.scope, r.key, r.effect, r.state, r.failure, r.token, r.judge, r.parent,
	r.fence, r.starts, r.failures, r.crashes, r.took_over, r.lease_end, r.not_before, r.expires_at,
	r.fingerprint, r.delivery, r.holder, r.trace, r.payload, r.payload IS NOT NULL`

// load reads the rows of names, and of the parents of effects, in one
// statement and thus as of one instant.
func load(ctx context.Context, q querier, names []name) (rows, error) {
	out := make(rows, len(names))
	args := make([]any, 0, 3*len(names))
	add := func(n name) {
		if _, ok := out[n]; !ok {
			out[n] = &row{}
			args = append(args, n.scope, n.key, n.effect)
		}
	}
	for _, n := range names {
		add(n)
		if n.effect != "" {
			add(n.parent())
		}
	}
	found, err := q.QueryContext(ctx, loadStatement(len(out)), args...)
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // reading is over
	for found.Next() {
		n, r, err := scan(found)
		if err != nil {
			return nil, err
		}
		out[n] = r
	}
	return out, found.Err()
}

func loadStatement(n int) string {
	if n == 1 {
		return "SELECT " + columns + " FROM records r WHERE r.scope=? AND r.key=? AND r.effect=?"
	}
	// CROSS JOIN keeps the order: one look into the index for each name.
	return "WITH q(s, k, e) AS (VALUES " + strings.Repeat("(?,?,?),", n-1) + "(?,?,?)) SELECT " + columns +
		" FROM q CROSS JOIN records r ON r.scope=q.s AND r.key=q.k AND r.effect=q.e"
}

// scan reads one row. What is wrong with the content of a row goes into its
// err: it must not fail the neighbours. extra are further columns.
func scan(found *sql.Rows, extra ...any) (name, *row, error) {
	var (
		n                           name
		r                           row
		state, failure              int64
		token, judge, parent, print []byte
		lease, notBefore, expires   int64
		hasPayload                  bool
		rec                         = &r.rec
		dest                        = make([]any, 0, 24)
	)
	dest = append(dest, &r.id, &n.scope, &n.key, &n.effect, &state, &failure, &token, &judge, &parent,
		&rec.Fence, &rec.Starts, &rec.Failures, &rec.Crashes, &rec.TookOver, &lease, &notBefore, &expires,
		&print, &rec.Delivery, &rec.Holder, &rec.Trace, &rec.Payload, &hasPayload)
	if err := found.Scan(append(dest, extra...)...); err != nil {
		return n, nil, err
	}
	if hasPayload && rec.Payload == nil {
		rec.Payload = []byte{}
	}
	rec.LeaseEnd, rec.NotBefore, rec.ExpiresAt = fromMicros(lease), fromMicros(notBefore), fromMicros(expires)
	r.err = r.fill(state, failure, token, judge, parent, print)
	return n, &r, nil
}

// fill checks and sets the columns that have more than one kind of content.
func (r *row) fill(state, failure int64, token, judge, parent, print []byte) (err error) {
	if state < 1 || state > int64(store.StateFailed) || failure < 0 || failure > int64(store.FailedParked) ||
		(state == int64(store.StateFailed)) != (failure != 0) {
		return fmt.Errorf("sqlitestore: %w: state %d, failure %d", store.ErrIncompatible, state, failure)
	}
	r.rec.State, r.rec.Failure = store.State(state), store.Failure(failure)
	if !copyToken(&r.rec.Token, token) || !copyToken(&r.rec.Judge, judge) || !copyToken(&r.rec.Parent, parent) {
		return fmt.Errorf("sqlitestore: %w: token of a wrong length", store.ErrCorrupt)
	}
	if r.rec.Fingerprint, err = store.ParseFingerprint(print); err != nil {
		return fmt.Errorf("sqlitestore: fingerprint: %w", err)
	}
	return nil
}

func copyToken(t *store.Token, b []byte) bool {
	if len(b) == 0 { // none
		return true
	}
	return copy(t[:], b) == len(t) && len(b) == len(t)
}

const (
	insertRow = `INSERT INTO records (scope, key, effect, state, failure, token, judge, parent, fence, starts,
		failures, crashes, took_over, lease_end, not_before, expires_at, fingerprint, delivery, holder, trace, payload)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	updateRow = `UPDATE records SET state=?, failure=?, token=?, judge=?, parent=?, fence=?, starts=?,
		failures=?, crashes=?, took_over=?, lease_end=?, not_before=?, expires_at=?, fingerprint=?, delivery=?, holder=?,
		trace=?, payload=? WHERE id=?`
	dropEffects = `DELETE FROM records WHERE scope=? AND key=? AND effect<>''`
)

// save writes r back.
func save(ctx context.Context, c *sql.Conn, n name, r *row) error {
	rec := &r.rec
	args := make([]any, 0, 21)
	if r.id == 0 {
		args = append(args, n.scope, n.key, n.effect)
	}
	args = append(args, int64(rec.State), int64(rec.Failure), tokenBytes(&rec.Token), tokenBytes(&rec.Judge),
		tokenBytes(&rec.Parent), rec.Fence, rec.Starts, rec.Failures, rec.Crashes, rec.TookOver,
		micros(rec.LeaseEnd), micros(rec.NotBefore), micros(rec.ExpiresAt), rec.Fingerprint.Bytes(),
		rec.Delivery, rec.Holder, rec.Trace, rec.Payload)
	if r.id != 0 {
		_, err := c.ExecContext(ctx, updateRow, append(args, r.id)...)
		return err
	}
	res, err := c.ExecContext(ctx, insertRow, args...)
	if err != nil {
		return err
	}
	r.id, err = res.LastInsertId()
	return err
}

func tokenBytes(t *store.Token) []byte {
	if t.IsZero() {
		return nil
	}
	return t[:]
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// roundUp makes d a whole number of microseconds, never less than it was.
func roundUp(d time.Duration) time.Duration {
	r := d.Truncate(time.Microsecond)
	if r < d && r <= math.MaxInt64-time.Microsecond {
		r += time.Microsecond
	}
	return r
}
