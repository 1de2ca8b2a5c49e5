package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

var (
	errNoToken  = errors.New("sqlitestore: the token is zero")
	errTooLarge = fmt.Errorf("sqlitestore: the payload is larger than %d bytes", store.MaxPayload)
)

// Claim looks first: what can be answered without a change is answered from a
// read. The rest is decided again, from a fresh read, in one transaction for
// each 256 items. A whole-call error that is not permanent can be answered by
// the same call again.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	out := make([]store.Claim, 0, len(reqs))
	for part := range slices.Chunk(reqs, maxBatch) {
		answers := make([]store.Claim, len(part))
		b := claims{reqs: part, names: make([]name, len(part)), out: answers}
		for i := range part {
			b.names[i] = nameOf(part[i].ID)
		}
		if err := s.claim(ctx, &b); err != nil {
			return nil, err
		}
		out = append(out, answers...)
	}
	return out, nil
}

// claims is one batch on its way.
type claims struct {
	reqs  []store.ClaimRequest
	names []name
	out   []store.Claim
	open  []int // indices of the items that are not decided
}

func (s *Store) claim(ctx context.Context, b *claims) error {
	var found rows
	err := s.retry(ctx, "claim", func(ctx context.Context) (err error) {
		found, err = load(ctx, s.read, b.names)
		return err
	})
	if err != nil {
		return err
	}
	b.look(found, s.clock())
	if len(b.open) == 0 {
		return nil
	}
	return s.transact(ctx, "claim", false, func(ctx context.Context, c *sql.Conn) error {
		return b.decide(ctx, c, s.clock())
	})
}

// look decides the items that change nothing. The record is judged as of the
// read, a moment ago; so is a claim that loses a race against this one.
func (b *claims) look(found rows, now time.Time) {
	var open *name // the last parent that was left open
	for i := range b.reqs {
		n := b.names[i]
		if open != nil && n.effect != "" && n.parent() == *open {
			b.open = append(b.open, i) // its parent may change before it
			continue
		}
		r := *found.at(n) // a copy: nothing is kept here
		var changed bool
		if b.out[i], changed = decideClaim(found, n, &r, &b.reqs[i], now); changed {
			b.open = append(b.open, i)
			if n.effect == "" {
				open = &b.names[i]
			}
		}
	}
}

// decide decides the open items and writes them.
func (b *claims) decide(ctx context.Context, c *sql.Conn, now time.Time) error {
	names := make([]name, len(b.open))
	for j, i := range b.open {
		names[j] = b.names[i]
	}
	found, err := load(ctx, c, names)
	if err != nil {
		return err
	}
	for j, i := range b.open {
		r := found.at(names[j])
		absent := r.rec.Absent(now)
		var changed bool
		if b.out[i], changed = decideClaim(found, names[j], r, &b.reqs[i], now); !changed {
			continue
		}
		if err := write(ctx, c, found, names[j], r, absent); err != nil {
			return err
		}
	}
	return nil
}

func decideClaim(found rows, n name, r *row, req *store.ClaimRequest, now time.Time) (store.Claim, bool) {
	parent, err := found.parentOf(n)
	if err = errors.Join(r.err, err); err != nil {
		return store.Claim{Err: err}, false
	}
	if req.Token.IsZero() {
		return store.Claim{Err: errNoToken}, false
	}
	exact := *req
	exact.Lease, exact.Retention = roundUp(req.Lease), roundUp(req.Retention)
	return rules.Claim(&r.rec, parent, &exact, now)
}

// write saves r. A record that begins a new life starts without the effects of
// the old one.
func write(ctx context.Context, c *sql.Conn, found rows, n name, r *row, absent bool) error {
	if n.effect == "" && absent {
		if r.id != 0 { // no row, no effects
			if _, err := c.ExecContext(ctx, dropEffects, n.scope, n.key); err != nil {
				return err
			}
		}
		for other := range found {
			if other.effect != "" && other.parent() == n {
				found[other] = &row{}
			}
		}
	}
	return save(ctx, c, n, r)
}

// Renew goes before waiting claims and settlements. When the write lock cannot
// be had in time, every item is answered with [store.Locked].
func (s *Store) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	out := make([]store.Status, 0, len(leases))
	for part := range slices.Chunk(leases, maxBatch) {
		answers, err := s.renew(ctx, part, roundUp(d))
		if err != nil {
			return nil, err
		}
		out = append(out, answers...)
	}
	return out, nil
}

func (s *Store) renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	out := make([]store.Status, len(leases))
	names := make([]name, len(leases))
	for i := range leases {
		names[i] = nameOf(leases[i].ID)
	}
	err := s.transact(ctx, "renew", true, func(ctx context.Context, c *sql.Conn) error {
		found, err := load(ctx, c, names)
		if err != nil {
			return err
		}
		now := s.clock()
		var ids []any
		for i := range leases {
			r := found.at(names[i])
			parent, err := found.parentOf(names[i])
			if err = errors.Join(r.err, err); err != nil {
				out[i] = store.Status{Err: err}
				continue
			}
			var changed bool
			if out[i], changed = rules.Renew(&r.rec, parent, &leases[i], d, now); changed {
				ids = append(ids, r.id)
			}
		}
		return extend(ctx, c, ids, now.Add(d))
	})
	if errors.Is(err, errLocked) {
		return locked(out, s.clock()), nil // nothing was begun
	}
	return out, err
}

func locked(out []store.Status, now time.Time) []store.Status {
	for i := range out {
		out[i] = store.Status{Code: store.Locked, At: now}
	}
	return out
}

// extend does to the rows what rules.Renew did to the records, all in one
// statement.
func extend(ctx context.Context, c *sql.Conn, ids []any, end time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := c.ExecContext(ctx, `UPDATE records SET lease_end=?1, expires_at=max(expires_at, ?1) WHERE id IN (`+
		strings.Repeat("?,", len(ids)-1)+"?)", append([]any{micros(end)}, ids...)...)
	return err
}

// Settle settles the items in one transaction for each 256.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	out := make([]store.Status, 0, len(settlements))
	for part := range slices.Chunk(settlements, maxBatch) {
		answers, err := s.settle(ctx, part)
		if err != nil {
			return nil, err
		}
		out = append(out, answers...)
	}
	return out, nil
}

func (s *Store) settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	out := make([]store.Status, len(settlements))
	names := make([]name, len(settlements))
	for i := range settlements {
		names[i] = nameOf(settlements[i].ID)
	}
	err := s.transact(ctx, "settle", false, func(ctx context.Context, c *sql.Conn) error {
		found, err := load(ctx, c, names)
		if err != nil {
			return err
		}
		now := s.clock()
		for i := range settlements {
			r := found.at(names[i])
			absent := r.rec.Absent(now)
			var changed bool
			if out[i], changed = decideSettle(found, names[i], r, &settlements[i], now); !changed {
				continue
			}
			if err := write(ctx, c, found, names[i], r, absent); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func decideSettle(found rows, n name, r *row, st *store.Settlement, now time.Time) (store.Status, bool) {
	parent, err := found.parentOf(n)
	switch err = errors.Join(r.err, err); {
	case err != nil:
		return store.Status{Err: err}, false
	case st.Token.IsZero():
		return store.Status{Err: errNoToken}, false
	case len(st.Payload) > store.MaxPayload:
		return store.Status{Err: errTooLarge}, false
	}
	exact := *st
	exact.NotBefore, exact.Retention = roundUp(st.NotBefore), roundUp(st.Retention)
	return rules.Settle(&r.rec, parent, &exact, now)
}
