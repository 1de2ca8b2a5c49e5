package pgstore

import (
	"context"
	"time"

	"github.com/secondrun/secondrun/store"
)

// maxRenew is the number of leases in one statement.
const maxRenew = 1024

// Renew implements [store.Store] with one round trip for up to 1,024 leases. It
// waits for no lock, and after [Open] for no connection either.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	out := make([]store.Status, len(leases))
	for from := 0; from < len(leases); from += maxRenew {
		to := min(from+maxRenew, len(leases))
		err := isolated(ctx, func() error { return s.renewOnce(ctx, leases[from:to], d, out[from:to]) })
		if err != nil {
			return nil, wrap("renew", err)
		}
	}
	return out, nil
}

func (s *Store) renewOnce(ctx context.Context, leases []store.Lease, d time.Duration, out []store.Status) error {
	n := len(leases)
	scopes, keys, effects, tokens := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i := range leases {
		scopes[i], keys[i], effects[i] = leases[i].ID.Encode()
		tokens[i] = leases[i].Token[:]
	}
	rows, err := s.renew.Query(ctx, s.sql.renew, scopes, keys, effects, tokens, micros(d))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ord int64
		var mine, written bool
		var now time.Time
		var state, failure int16
		if err := rows.Scan(&ord, &mine, &written, &now, &state, &failure); err != nil {
			return err
		}
		out[ord-1] = renewed(mine, written, now, state, failure)
	}
	return rows.Err()
}

func renewed(mine, written bool, now time.Time, state, failure int16) store.Status {
	switch {
	case !mine:
		return store.Status{Code: store.Lost, At: now}
	case written:
		return store.Status{Code: store.OK, At: now}
	case store.State(state) == store.StateClaimed: //nolint:gosec // compared only
		return store.Status{Code: store.Locked, At: now}
	}
	return already(now, state, failure)
}

// already is the answer about a record that the same token has settled.
func already(now time.Time, state, failure int16) store.Status {
	if state < 1 || state > int16(store.StateFailed) || failure < 0 || failure > int16(store.FailedParked) {
		return store.Status{Err: wrap("read a record", store.ErrIncompatible)}
	}
	return store.Status{
		Code: store.Already, State: store.State(state), Failure: store.Failure(failure), //nolint:gosec // checked
		At: now,
	}
}
