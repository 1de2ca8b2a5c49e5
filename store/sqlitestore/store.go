// Package sqlitestore keeps records in one SQLite file: the durable store for
// a single host that needs no server. Any number of processes of that host may
// open the same file.
//
// The file belongs to the store. Open creates it (mode 0600) with its tables,
// and refuses a database that something else made or that a newer version of
// this package wrote. It must lie on a local file system: SQLite's write-ahead
// log needs shared memory and reliable file locks, and network file systems
// (NFS, SMB, most FUSE mounts) have neither.
//
// All processes must see one clock, which processes of one host do. If the
// host's clock is set forward, leases end early; if it is set back, they end
// late. Neither breaks the rule that one claim has one owner.
//
// SQLite has one writer at a time. Duplicates are answered from a read that
// waits for nobody and writes nothing; everything else is a short transaction,
// and with [Full] each transaction costs one flush of the disk, however many
// items it holds. Batches are what makes this store fast; see [Store.Limits].
package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/secondrun/secondrun/store"
)

// Durability says what a finished call survives.
type Durability uint8

// Durabilities.
const (
	// Full survives the loss of power: every transaction is flushed to the disk
	// before its call returns. It is the default.
	Full Durability = iota
	// Normal survives the end of the process, killed or not, but the last
	// moments before a loss of power or a crash of the operating system can be
	// missing. A lost settlement means that the handler runs again although
	// its message was acknowledged or its effect is done.
	Normal
)

// Options are the optional settings of [Open]. The zero value means the
// defaults.
type Options struct {
	// Durability is Full unless set to Normal.
	Durability Durability
	// Wait is how long a call waits for the write lock while other processes
	// hold it, before it gives up: Claim and Settle with an error, Renew with
	// [store.Locked]. A context that ends earlier ends the wait. Zero means
	// five seconds.
	Wait time.Duration
	// Audit is called for every successful use of [store.Admin] before the
	// call returns. It may be called concurrently. Nil means none.
	Audit func(store.Audit)
}

const (
	defaultWait = 5 * time.Second
	maxBatch    = 256 // items of one transaction
	readers     = 4   // connections for reads; they never wait for the writer
)

// Store is an open file. It implements [store.Store], [store.Pinger],
// [store.Limiter], [store.Inspector], [store.Counter], [store.Purger] and
// [store.Admin], and is safe for concurrent use.
type Store struct {
	read   *sql.DB
	write  *sql.DB // one connection
	turn   turnstile
	wait   time.Duration
	audit  func(store.Audit)
	now    func() time.Time // replaced by tests only
	closed atomic.Bool
}

// Open opens the file at path and creates it if it does not exist; the
// directory must exist. The error wraps [store.ErrPermanent] when waiting does
// not help: no permission, a read-only or damaged file, a database of something
// else; it wraps [store.ErrIncompatible] when a newer version wrote the file.
// Nil options mean the defaults. The caller closes the store.
func Open(ctx context.Context, path string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, failure("open", err)
	}
	if err := createFile(abs); err != nil {
		return nil, fmt.Errorf("sqlitestore: open: %w: %w", store.ErrPermanent, err)
	}
	s := &Store{wait: opts.Wait, audit: opts.Audit, now: time.Now}
	if s.wait <= 0 {
		s.wait = defaultWait
	}
	if s.read, s.write, err = connect(abs, opts.Durability); err != nil {
		return nil, failure("open", err)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("sqlitestore: open: %w: empty path", store.ErrPermanent)
	case path == ":memory:", strings.HasPrefix(path, "file:"):
		return fmt.Errorf("sqlitestore: open: %w: %q is not the path of a file; for records in memory use memstore",
			store.ErrPermanent, path)
	}
	return nil
}

// busyPoll is how long SQLite itself waits for a lock, in milliseconds. It is
// short because its pauses grow with the time waited, up to 100 ms; begin
// starts it anew and thus looks at least every 5 ms.
const busyPoll = 10

func connect(path string, d Durability) (read, write *sql.DB, err error) {
	sync := "FULL"
	if d == Normal {
		sync = "NORMAL"
	}
	q := url.Values{
		"mode": {"rw"}, // a file that was removed is an error, not a new empty one
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyPoll),
			"synchronous(" + sync + ")",
			"journal_size_limit(67108864)", // shrink a log that a long reader made grow
		},
	}
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
	if write, err = sql.Open("sqlite", dsn); err != nil {
		return nil, nil, err
	}
	write.SetMaxOpenConns(1)
	if read, err = sql.Open("sqlite", dsn); err != nil {
		return nil, nil, errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	return read, write, nil
}

// Close waits for running calls and closes the file. Calls that start later
// fail. Claims that are held stay held until their leases end.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	_ = s.turn.enter(context.Background(), false) // never fails without a deadline
	defer s.turn.leave()
	return errors.Join(s.read.Close(), s.write.Close())
}

// Limits tells the middleware to send one batch after the other: a second
// transaction could only wait for the first.
func (s *Store) Limits() store.Limits { return store.Limits{Parallel: 1, Batch: maxBatch} }

// Ping reads the version of the file.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.retry(ctx, "ping", func(ctx context.Context) error {
		v, err := readVersion(ctx, s.read)
		if err != nil {
			return err
		}
		return checkVersion(v)
	})
}

// usable says why a call must not start.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return fmt.Errorf("sqlitestore: %w: the store is closed", store.ErrPermanent)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	return nil
}

// clock returns the store's time with the precision that the file keeps.
func (s *Store) clock() time.Time { return s.now().Truncate(time.Microsecond) }
