package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"time"
)

// turnstile lets one goroutine of the process at a time go for the write lock,
// in the order of arrival, the urgent ones first. SQLite alone would let all
// of them poll, and a renewal could lose against claims for long.
type turnstile struct {
	mu     sync.Mutex
	taken  bool
	urgent []chan struct{}
	normal []chan struct{}
}

func (t *turnstile) enter(ctx context.Context, urgent bool) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	queue := &t.normal
	if urgent {
		queue = &t.urgent
	}
	mine := make(chan struct{})
	*queue = append(*queue, mine)
	t.mu.Unlock()

	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(*queue, mine)
	if i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it was our turn just now: pass it on
		t.leave()
	}
	return ctx.Err()
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&t.urgent, &t.normal} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = slices.Delete(*queue, 0, 1)
			return
		}
	}
	t.taken = false
}

// transact runs f inside a write transaction. The context bounds the wait for
// the lock only: once the lock is there the transaction is short, and stopping
// it half way would leave its outcome unknown for nothing.
func (s *Store) transact(ctx context.Context, op string, urgent bool,
	f func(ctx context.Context, c *sql.Conn) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := s.turn.enter(ctx, urgent); err != nil {
		return failure(op, errors.Join(errLocked, err))
	}
	defer s.turn.leave()
	if s.closed.Load() {
		return s.usable(ctx)
	}
	inner := context.WithoutCancel(ctx)
	c, err := s.write.Conn(inner)
	if err != nil {
		return failure(op, err)
	}
	defer c.Close() //nolint:errcheck // gives the connection back
	if err := begin(ctx, c); err != nil {
		return failure(op, err)
	}
	if err := f(inner, c); err != nil {
		rollback(inner, c)
		return failure(op, err)
	}
	if _, err := c.ExecContext(inner, "COMMIT"); err != nil {
		rollback(inner, c)
		return failure(op, err)
	}
	return nil
}

// begin waits for the write lock until ctx ends.
func begin(ctx context.Context, c *sql.Conn) error {
	for {
		_, err := c.ExecContext(context.WithoutCancel(ctx), "BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(errLocked, ctx.Err(), err)
		}
	}
}

// rollback ends the transaction; a connection that cannot do that is thrown
// away. SQLite ends some failed transactions by itself, which is an error of
// ROLLBACK too and costs a new connection.
func rollback(ctx context.Context, c *sql.Conn) {
	if _, err := c.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// retry repeats f, a read outside of a transaction, while the file is locked.
// Readers meet a lock only while another process recovers or removes the log.
func (s *Store) retry(ctx context.Context, op string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	for {
		err := f(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		if !isBusy(err) {
			return failure(op, err)
		}
		select {
		case <-ctx.Done():
			return failure(op, errors.Join(errLocked, ctx.Err(), err))
		case <-time.After(time.Millisecond):
		}
	}
}
