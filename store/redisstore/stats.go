package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

var _ store.Counter = (*Store)(nil)

// Stats implements [store.Counter]. It is expensive: it walks all keys of the
// database, those of others too, with SCAN, a thousand at a time, and reads the
// head of every record of the scope: about 2.5 µs a record on loopback
// (BenchmarkStats), in steps of a millisecond. Redis removes records by
// itself, so Expired is 0 or nearly so. A record can be counted twice while the
// server shrinks its key table. Ask every few minutes at most, and from one
// process.
func (s *Store) Stats(ctx context.Context, scope string) (store.Stats, error) {
	var out store.Stats
	nodes, err := s.masters(ctx)
	if err != nil {
		return out, err
	}
	for _, n := range nodes {
		if err := s.countNode(ctx, n.client, scope, &out); err != nil {
			return store.Stats{}, err
		}
	}
	return out, nil
}

func (s *Store) countNode(ctx context.Context, c redis.UniversalClient, scope string, out *store.Stats) error {
	now, err := c.Time(ctx).Result()
	if err != nil {
		return classify(err)
	}
	var cursor uint64
	for {
		var keys []string
		keys, cursor, err = c.Scan(ctx, cursor, s.pattern(scope), scanCount).Result()
		if err != nil {
			return classify(err)
		}
		slices.Sort(keys)
		if err := s.countKeys(ctx, c, slices.Compact(keys), now.UnixMicro(), out); err != nil {
			return err
		}
		if cursor == 0 {
			return nil
		}
	}
}

func (s *Store) countKeys(ctx context.Context, c redis.UniversalClient, keys []string, now int64, out *store.Stats) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := c.Pipeline()
	heads := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		heads[i] = pipe.GetRange(ctx, key, 0, headerSize-1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return classify(err)
	}
	for i, head := range heads {
		v := head.Val()
		if v == "" { // gone meanwhile
			continue
		}
		r, _, err := header(v)
		if err != nil {
			return fmt.Errorf("%w (Redis key %q)", err, keys[i])
		}
		if now >= r.ends() {
			out.Expired++
			continue
		}
		out.Add(r.state, r.failure, 1)
		if r.state == store.StateClaimed {
			out.Overdue = max(out.Overdue, time.Duration(now-r.until)*time.Microsecond)
		}
	}
	return nil
}
