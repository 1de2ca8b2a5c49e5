package secondrun

import (
	"context"
	"errors"
	"log/slog"
)

// LogEvents returns a hook for Options.OnEvent that writes to l; nil means
// slog.Default at the time of the event. At debug: duplicates, that is what was
// suppressed or would have been, and replayed effects. At warn: lost leases and
// holds, outcomes that could not be recorded, records that had vanished, runs
// without a claim, messages without a key, and a store that is away. At info:
// its return, and results that were not kept. Everything else is counted (see
// [Telemetry]) and not written.
//
// A key is shown as the first 8 hexadecimal digits of its hash. Errors are
// shown by type, never by text.
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

func logLevel(e *Event) (slog.Level, bool) {
	switch e.Kind {
	case EventSuppressed, EventWouldSuppress, EventEffectReplayed:
		return slog.LevelDebug, true
	case EventResultOmitted, EventStoreUp:
		return slog.LevelInfo, true
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
	if e.Kept != 0 {
		attrs = append(attrs, slog.String("outcome", e.Kept.String()))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", omittedLabel(e.Reason)))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error_type", errorType(e.Err)))
		if cause := ownText(e.Err); cause != "" {
			attrs = append(attrs, slog.String("cause", cause))
		}
	}
	return attrs
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
