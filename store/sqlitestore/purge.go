package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/secondrun/secondrun/store"
)

const (
	purgeLook   = 2000 // rows that one step reads
	purgeRemove = 250  // records that one step removes, effects on top
)

// Purge removes absent records and their effects. One step reads 2,000 rows at
// most and then holds the write lock for the removal of 250 records at most,
// some milliseconds. The space is used again; the file does not shrink.
func (s *Store) Purge(ctx context.Context, cursor string) (removed int, next string, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, "", err
	}
	var from int64
	if cursor != "" {
		if from, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return 0, "", fmt.Errorf("sqlitestore: purge: %w: malformed cursor", store.ErrPermanent)
		}
	}
	var p purge
	err = s.retry(ctx, "purge", func(ctx context.Context) error {
		return p.look(ctx, s.read, from, micros(s.clock()))
	})
	if err != nil {
		return 0, "", err
	}
	if p.last != 0 {
		next = strconv.FormatInt(p.last, 10)
	}
	if len(p.ids) == 0 {
		return 0, next, nil
	}
	err = s.transact(ctx, "purge", false, func(ctx context.Context, c *sql.Conn) error {
		removed, err = p.remove(ctx, c, micros(s.clock()))
		return err
	})
	if err != nil {
		return 0, "", err
	}
	return removed, next, nil
}

// gone is what rules.Record.Absent says, in SQL. Effects go with their parent.
const gone = `effect='' AND expires_at<=?1 AND NOT (state=1 AND lease_end>?1)`

type purge struct {
	ids  []any // what looked absent
	last int64 // where the next step starts, 0 after the last one
}

// look goes through the rows by their number.
func (p *purge) look(ctx context.Context, q querier, from, now int64) error {
	*p = purge{}
	found, err := q.QueryContext(ctx, `SELECT id, `+gone+` FROM records WHERE id>?2 ORDER BY id LIMIT ?3`,
		now, from, purgeLook)
	if err != nil {
		return err
	}
	defer found.Close() //nolint:errcheck // reading is over
	seen := 0
	for found.Next() {
		var id int64
		var absent bool
		if err := found.Scan(&id, &absent); err != nil {
			return err
		}
		if absent {
			p.ids = append(p.ids, id)
		}
		if seen++; seen == purgeLook || len(p.ids) == purgeRemove {
			p.last = id
			break
		}
	}
	return found.Err()
}

// remove looks again, now under the lock, and removes effects before parents.
func (p *purge) remove(ctx context.Context, c *sql.Conn, now int64) (int, error) {
	in := `id IN (` + strings.Repeat("?,", len(p.ids)-1) + `?)`
	args := append([]any{now}, p.ids...)
	total := 0
	for _, statement := range []string{
		`DELETE FROM records WHERE id IN (SELECT e.id FROM records p JOIN records e
			ON e.scope=p.scope AND e.key=p.key AND e.effect<>'' WHERE p.id IN (SELECT id FROM records WHERE ` + gone + ` AND ` + in + `))`,
		`DELETE FROM records WHERE ` + gone + ` AND ` + in,
	} {
		res, err := c.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return 0, err
		}
		total += int(n)
	}
	return total, nil
}
