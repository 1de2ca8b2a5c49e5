package sqsadapter

import (
	"context"
	"errors"
	"log/slog"

	"github.com/secondrun/secondrun/keyfn"
)

// LogEvents returns a hook for Options.OnEvent that writes what happens between
// the adapter and the queue. Messages that were deleted, deferred or received
// are written at debug; failures of calls, dead letters, messages left to their
// visibility timeout, and settings that do not fit, at warn. A message is named
// by its id. Why it is dead is written as reason, and where no key was found, as
// key_error, the part of the key function and what is wrong with its value.
// Bodies, attributes, values and the texts of other errors are not written. Nil
// means slog.Default at the time of the event.
func LogEvents(l *slog.Logger) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		logger, level := l, slog.LevelDebug
		if logger == nil {
			logger = slog.Default()
		}
		switch e.Kind {
		case EventPollFailed, EventSettleFailed, EventDeadLettered, EventDiscarded, EventLeft, EventWarning:
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
		if e.Reason != "" {
			attrs = append(attrs, slog.String("reason", e.Reason))
			if text := keyError(e.Err); text != "" {
				attrs = append(attrs, slog.String("key_error", text))
			}
		}
		if e.Err != nil && level == slog.LevelWarn {
			attrs = append(attrs, slog.String("error_type", errorType(e.Err)))
		}
		logger.LogAttrs(ctx, level, "secondrun sqs", attrs...)
	}
}

var keyReasons = [...]error{
	keyfn.ErrMissing, keyfn.ErrNull, keyfn.ErrEmpty, keyfn.ErrType, keyfn.ErrTooLong, keyfn.ErrMalformed, keyfn.ErrAmbiguous,
	keyfn.ErrNothingLeft, keyfn.ErrBatch, keyfn.ErrUnresolved, keyfn.ErrNewer,
}

// errOwnReason stands for what a function of the caller has said: its text may
// quote the message.
var errOwnReason = errors.New("an error of its own")

// keyError is the text of a key function's error, with constant words only. It
// is empty when there is no such error.
func keyError(err error) string {
	var e *keyfn.Error
	if !errors.As(err, &e) {
		return ""
	}
	shown := keyfn.Error{Builder: e.Builder, Path: e.Path, Reason: errOwnReason}
	for _, r := range keyReasons {
		if errors.Is(e.Reason, r) {
			shown.Reason = r
			break
		}
	}
	return shown.Error()
}
