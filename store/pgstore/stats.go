package pgstore

import (
	"context"
	"strings"
	"time"

	"github.com/secondrun/secondrun/store"
)

var _ store.Counter = (*Store)(nil)

const statsText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT t.state, t.failure, NOT {alive t} AS gone, count(*),
  coalesce(extract(epoch FROM max(c.now) - min(t.lease_end)), 0)::float8
FROM {table} t CROSS JOIN c
WHERE t.scope = $1::text AND t.effect = ''
GROUP BY 1, 2, 3`

// Stats implements [store.Counter]. It is one statement that reads every record
// of the scope, by a range scan of the primary key and of the rows: about
// 0.25 µs for a record that is in memory (BenchmarkStats), more when it must be
// read. It locks nothing, but a long scan holds back the cleaning up of old row
// versions. Ask once a minute at most, and from one process.
func (s *Store) Stats(ctx context.Context, scope string) (out store.Stats, err error) {
	scope, _, _ = store.ID{Scope: scope}.Encode()
	text := strings.NewReplacer("{table}", s.opts.table(), "{alive t}", alive("t")).Replace(statsText)
	err = isolated(ctx, func() (err error) {
		out, err = s.stats(ctx, text, scope)
		return err
	})
	return out, wrap("stats", err)
}

func (s *Store) stats(ctx context.Context, text, scope string) (out store.Stats, err error) {
	rows, err := s.work.Query(ctx, text, scope)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var state, failure int16
		var gone bool
		var n int64
		var overdue float64
		if err := rows.Scan(&state, &failure, &gone, &n, &overdue); err != nil {
			return out, err
		}
		if gone {
			out.Expired += n
			continue
		}
		st := already(time.Time{}, state, failure)
		if st.State == store.StateClaimed {
			out.Overdue = max(out.Overdue, time.Duration(overdue*float64(time.Second)))
		}
		out.Add(st.State, st.Failure, n)
	}
	return out, rows.Err()
}
