package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, id store.ID) (rec store.Record, ok bool, err error) {
	if err := s.usable(ctx); err != nil {
		return rec, false, err
	}
	n := nameOf(id)
	var r *row
	var parent *rules.Record
	err = s.retry(ctx, "get", func(ctx context.Context) (err error) {
		r, parent, err = find(ctx, s.read, n, s.clock())
		return err
	})
	if err != nil || r == nil {
		return rec, false, err
	}
	return shown(n, r, parent), true, nil
}

// shown is what an operator sees of r. An effect lives as long as its parent.
func shown(n name, r *row, parent *rules.Record) store.Record {
	rec := &r.rec
	out := store.Record{
		ID: store.DecodeID(n.scope, n.key, n.effect), State: rec.State, Failure: rec.Failure, Fence: rec.Fence,
		Starts: rec.Starts, Failures: rec.Failures, Crashes: rec.Crashes,
		ExpiresAt: rec.ExpiresAt, Fingerprint: rec.Fingerprint,
		Delivery: rec.Delivery, Holder: rec.Holder, Trace: rec.Trace, Payload: rec.Payload,
	}
	if parent != nil {
		out.ExpiresAt = parent.ExpiresAt
	}
	if rec.State == store.StateClaimed {
		out.LeaseUntil = rec.LeaseEnd
	} else {
		out.NotBefore = rec.NotBefore
	}
	return out
}

const (
	defaultPage = 100
	maxPage     = 1000
)

const listStatement = `SELECT ` + columns + `, coalesce(p.state, 0), coalesce(p.lease_end, 0), coalesce(p.expires_at, 0)
	FROM records r LEFT JOIN records p ON r.effect<>'' AND p.scope=r.scope AND p.key=r.key AND p.effect=''
	WHERE r.scope=? AND (r.key, r.effect) > (?, ?) ORDER BY r.key, r.effect LIMIT ?`

// List implements [store.Inspector]. The order is that of the stored spelling
// of key and effect.
func (s *Store) List(ctx context.Context, q store.ListQuery) (page []store.Record, next string, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	if q.Limit <= 0 {
		q.Limit = defaultPage
	}
	q.Limit = min(q.Limit, maxPage)
	key, effect, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	scope, _, _ := store.ID{Scope: q.Scope}.Encode()
	err = s.retry(ctx, "list", func(ctx context.Context) error {
		found, err := s.read.QueryContext(ctx, listStatement, scope, key, effect, q.Limit)
		if err != nil {
			return err
		}
		defer found.Close() //nolint:errcheck // reading is over
		page, next, err = readPage(found, q, s.clock())
		return err
	})
	return page, next, err
}

func readPage(found *sql.Rows, q store.ListQuery, now time.Time) (page []store.Record, next string, err error) {
	seen := 0
	for found.Next() {
		var parent rules.Record
		var lease, expires int64
		n, r, err := scan(found, &parent.State, &lease, &expires)
		if err != nil {
			return nil, "", err
		}
		if r.err != nil {
			return nil, "", fmt.Errorf("record %s: %w", store.DecodeID(n.scope, n.key, n.effect).KeyHash(), r.err)
		}
		if seen++; seen == q.Limit {
			next = formatCursor(n)
		}
		parent.LeaseEnd, parent.ExpiresAt = fromMicros(lease), fromMicros(expires)
		if absent(n, r, &parent, now) || q.State != 0 && r.rec.State != q.State {
			continue
		}
		p := &parent
		if n.effect == "" {
			p = nil
		}
		page = append(page, shown(n, r, p))
	}
	return page, next, found.Err()
}

// The stored spelling has no control characters, so NUL can separate.
func formatCursor(n name) string {
	return base64.RawURLEncoding.EncodeToString([]byte(n.key + "\x00" + n.effect))
}

func parseCursor(cursor string) (key, effect string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	key, effect, ok := strings.Cut(string(b), "\x00")
	if err != nil || !ok {
		return "", "", fmt.Errorf("sqlitestore: list: %w: malformed cursor", store.ErrPermanent)
	}
	return key, effect, nil
}
