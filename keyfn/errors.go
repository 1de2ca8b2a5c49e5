package keyfn

import (
	"errors"
	"strings"
)

// Limits. What exceeds them is [ErrTooLong].
const (
	// MaxKey is the longest key, in bytes.
	MaxKey = 64 << 10
	// MaxBody is the longest body that a part parses, in bytes.
	MaxBody = 16 << 20
)

// Reasons, found with [errors.Is] in the [Error] of a part.
var (
	// ErrMissing says that the value is not there. It is the only reason for
	// which [First] tries its next part.
	ErrMissing = errors.New("missing")
	// ErrNull says that the value, or something on the way to it, is JSON null.
	ErrNull = errors.New("null")
	// ErrEmpty says that the value is empty or only white space.
	ErrEmpty = errors.New("empty")
	// ErrType says that the value, or something on the way to it, is of a kind
	// that cannot be used there: an object, an array, a boolean.
	ErrType = errors.New("wrong type")
	// ErrTooLong says that the key or the body exceeds its limit.
	ErrTooLong = errors.New("too long")
	// ErrMalformed says that the message cannot be read as what it should be.
	ErrMalformed = errors.New("malformed")
	// ErrAmbiguous says that the message gives more than one answer: a duplicate
	// name, several different values of a header.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrNothingLeft says that a list of paths to strip or keep leaves nothing
	// to hash.
	ErrNothingLeft = errors.New("nothing left to hash")
	// ErrBatch says that the message holds several events and has no single key.
	ErrBatch = errors.New("batch of several events")
	// ErrUnresolved says that the body is only a pointer to a payload that is
	// kept elsewhere. The pointer is new on every send and names no event.
	ErrUnresolved = errors.New("unresolved pointer to the payload")

	// ErrSkip says that the message carries no event to handle, such as the
	// tombstone after a deleted row. It is not a fault: such a message is to be
	// acknowledged without a run, and counted.
	ErrSkip = errors.New("nothing to handle")
	// ErrNewer says that the payload is of a version that this code does not
	// know yet. Such a message is to be given back for later, not dead-lettered:
	// newer consumers may be on their way. [NewerError] carries the versions.
	ErrNewer = errors.New("payload version newer than the code")
)

// Error says why a part found no value. Its text never holds any of the
// message, unless Reason is the error of the caller's own function and does. A
// nil *Error is never returned.
type Error struct {
	Builder string // the part, as it is spelled in code: "JSON", "Header"
	Path    string // where it looked: a path, the name of a header; may be empty
	Reason  error  // one of the reasons of this package, or the error of the caller's own function
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("keyfn: ")
	b.WriteString(e.Builder)
	if e.Path != "" {
		b.WriteByte(' ')
		b.WriteString(quote(e.Path))
	}
	b.WriteString(": ")
	b.WriteString(e.Reason.Error())
	return b.String()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// detail narrows a reason down with constant text.
type detail struct {
	reason error
	text   string
}

func (d *detail) Error() string { return d.reason.Error() + ": " + d.text }
func (d *detail) Unwrap() error { return d.reason }

// because returns reason with more detail. The text is constant: nothing of the
// message may enter it.
func because(reason error, text string) error { return &detail{reason, text} }
