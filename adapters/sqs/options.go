package sqsadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/secondrun/secondrun/keyfn"
)

// Options are the optional settings of a [Consumer] and a [Handler]. The zero
// value, and a nil *Options, mean the defaults.
type Options struct {
	// DeadLetter says what becomes of a message that must not be tried again.
	// The zero value leaves it to the queue's redrive policy, and a queue
	// without one is refused: choose To, Redrive or Discard.
	DeadLetter DeadLetter
	// Concurrency is the number of handlers that run at a time. Zero means 10. A
	// message is received only when a handler is free for it. While outcomes are
	// recorded, up to twice as many messages are held.
	Concurrency int
	// Pollers is the number of receives at a time. Zero means 1 for every 20
	// of Concurrency, rounded up.
	Pollers int
	// Visibility is the visibility timeout set at every receive and extended
	// at a third of it; between 3 s and 12 h, whole seconds. Zero means 30 s for
	// a Consumer, and for a Handler, whose receives are not its own, the queue's
	// visibility timeout. It is the delay after which another consumer gets the
	// messages of a process that died; it need not cover the handler's duration.
	Visibility time.Duration
	// Wait is the long poll. Zero means 20 s; between 1 s and 20 s, whole
	// seconds.
	Wait time.Duration
	// Grace is how long Run lets running handlers finish after its context has
	// ended. Then their contexts are cancelled with secondrun.ErrShutdown, and
	// they get the same time again to return. Zero means 20 s.
	Grace time.Duration
	// SettleTimeout limits deleting a message, or making it visible again,
	// with repetitions. Zero means 10 s.
	SettleTimeout time.Duration
	// GoOnWithoutHold lets a handler go on under the store's lease alone when
	// the visibility can no longer be extended. By default it is cancelled.
	GoOnWithoutHold bool
	// View looks into the envelope in which every message of the queue comes:
	// awskey.SNS, awskey.EventBridge, or one that fetches a large payload. Key
	// functions and handlers then see what is inside. An error of it is the
	// message's key error: [keyfn.ErrSkip] is acknowledged without a run, an
	// error that passes is retried, any other is dead-lettered. It is called
	// concurrently, while the message is held, and must end by itself.
	View keyfn.View
	// OnPanic is told of a panic of a handler, after it was recorded as a
	// transient failure. Nil lets the panic end the process.
	OnPanic func(m *Message, value any, stack []byte)
	// OnEvent is told what happens between the adapter and the queue. It is
	// called synchronously and must return quickly.
	OnEvent func(ctx context.Context, e Event)
}

// Event is one thing that happened between the adapter and the queue.
type Event struct {
	Kind     EventKind
	QueueURL string
	Message  *Message // nil for events about the queue
	Count    int      // EventReceived: messages
	Text     string   // EventWarning
	// Reason is set where a message must not be tried again, also while it comes
	// back until a redrive policy moves it: why, in the words of AttributeReason.
	Reason string
	Err    error
}

// EventKind says what happened.
type EventKind uint8

// Kinds of events.
const (
	EventReceived     EventKind = iota + 1 // a receive returned messages
	EventPollFailed                        // a receive failed; it is repeated after a pause
	EventDeleted                           // a message was deleted
	EventDeferred                          // a message was made visible again later
	EventSettleFailed                      // a delete or a deferral failed; the message comes back and is answered from its record
	EventDeadLettered                      // a message was copied to the dead-letter queue and deleted
	EventLeft                              // a message was left to its visibility timeout
	EventWarning                           // the queue's settings do not fit, or a message is at its last receive
	EventDiscarded                         // a message that must not be tried again was deleted, since DeadLetter is Discard
)

var eventNames = [...]string{
	"none", "received", "poll-failed", "deleted", "deferred", "settle-failed", "dead-lettered", "left", "warning", "discarded",
}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		k = 0
	}
	return eventNames[k]
}

// The shortest visibility timeout that can be extended in time, the default of
// a Consumer, and the longest that SQS knows.
const (
	minVisibility     = 3 * time.Second
	defaultVisibility = 30 * time.Second
	maxVisibility     = 12 * time.Hour
)

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	def := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	def(&r.Wait, 20*time.Second)
	def(&r.Grace, 20*time.Second)
	def(&r.SettleTimeout, 10*time.Second)
	if r.Concurrency == 0 {
		r.Concurrency = 10
	}
	if r.Pollers == 0 {
		r.Pollers = (r.Concurrency + 19) / 20
	}
	return r, r.check()
}

func (o *Options) check() error {
	var errs []error
	if o.Concurrency < 0 || o.Pollers < 0 || o.Grace < 0 || o.SettleTimeout < 0 {
		errs = append(errs, errors.New("options Concurrency, Pollers, Grace and SettleTimeout must not be negative"))
	}
	if o.Visibility != 0 && o.Visibility < minVisibility || o.Visibility > maxVisibility || o.Visibility%time.Second != 0 {
		errs = append(errs, fmt.Errorf("option Visibility must be whole seconds between 3s and 12h, not %v", o.Visibility))
	}
	if o.Wait < time.Second || o.Wait > 20*time.Second || o.Wait%time.Second != 0 {
		errs = append(errs, fmt.Errorf("option Wait must be whole seconds between 1s and 20s, not %v", o.Wait))
	}
	if d := o.DeadLetter; d.kind == copied && (d.url == "" || strings.HasPrefix(d.url, "arn:")) {
		errs = append(errs, fmt.Errorf("option DeadLetter must be the URL of a queue, not %q", d.url))
	}
	return errors.Join(errs...)
}

// DeadLetter is the way of a message that must not be tried again.
type DeadLetter struct {
	kind deadLetterKind
	url  string
}

type deadLetterKind uint8

const (
	undecided deadLetterKind = iota
	copied
	redriven
	discarded
)

// To copies the message to the queue, with the reason as attributes, and then
// deletes it. SQS does not know where such a copy came from: a redrive needs
// an explicit destination.
func To(queueURL string) DeadLetter { return DeadLetter{copied, queueURL} }

var (
	// Redrive leaves the message to the queue's redrive policy: it is
	// delivered again, without a run, until it has used up maxReceiveCount.
	Redrive = DeadLetter{kind: redriven}
	// Discard deletes the message. The failure stays recorded in the store
	// until its retention ends; the message is gone.
	Discard = DeadLetter{kind: discarded}
)
