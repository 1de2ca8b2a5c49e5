package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/secondrun/secondrun/store"
)

const (
	// schemaVersion is kept in the file as its user_version.
	schemaVersion = 1
	// applicationID marks the file as ours: "s2rn".
	applicationID = 0x7332726e
)

// schema is that of version 1. Times are microseconds since 1970 in UTC, 0
// meaning none. An effect has a row only as long as its parent has one. The table has a row number besides its key, so that a record
// is updated without touching the index and large payloads stay out of it.
const schema = `
CREATE TABLE records (
	id          INTEGER PRIMARY KEY,
	scope       TEXT    NOT NULL,
	key         TEXT    NOT NULL,
	effect      TEXT    NOT NULL,
	state       INTEGER NOT NULL,
	failure     INTEGER NOT NULL,
	token       BLOB,
	judge       BLOB,
	parent      BLOB,
	fence       INTEGER NOT NULL,
	starts      INTEGER NOT NULL,
	failures    INTEGER NOT NULL,
	crashes     INTEGER NOT NULL,
	took_over   INTEGER NOT NULL,
	lease_end   INTEGER NOT NULL,
	not_before  INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL,
	fingerprint BLOB,
	delivery    TEXT    NOT NULL,
	holder      TEXT    NOT NULL,
	trace       TEXT    NOT NULL,
	payload     BLOB,
	UNIQUE (scope, key, effect)
) STRICT`

// createFile makes an empty file with mode 0600 unless path exists. The file
// is made under another name and closed before it appears at path: closing a
// file descriptor drops all locks that the process holds on the file, also
// those of another Store in this process that has just opened it.
func createFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory %s does not exist", dir)
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new*")
	if err != nil {
		var why *fs.PathError // its path is ours, and says nothing
		if errors.As(err, &why) {
			err = why.Err
		}
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // an empty file that stays does no harm
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// migrate creates the schema in an empty file and checks it in any other. It
// takes the write lock once even if there is nothing to do, so that a file
// that cannot be written is found at the start and not at the first message.
func (s *Store) migrate(ctx context.Context) error {
	if err := s.retry(ctx, "open", s.enableWAL); err != nil {
		return err
	}
	return s.transact(ctx, "open", false, func(ctx context.Context, c *sql.Conn) error {
		v, err := readVersion(ctx, c)
		if err != nil || v != 0 {
			return errors.Join(err, checkVersion(v))
		}
		return createSchema(ctx, c)
	})
}

func (s *Store) enableWAL(ctx context.Context) error {
	v, err := readVersion(ctx, s.write) // look before a foreign file is changed
	if err != nil {
		return err
	}
	if v != 0 {
		if err := checkVersion(v); err != nil {
			return err
		}
	}
	var mode string
	if err := s.write.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: the file system does not allow a write-ahead log", store.ErrPermanent)
	}
	return nil
}

func createSchema(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA application_id=%d; PRAGMA user_version=%d",
		schema, applicationID, schemaVersion))
	return err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readVersion returns the version of our schema, 0 for an empty file.
func readVersion(ctx context.Context, q querier) (int, error) {
	var app, version, objects int
	err := q.QueryRowContext(ctx, `SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id a, pragma_user_version v`).Scan(&app, &version, &objects)
	switch {
	case err != nil:
		return 0, err
	case app == 0 && version == 0 && objects == 0:
		return 0, nil
	case app != applicationID || version == 0:
		return 0, fmt.Errorf("%w: the file is a database of something else", store.ErrPermanent)
	}
	return version, nil
}

func checkVersion(v int) error {
	if v == schemaVersion {
		return nil
	}
	return fmt.Errorf("%w: the file has schema version %d, this code knows %d",
		store.ErrIncompatible, v, schemaVersion)
}
