package secondrun_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

type statusError int

func (e statusError) Error() string   { return fmt.Sprint("status ", int(e)) }
func (e statusError) StatusCode() int { return int(e) }

type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string       { return fmt.Sprint("http ", e.status) }
func (e *httpError) HTTPStatusCode() int { return e.status }
func (e *httpError) Unwrap() error       { return e.err }

type codeError string

func (e codeError) Error() string     { return string(e) }
func (e codeError) ErrorCode() string { return string(e) }

type sqlError string

func (e sqlError) Error() string    { return string(e) }
func (e sqlError) SQLState() string { return string(e) }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

type incomparable []int // an error type that cannot be compared

func (incomparable) Error() string { return "incomparable" }

const (
	unknown   = secondrun.Class(0)
	transient = secondrun.ClassTransient
	terminal  = secondrun.ClassTerminal
)

type classified struct {
	name  string
	err   error
	class secondrun.Class
}

func classifications() []classified {
	var all []classified
	add := func(class secondrun.Class, errs ...error) {
		for _, err := range errs {
			all = append(all, classified{fmt.Sprintf("%T %v", err, err), err, class})
		}
	}
	for _, code := range []int{400, 401, 403, 404, 409, 422} {
		add(terminal, statusError(code), &httpError{code, nil})
	}
	for _, code := range []int{408, 425, 429, 500, 502, 503, 504} {
		add(transient, statusError(code), &httpError{code, nil})
	}
	add(unknown, statusError(304), errors.New("?"), incomparable{1}, context.Canceled, sqlError("0"), redisError("WRONGTYPE x"))
	add(transient,
		context.DeadlineExceeded, io.ErrUnexpectedEOF, driver.ErrBadConn, os.ErrDeadlineExceeded,
		&net.DNSError{Err: "no such host"},
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		&url.Error{Op: "Get", Err: context.DeadlineExceeded}, syscall.EPIPE, syscall.ETIMEDOUT,
		secondrun.ErrBusy, secondrun.ErrStore, &secondrun.BusyError{}, secondrun.ErrLeaseLost, secondrun.ErrNotCommitted,
		secondrun.ErrUnrecorded)
	add(unknown, syscall.ENOENT)
	for _, state := range []string{"40001", "40P01", "08006", "53300", "55P03", "57P01", "57P03"} {
		add(transient, sqlError(state))
	}
	add(unknown, sqlError("23505"), sqlError("42P01"))
	for _, word := range []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "OOM"} {
		add(transient, redisError(word+" and more"))
	}
	for _, code := range []string{"RequestThrottled", "ThrottlingException", "SlowDown", "InternalError", "ProvisionedThroughputExceededException"} {
		add(transient, codeError(code), &httpError{400, codeError(code)}) // even when flagged as the sender's fault
	}
	add(terminal, &httpError{400, codeError("ValidationException")})
	add(transient, &httpError{503, codeError("ValidationException")})
	add(transient, secondrun.Transient(errBad), secondrun.RetryAfter(errBad, time.Second), secondrun.Transient(statusError(404)))
	add(terminal, secondrun.Terminal(errMail), secondrun.Terminal(context.DeadlineExceeded), &secondrun.FailedError{}, &secondrun.KeyError{Err: errBad})
	add(transient,
		errors.Join(secondrun.Terminal(errBad), secondrun.Transient(errMail)),
		errors.Join(secondrun.Transient(errMail), secondrun.Terminal(errBad)),
		errors.Join(errBad, context.DeadlineExceeded), errors.Join(secondrun.Terminal(errBad), secondrun.ErrBusy))
	add(terminal, errors.Join(errBad, secondrun.Terminal(errBad)))
	return all
}

func TestU16_Classify(t *testing.T) {
	for _, c := range classifications() {
		t.Run(c.name, func(t *testing.T) {
			for depth, err := range []error{c.err, fmt.Errorf("in: %w", fmt.Errorf("a call: %w", c.err)), errors.Join(c.err)} {
				if got := secondrun.Classify(err); got != c.class {
					t.Errorf("form %d is %v, want %v", depth, got, c.class)
				}
			}
		})
	}
	is(t, "class of nil", secondrun.Classify(nil), unknown)
	is(t, "mark of nil", errors.Join(secondrun.Transient(nil), secondrun.Terminal(nil), secondrun.RetryAfter(nil, 1)), nil)
}

// Every row of the table, delivered twice.
func TestU16_EveryClassDeliveredTwice(t *testing.T) {
	var decoding error = &json.SyntaxError{}
	for _, c := range append(classifications(), classified{"decoding", decoding, unknown}) {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				runs := 0
				p := process(f.g, func(context.Context, msg) error { runs++; return c.err })
				d := p.Process(f.Context(), delivery("a"))
				is(f, "error", d.Err.Error(), c.err.Error())
				neutral := !d.Failed
				time.Sleep(time.Hour)
				again := p.Process(f.Context(), delivery("a"))
				switch {
				case c.class == transient && neutral:
					is(f, "action", d.Action, secondrun.Retry)
					is(f, "failures", f.record("a").Failures, 0)
					is(f, "runs", runs, 2)
				case c.class == transient:
					is(f, "action", d.Action, secondrun.Retry)
					is(f, "failures", f.record("a").Failures, 2)
					is(f, "runs", runs, 2)
				default: // terminal by default
					is(f, "action", d.Action, secondrun.DeadLetter)
					decided(f, again, secondrun.DeadLetter, false, secondrun.ErrFailed)
					is(f, "runs", runs, 1)
				}
			})
		})
	}
}

func TestClassesCanBeChanged(t *testing.T) {
	opt := &secondrun.Options{
		Unclassified: transient,
		Classify: func(err error) secondrun.Class {
			if errors.Is(err, errBad) {
				return terminal
			}
			return 0
		},
	}
	bubble(t, opt, func(f *fixture) {
		for want, err := range map[secondrun.Action]error{secondrun.DeadLetter: secondrun.Transient(errBad), secondrun.Retry: errMail} {
			d := process(f.g, func(context.Context, msg) error { return err }).Process(f.Context(), delivery(err.Error()))
			is(f, "action", d.Action, want)
		}
	})
}

func TestNestedBusyIsNoFailure(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		p := process(f.g, func(context.Context, msg) error {
			return fmt.Errorf("inner: %w", &secondrun.BusyError{After: time.Hour})
		})
		d := p.Process(f.Context(), delivery("a"))
		is(f, "action", d.Action, secondrun.Retry)
		is(f, "after", d.After, time.Hour)
		is(f, "failed", d.Failed, false)
		is(f, "failures", f.record("a").Failures, 0)
	})
}

func TestNames(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		secondrun.Class(0): "unclassified", transient: "transient", terminal: "terminal",
		secondrun.Action(0): "none", secondrun.Ack: "ack", secondrun.Retry: "retry",
		secondrun.DeadLetter: "dead-letter", secondrun.Leave: "leave",
		secondrun.EventVerdict: "verdict", secondrun.EventEffectReplayed: "effect-replayed", secondrun.EventKind(99): "none",
	} {
		is(t, "name", got.String(), want)
	}
}
