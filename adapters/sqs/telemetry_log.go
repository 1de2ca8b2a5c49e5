package sqsadapter

import (
	"context"
	"log/slog"
)

// LogEvents returns a hook for Options.OnEvent that writes what happens between
// the adapter and the queue. Messages that were deleted, deferred or received
// are written at debug; failures of calls, dead letters, messages left to their
// visibility timeout, and settings that do not fit, at warn. A message is named
// by its id; bodies, attributes and the texts of errors are not written. Nil
// means slog.Default at the time of the event.
func LogEvents(l *slog.Logger) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		logger, level := l, slog.LevelDebug
		if logger == nil {
			logger = slog.Default()
		}
		switch e.Kind {
		case EventPollFailed, EventSettleFailed, EventDeadLettered, EventLeft, EventWarning:
			level = slog.LevelWarn
		}
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String("event", e.Kind.String()), slog.String("queue", e.QueueURL)}
		if e.Message != nil {
			attrs = append(attrs, slog.String("message_id", e.Message.id()), slog.Int("receives", e.Message.ReceiveCount()))
		}
		if e.Count > 0 {
			attrs = append(attrs, slog.Int("count", e.Count))
		}
		if e.Text != "" {
			attrs = append(attrs, slog.String("text", e.Text))
		}
		if e.Err != nil && level == slog.LevelWarn {
			attrs = append(attrs, slog.String("error_type", errorType(e.Err)))
		}
		logger.LogAttrs(ctx, level, "secondrun sqs", attrs...)
	}
}
