package sqlitestore

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/secondrun/secondrun/store"
)

// errLocked says that the wait for the lock ended and nothing was begun. It is
// not permanent.
var errLocked = errors.New("the write lock is held by others")

// Primary result codes of SQLite, https://sqlite.org/rescode.html. The driver
// exports them only in a package of a hundred thousand lines.
const (
	codeBusy      = 5
	codeLocked    = 6
	codeNoMem     = 7
	codeInterrupt = 9
	codeIOErr     = 10
	codeFull      = 13
	codeProtocol  = 15
)

// failure wraps err once and marks it as permanent unless it can pass by
// waiting: a lock, a full disk, a failing disk, too little memory. What is left
// (a damaged or read-only file, one that cannot be opened, a missing table)
// needs an operator.
func failure(op string, err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) || errors.Is(err, store.ErrPermanent) || passes(e.Code()) {
		return fmt.Errorf("sqlitestore: %s: %w", op, err)
	}
	return fmt.Errorf("sqlitestore: %s: %w: %w", op, store.ErrPermanent, err)
}

func passes(code int) bool {
	switch code & 0xff {
	case codeBusy, codeLocked, codeNoMem, codeInterrupt, codeIOErr, codeFull, codeProtocol:
		return true
	}
	return false
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == codeBusy || e.Code()&0xff == codeLocked)
}
