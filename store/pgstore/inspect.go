package pgstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, id store.ID) (store.Record, bool, error) {
	var rec store.Record
	var found bool
	err := isolated(ctx, func() (err error) {
		rec, found, err = s.get(ctx, s.work, id)
		return err
	})
	return rec, found, wrap("get", err)
}

func (s *Store) get(ctx context.Context, db rowQuerier, id store.ID) (store.Record, bool, error) {
	scope, key, effect := id.Encode()
	rec, live, _, err := scanRecord(db.QueryRow(ctx, s.sql.get, scope, key, effect))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !live {
		return store.Record{}, false, nil
	}
	return rec, err == nil, err
}

// List implements [store.Inspector]. A page costs one range scan of the primary
// key over q.Limit rows, whatever the state asked for.
func (s *Store) List(ctx context.Context, q store.ListQuery) ([]store.Record, string, error) {
	if q.Scope == "" {
		return nil, "", invalid("a list needs a scope")
	}
	limit := min(q.Limit, 1000)
	if limit <= 0 {
		limit = 100
	}
	key, effect, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	var page []store.Record
	var next string
	err = isolated(ctx, func() (err error) {
		page, next, err = s.list(ctx, q, key, effect, limit)
		return err
	})
	return page, next, wrap("list", err)
}

func (s *Store) list(ctx context.Context, q store.ListQuery, key, effect string, limit int) ([]store.Record, string, error) {
	scope, _, _ := store.ID{Scope: q.Scope}.Encode()
	rows, err := s.work.Query(ctx, s.sql.list, scope, key, effect, int64(limit))
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	var page []store.Record
	var last store.ID
	n := 0
	for ; rows.Next(); n++ {
		rec, live, _, err := scanRecord(rows)
		if err != nil {
			return nil, "", err
		}
		last = rec.ID
		if live && (q.State == 0 || q.State == rec.State) {
			page = append(page, rec)
		}
	}
	if err := rows.Err(); err != nil || n < limit {
		return page, "", err
	}
	return page, cursor(last), nil
}

// A cursor is the key and the effect of the last row. Neither, as it is
// stored, has control characters.
const cursorSeparator = "\x1f"

func cursor(id store.ID) string {
	_, key, effect := id.Encode()
	return base64.RawURLEncoding.EncodeToString([]byte(key + cursorSeparator + effect))
}

func parseCursor(c string) (key, effect string, err error) {
	if c == "" {
		return "", "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(c)
	key, effect, ok := strings.Cut(string(b), cursorSeparator)
	if err != nil || !ok || strings.ContainsRune(string(b), 0) {
		return "", "", invalid("the cursor is not one that List has returned")
	}
	return key, effect, nil
}

// scanRecord reads a row of recordColumns, whether the record is not absent,
// and the server's clock.
func scanRecord(row pgx.Row) (rec store.Record, live bool, now time.Time, err error) {
	var scope, key, effect string
	var state, failure int16
	var starts, failures, crashes int32
	var notBefore *time.Time
	var fingerprint, delivery, holder, trace []byte
	err = row.Scan(&scope, &key, &effect, &state, &failure, &rec.Fence, &starts, &failures, &crashes,
		&rec.LeaseUntil, &notBefore, &rec.ExpiresAt, &fingerprint, &delivery, &holder, &trace, &rec.Payload, &live, &now)
	if err != nil {
		return rec, false, now, err
	}
	rec.ID = store.DecodeID(scope, key, effect)
	st := already(now, state, failure)
	rec.State, rec.Failure = st.State, st.Failure
	rec.Starts, rec.Failures, rec.Crashes = int(starts), int(failures), int(crashes)
	rec.Delivery, rec.Holder, rec.Trace = string(delivery), string(holder), string(trace)
	if rec.State != store.StateClaimed {
		rec.LeaseUntil = time.Time{}
	}
	if notBefore != nil && (rec.State == store.StateReleased || rec.Failure == store.FailedTransient) {
		rec.NotBefore = *notBefore
	}
	fp, fpErr := store.ParseFingerprint(fingerprint)
	rec.Fingerprint = fp
	if err := errors.Join(st.Err, fpErr); err != nil {
		return rec, live, now, fmt.Errorf("record %s: %w", rec.ID.KeyHash(), err)
	}
	return rec, live, now, nil
}

// purgeBlocks is the number of the table's blocks that one step looks at.
const purgeBlocks = 128

// Purge implements [store.Purger]. A step walks 128 blocks of the table (1 MiB)
// and takes a few milliseconds; the cursor is the number of the next block.
// Records that somebody has locked are left for the next cycle.
func (s *Store) Purge(ctx context.Context, cursor string) (removed int, next string, err error) {
	from, err := parseBlock(cursor)
	if err != nil {
		return 0, "", err
	}
	var blocks int64
	err = isolated(ctx, func() error {
		// Not prepared: a plan from the time when the table was empty would read
		// all of it to delete from 128 blocks.
		return s.work.QueryRow(ctx, s.sql.purge, pgx.QueryExecModeExec, tid(from), tid(from+purgeBlocks), s.opts.table()).
			Scan(&removed, &blocks)
	})
	if err != nil {
		return 0, "", wrap("purge", err)
	}
	if from+purgeBlocks < blocks {
		next = strconv.FormatInt(from+purgeBlocks, 10)
	}
	return removed, next, nil
}

func tid(block int64) string { return fmt.Sprintf("(%d,0)", block) }

func parseBlock(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cursor, 10, 31)
	if err != nil {
		return 0, invalid("the cursor is not one that Purge has returned")
	}
	return int64(n), nil //nolint:gosec // 31 bits
}
