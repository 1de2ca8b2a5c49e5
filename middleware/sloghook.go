package secondrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// LogEvents returns a hook for Options.OnEvent that writes to l; nil means
// slog.Default at the time of the event.
//
//	debug  duplicates that were suppressed, and replayed effects
//	info   failed runs, with their class; what Observe would have suppressed;
//	       results that were not kept; a store that is back
//	warn   parked and exhausted keys, parked effects; lost leases and holds;
//	       outcomes that could not be recorded; records that had vanished; runs
//	       without a claim; messages without a key; a store that is away
//
// Everything else is counted (see [Telemetry]) and not written.
//
// A key is shown as the first 8 hexadecimal digits of its hash. Errors are
// shown by type, never by text, and with PostgreSQL's SQLSTATE or the first
// word of a Redis error where they carry one. What is wrong with a message
// without a key is said by the builder, the path and the reason of its
// [keyfn.Error], of which none is the message's.
func LogEvents(l *slog.Logger) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		level, ok := logLevel(&e)
		if !ok {
			return
		}
		logger := l
		if logger == nil {
			logger = slog.Default()
		}
		if logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, "secondrun "+e.Kind.String(), logAttrs(&e)...)
		}
	}
}

func logLevel(e *Event) (level slog.Level, ok bool) {
	switch e.Kind {
	case EventSuppressed:
		if e.Failure == store.FailedParked || e.Failure == store.FailedExhausted {
			return slog.LevelWarn, true // somebody has to look at it
		}
		return slog.LevelDebug, true
	case EventEffectReplayed:
		return slog.LevelDebug, true
	case EventRun:
		return slog.LevelInfo, e.Class != 0
	case EventWouldSuppress, EventResultOmitted, EventStoreUp:
		return slog.LevelInfo, true
	case EventVerdict: // of a key: see EventSuppressed
		return slog.LevelWarn, e.ID.Effect != "" && e.Failure == store.FailedParked
	case EventSettled:
		return slog.LevelWarn, e.Kept == store.Park
	case EventLeaseLost, EventHoldLost, EventUnrecorded, EventRecreated, EventFailOpen, EventKeyError, EventStoreDown:
		return slog.LevelWarn, true
	}
	return 0, false
}

func logAttrs(e *Event) []slog.Attr {
	attrs := []slog.Attr{slog.String("scope", e.Scope)}
	if e.ID.Key != "" {
		attrs = append(attrs, slog.String("key_hash", e.KeyHash()))
	}
	if e.ID.Effect != "" {
		attrs = append(attrs, slog.Bool("effect", true))
	}
	if e.Verdict != 0 {
		attrs = append(attrs, slog.String("verdict", e.Verdict.String()))
	}
	if e.Failure != 0 {
		attrs = append(attrs, slog.String("failure", e.Failure.String()))
	}
	if e.Kept != 0 {
		attrs = append(attrs, slog.String("outcome", e.Kept.String()))
	}
	if e.Class != 0 {
		attrs = append(attrs, slog.String("class", e.Class.String()))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", omittedLabel(e.Reason)))
	}
	return appendError(attrs, e.Err)
}

// appendError appends what may be said of an error.
func appendError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	attrs = append(attrs, slog.String("error_type", errorType(err)))
	if cause := ownText(err); cause != "" {
		attrs = append(attrs, slog.String("cause", cause))
	}
	if reason := keyReason(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	var sql interface{ SQLState() string }
	if errors.As(err, &sql) && isCode(sql.SQLState()) && len(sql.SQLState()) == 5 {
		attrs = append(attrs, slog.String("sqlstate", sql.SQLState()))
	}
	var redis interface {
		error
		RedisError()
	}
	if errors.As(err, &redis) {
		if word, _, _ := strings.Cut(redis.Error(), " "); isCode(word) {
			attrs = append(attrs, slog.String("redis_error", word))
		}
	}
	return attrs
}

// isCode reports whether a server made s to be read by programs.
func isCode(s string) bool {
	for _, r := range s {
		if (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

// ownText is the text of one of this package's causes.
func ownText(err error) string {
	for _, own := range []error{ErrMaxRuntime, ErrLeaseLost, ErrHoldLost} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	return ""
}

// keyReason says why there is no key, without anything of the message. The
// reason in a keyfn.Error can be an error of the program's own function, whose
// text may hold anything: that one is shown by type.
func keyReason(err error) string {
	var fault keyFault
	if errors.As(err, &fault) {
		return fault.Error()
	}
	var k *keyfn.Error
	if !errors.As(err, &k) {
		return ""
	}
	e := *k
	if name := fmt.Sprintf("%T", e.Reason); name != "*keyfn.detail" && !slices.Contains(keyReasons, e.Reason) {
		e.Reason = keyFault(name)
	}
	return e.Error()
}

var keyReasons = []error{
	keyfn.ErrMissing, keyfn.ErrNull, keyfn.ErrEmpty, keyfn.ErrType, keyfn.ErrTooLong, keyfn.ErrMalformed, keyfn.ErrAmbiguous,
	keyfn.ErrNothingLeft, keyfn.ErrBatch, keyfn.ErrUnresolved, keyfn.ErrNewer,
}

// keyFault is what a Guard finds wrong with a key: text that holds nothing of
// the message.
type keyFault string

func (f keyFault) Error() string { return string(f) }
