package lincheck

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/secondrun/secondrun/store"
)

// Spread returns a store that sends its calls to several clients of the same
// records in turn, as processes do that share a database. It implements
// [store.Admin] and [store.Inspector], which the clients must do too, and
// [store.Purger], which does nothing where the clients do not.
func Spread(clients ...store.Store) store.Store { return &spread{clients: clients} }

type spread struct {
	clients []store.Store
	n       atomic.Uint64
}

var errMissing = errors.New("lincheck: the client does not implement it")

func (s *spread) next() store.Store {
	return s.clients[s.n.Add(1)%uint64(len(s.clients))]
}

func (s *spread) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	return s.next().Claim(ctx, reqs)
}

func (s *spread) Renew(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	return s.next().Renew(ctx, leases, d)
}

func (s *spread) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Status, error) {
	return s.next().Settle(ctx, settlements)
}

func (s *spread) Get(ctx context.Context, id store.ID) (rec store.Record, ok bool, err error) {
	if i, has := s.next().(store.Inspector); has {
		return i.Get(ctx, id)
	}
	return rec, false, errMissing
}

func (s *spread) List(ctx context.Context, q store.ListQuery) (page []store.Record, next string, err error) {
	if i, has := s.next().(store.Inspector); has {
		return i.List(ctx, q)
	}
	return nil, "", errMissing
}

func (s *spread) Reopen(ctx context.Context, id store.ID, reason string) (bool, error) {
	if a, has := s.next().(store.Admin); has {
		return a.Reopen(ctx, id, reason)
	}
	return false, errMissing
}

func (s *spread) Forget(ctx context.Context, id store.ID, reason string) (bool, error) {
	if a, has := s.next().(store.Admin); has {
		return a.Forget(ctx, id, reason)
	}
	return false, errMissing
}

func (s *spread) ForceRelease(ctx context.Context, id store.ID, reason string) (bool, error) {
	if a, has := s.next().(store.Admin); has {
		return a.ForceRelease(ctx, id, reason)
	}
	return false, errMissing
}

func (s *spread) Purge(ctx context.Context, cursor string) (removed int, next string, err error) {
	if p, has := s.next().(store.Purger); has {
		return p.Purge(ctx, cursor)
	}
	return 0, "", nil
}
