package pgstore

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/store"
)

// Options are the optional settings. Nil and the zero value mean the defaults.
type Options struct {
	// Schema and Table name the table: letters, digits and underscores, not
	// beginning with a digit, at most 63 bytes. Upper case is kept as it is.
	// Empty means "public" and "secondrun_records".
	Schema string
	Table  string

	// Audit is called for every successful use of [store.Admin], before the
	// call returns. Nil means no audit.
	Audit func(store.Audit)

	// OnWarning is called while a store is opened, with a sentence about a
	// setting of the server that weakens the guarantee. Nil means that warnings
	// are dropped.
	OnWarning func(warning string)

	// LockTimeout bounds how long a statement waits for a transaction that
	// has written the same record but has not ended: a settlement for its row,
	// a claim for the end of an insert. Zero means a second.
	LockTimeout time.Duration

	// MaxConns is the number of connections that [Open] may keep, one of which
	// is reserved for renewals. Zero means 4, the least is 2. [New] ignores it.
	MaxConns int

	// AsyncClaims commits claims without waiting for the disk. That saves one
	// of two flushes a message. The risk: when the server crashes, the claims
	// of about the last 0.6 seconds are forgotten while their handlers still
	// run, and a redelivery runs the handler a second time beside the first.
	// Settlements are always as durable as the server is set to be.
	AsyncClaims bool
}

const (
	defaultSchema      = "public"
	defaultTable       = "secondrun_records"
	defaultLockTimeout = time.Second
	defaultMaxConns    = 4
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// withDefaults returns a checked copy of o.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	if c.Table == "" {
		c.Table = defaultTable
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = defaultLockTimeout
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	for _, name := range []string{c.Schema, c.Table} {
		if !identifier.MatchString(name) {
			return c, fmt.Errorf("pgstore: %q is no valid name, must match %s: %w", name, identifier, store.ErrPermanent)
		}
	}
	if c.LockTimeout < time.Millisecond || c.LockTimeout > time.Hour {
		return c, fmt.Errorf("pgstore: LockTimeout is %v, must be between 1ms and 1h: %w", c.LockTimeout, store.ErrPermanent)
	}
	if c.MaxConns < 2 || c.MaxConns > 1000 {
		return c, fmt.Errorf("pgstore: MaxConns is %d, must be between 2 and 1000: %w", c.MaxConns, store.ErrPermanent)
	}
	return c, nil
}

// table returns the quoted name of the table.
func (o *Options) table() string { return pgx.Identifier{o.Schema, o.Table}.Sanitize() }

// lockTimeout returns LockTimeout as the server spells it.
func (o *Options) lockTimeout() string {
	return strconv.FormatInt(o.LockTimeout.Milliseconds(), 10) + "ms"
}
