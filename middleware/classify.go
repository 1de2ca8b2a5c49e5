package secondrun

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Class says what an error of a handler means for a retry.
type Class uint8

// Classes. The zero value means that nothing is known.
const (
	ClassTransient Class = iota + 1 // trying again may help
	ClassTerminal                   // trying again cannot help

	// classNeutral is transient and no failure at all: another claim, inside the
	// handler, was not to be had.
	classNeutral
)

// String returns the class in lower case.
func (c Class) String() string {
	switch c {
	case ClassTransient:
		return "transient"
	case ClassTerminal:
		return "terminal"
	}
	return "unclassified"
}

type marked struct {
	err   error
	class Class
	after time.Duration
}

func (m *marked) Error() string { return m.err.Error() }
func (m *marked) Unwrap() error { return m.err }

// Transient marks err as worth a retry. A nil err stays nil.
func Transient(err error) error { return mark(err, ClassTransient, 0) }

// RetryAfter marks err as worth a retry, not before d has passed. It takes the
// place of the backoff. A nil err stays nil.
func RetryAfter(err error, d time.Duration) error { return mark(err, ClassTransient, d) }

// Terminal marks err as one that no retry can mend. A nil err stays nil.
func Terminal(err error) error { return mark(err, ClassTerminal, 0) }

func mark(err error, c Class, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &marked{err: err, class: c, after: d}
}

// Classify tells what is known about err: a mark by [Transient], [RetryAfter]
// or [Terminal] first, then what is recognised unmarked, else zero. It is what
// a Guard uses unless Options.Classify knows better.
//
// Recognised as transient: context.DeadlineExceeded, timeouts of net.Error,
// refused and reset connections, DNS failures, io.ErrUnexpectedEOF,
// driver.ErrBadConn; a StatusCode or HTTPStatusCode of 408, 425, 429 or 5xx;
// SQLState classes 08, 40 and 53 and the codes 55P03 and 57P0x; Redis errors
// that pass (LOADING, READONLY, TRYAGAIN, CLUSTERDOWN, MASTERDOWN, OOM); AWS
// throttling and server faults. Any other HTTP status of 400 and above is
// terminal. Of an errors.Join, one transient part makes the whole transient.
//
// An error of a claim inside the handler that says busy, lost, shutting down or
// store unavailable is transient too, but is not counted as a failure.
func Classify(err error) Class {
	c, _ := classify(err)
	if c == classNeutral {
		return ClassTransient
	}
	return c
}

func classify(err error) (Class, time.Duration) {
	var last Class // of a status code, which a code further down may overrule
	for err != nil {
		if m, ok := err.(*marked); ok { //nolint:errorlint // the chain is walked here
			return m.class, m.after
		}
		if c := recognise(err); c != 0 {
			return c, 0
		}
		if e, ok := err.(interface{ HTTPStatusCode() int }); ok { //nolint:errorlint // as above
			last = recogniseStatus(e.HTTPStatusCode())
		}
		switch u := err.(type) { //nolint:errorlint // the chain is walked here
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			return classifyAll(u.Unwrap())
		default:
			return last, 0
		}
	}
	return last, 0
}

func classifyAll(errs []error) (Class, time.Duration) {
	var class Class
	var after time.Duration
	for _, err := range errs {
		switch c, d := classify(err); {
		case c == ClassTransient, class != 0 && c != 0 && c != class:
			class, after = ClassTransient, max(after, d)
		case class == 0:
			class = c
		}
	}
	return class, after
}

// recognise looks at one error without its chain.
func recognise(err error) Class {
	switch err { //nolint:errorlint // the chain is walked by the caller
	case context.DeadlineExceeded, io.ErrUnexpectedEOF, driver.ErrBadConn, ErrNotCommitted, ErrUnrecorded, ErrMaxRuntime:
		return ClassTransient
	case ErrBusy, ErrStore, ErrLeaseLost, ErrHoldLost, ErrShutdown:
		return classNeutral
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked by the caller
	case *BusyError, *storeError:
		return classNeutral
	case *net.DNSError:
		return ClassTransient
	case *FailedError, *KeyError, *ResultError:
		return ClassTerminal
	case syscall.Errno:
		return recogniseErrno(e)
	case interface{ SQLState() string }:
		return recogniseSQLState(e.SQLState())
	case interface{ HTTPStatusCode() int }:
		if c := recogniseStatus(e.HTTPStatusCode()); c == ClassTransient {
			return c
		}
		return 0 // AWS wraps the code that tells more
	case interface{ StatusCode() int }:
		return recogniseStatus(e.StatusCode())
	case interface{ ErrorCode() string }:
		return recogniseAWS(e.ErrorCode())
	case interface{ RedisError() }:
		return recogniseRedis(err.Error())
	}
	if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // the chain is walked by the caller
		return ClassTransient
	}
	return 0
}

func recogniseErrno(e syscall.Errno) Class {
	if e == syscall.ECONNREFUSED || e == syscall.ECONNRESET || e == syscall.EPIPE || e.Timeout() {
		return ClassTransient
	}
	return 0
}

func recogniseStatus(code int) Class {
	switch {
	case code == 408, code == 425, code == 429, code >= 500:
		return ClassTransient
	case code >= 400:
		return ClassTerminal
	}
	return 0
}

func recogniseSQLState(code string) Class {
	if len(code) != 5 {
		return 0
	}
	switch code[:2] {
	case "08", "40", "53":
		return ClassTransient
	}
	if code == "55P03" || strings.HasPrefix(code, "57P0") {
		return ClassTransient
	}
	return 0
}

func recogniseRedis(text string) Class {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "OOM":
		return ClassTransient
	}
	return 0
}

func recogniseAWS(code string) Class {
	switch code {
	case "InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "SlowDown",
		"RequestTimeout", "RequestTimeoutException", "RequestLimitExceeded", "BandwidthLimitExceeded",
		"LimitExceededException", "TooManyRequestsException", "TransactionInProgressException",
		"ProvisionedThroughputExceededException", "PriorRequestNotComplete", "EC2ThrottledException":
		return ClassTransient
	}
	if strings.Contains(code, "Throttl") {
		return ClassTransient
	}
	return 0
}

// cancelled reports whether err is about a cancellation and not about the
// work. cause is why the handler's context ended, nil when it did not. A
// deadline that the consumer had set is no cancellation: the work took too long.
func cancelled(err, cause error) bool {
	return cause != nil && (errors.Is(err, context.Canceled) ||
		errors.Is(err, cause) && !errors.Is(cause, context.DeadlineExceeded))
}
