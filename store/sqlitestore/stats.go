package sqlitestore

import (
	"context"
	"time"

	"github.com/secondrun/secondrun/store"
)

var _ store.Counter = (*Store)(nil)

const statsStatement = `SELECT state, failure, expires_at <= ?2 AND NOT (state = 1 AND lease_end > ?2) AS gone, count(*), min(lease_end)
	FROM records WHERE scope = ?1 AND effect = '' GROUP BY 1, 2, 3`

// Stats implements [store.Counter]. It reads every row of the scope, which
// keeps no writer waiting: about 0.9 µs a record in the page cache
// (BenchmarkStats).
func (s *Store) Stats(ctx context.Context, scope string) (out store.Stats, err error) {
	if err := s.usable(ctx); err != nil {
		return out, err
	}
	scope, _, _ = store.ID{Scope: scope}.Encode()
	err = s.retry(ctx, "stats", func(ctx context.Context) error {
		out = store.Stats{}
		now := micros(s.clock())
		rows, err := s.read.QueryContext(ctx, statsStatement, scope, now)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // reading is over
		for rows.Next() {
			var state store.State
			var failure store.Failure
			var gone bool
			var n, lease int64
			if err := rows.Scan(&state, &failure, &gone, &n, &lease); err != nil {
				return err
			}
			switch {
			case gone:
				out.Expired += n
				continue
			case state == store.StateClaimed:
				out.Overdue = max(out.Overdue, time.Duration(now-lease)*time.Microsecond)
			}
			out.Add(state, failure, n)
		}
		return rows.Err()
	})
	return out, err
}
