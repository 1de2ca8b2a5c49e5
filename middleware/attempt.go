package secondrun

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// Delivery is one message as an adapter received it.
type Delivery struct {
	Message keyfn.Message
	// ID is the broker's identity of this message. It is never part of a key.
	// It tells the redelivery of a failed message, which is dead-lettered, from
	// a replay, which runs. Empty where the broker keeps the identity over
	// replays.
	ID string
	// Until is when this process may be gone or frozen, such as the deadline of
	// a function's invocation. The lease is never asked for beyond it, so that
	// the next delivery need not wait for a process that is no more. Zero
	// means unknown.
	Until time.Time
	// Context carries the span that the delivery's spans belong below, such as
	// the adapter's own. Nil means the context given to Claim, and the trace
	// context in the message's headers, as [Telemetry] says. Nothing else of it
	// is used.
	Context context.Context
	// Returned, when set, is called once the handler has returned and before its
	// outcome is recorded: the adapter can let another one run meanwhile. It is
	// not called when nothing ran. It must return at once.
	Returned func()
	// Err says that the adapter could not look into the message, such as the
	// error of a [keyfn.View]. It is treated as an error of the key function,
	// which is not called, and nothing runs, whatever the options say.
	Err error
}

// Attempt is one delivery on its way through the guard. An adapter gets it
// from [Processor.Claim] and ends it by exactly one call of Run or Release.
type Attempt struct {
	g     *Guard
	p     *Processor
	d     Delivery
	id    store.ID
	req   store.ClaimRequest
	claim store.Claim
	sent  time.Time // before the claim was sent

	claimErr error // why the claim has no answer

	twins  []*twin       // the claims in older key formats
	leader *Attempt      // the attempt of the same key earlier in the batch
	done   chan struct{} // closed when the attempt has ended; nil while nobody may wait for it

	run      run
	shared   runShared   // what effects found out
	lease    store.Lease // as the heartbeat reads it
	span     trace.Span  // of the claim; nil unless traced
	runSpan  trace.Span  // of the run; nil unless traced; written under mu
	held     store.Held
	result   any  // what the handler of this very run returned
	asked    bool // the outside world has been asked about the displaced run
	decided  bool
	barred   bool // nothing runs, not even unguarded
	decision Decision

	mu        sync.Mutex
	beat      *beat // nil without a claim; written under mu
	settling  bool  // the handler has returned
	ended     bool
	holdLost  bool
	cause     error // why the run must end, nil while it may go on
	cancelRun context.CancelCauseFunc
}

// Claim derives the key of every delivery and claims all of them in one call
// of the store. It returns one attempt for each delivery, in order. An attempt
// whose delivery must not run is decided already.
//
// The same key twice in one call runs once: the later attempt waits, in Run,
// for the earlier one to end and is then answered from its outcome. Run the
// attempts concurrently or in order.
func (p *Processor) Claim(ctx context.Context, ds []Delivery) []*Attempt {
	attempts := make([]*Attempt, len(ds))
	open := make([]*Attempt, 0, len(ds))
	var first map[store.ID]*Attempt
	if len(ds) > 1 {
		first = make(map[store.ID]*Attempt, len(ds))
	}
	for i, d := range ds {
		a := p.attempt(ctx, d)
		attempts[i] = a
		if a.decided {
			continue
		}
		if a.follows(first) {
			continue
		}
		open = append(open, a)
	}
	p.g.claimAll(ctx, open)
	return attempts
}

// follows reports whether an earlier attempt of the batch claims one of the same
// IDs, and makes it the leader. Otherwise it notes the attempt in first.
func (a *Attempt) follows(first map[store.ID]*Attempt) bool {
	if first == nil {
		return false
	}
	ids := a.ids()
	for _, id := range ids {
		if lead := first[id]; lead != nil {
			if lead.done == nil {
				lead.done = make(chan struct{})
			}
			a.leader = lead
			return true
		}
	}
	for _, id := range ids {
		first[id] = a
	}
	return false
}

// attempt derives the key.
func (p *Processor) attempt(ctx context.Context, d Delivery) *Attempt {
	a := &Attempt{g: p.g, p: p, d: d}
	key, fp, err := "", store.Fingerprint{}, d.Err
	if err == nil {
		key, fp, err = p.derive(d.Message)
	}
	if err == nil && p.evolution != nil {
		err = a.evolve(d.Message, fp)
	}
	p.g.watch(key, d.ID, err)
	if err != nil {
		a.decide1(a.decideKey(ctx, err))
		a.barred = d.Err != nil || errors.Is(err, keyfn.ErrSkip)
		return a
	}
	if p.evolution == nil {
		a.id = p.g.identify(p.g.scope, key)
		a.req = p.g.request(a.id, d, fp)
	}
	if runFrom(ctx) != nil && slices.ContainsFunc(a.ids(), func(id store.ID) bool { return reentrant(ctx, id) }) {
		a.bar(Decision{Action: DeadLetter, Err: ErrReentrant, ID: a.id})
	}
	return a
}

func (g *Guard) watch(key, delivery string, err error) {
	switch {
	case g.opt.Watch == nil:
	case err != nil:
		g.opt.Watch.Failed(err)
	default:
		g.opt.Watch.Derived(key, delivery)
	}
}

func (a *Attempt) decide1(d Decision) { a.decided, a.decision = true, d }

// bar decides that nothing runs, whatever the options say.
func (a *Attempt) bar(d Decision) {
	a.barred = true
	a.decide1(d)
}

// Decided reports whether the delivery's fate is known without a run, and which
// it is. Run then returns the same decision.
func (a *Attempt) Decided() (Decision, bool) {
	if a.decided && !a.runsAnyway() {
		return a.decision, true
	}
	return Decision{}, false
}

// Release gives back a delivery that has not been run, so that any worker can
// run it after the given wait.
func (a *Attempt) Release(after time.Duration) {
	if a.beat != nil {
		a.g.beats.stop(a.beat)
		a.dropTwins()
		a.giveBack(after)
		a.g.leave(a)
	}
	a.end()
}

func (a *Attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done != nil && !a.ended {
		close(a.done)
	}
	a.ended = true
}

// Lose tells the attempt that the broker's hold on its delivery is lost for
// good: the decision will have HoldLost set. The handler's context is cancelled
// with the cause, usually [ErrHoldLost]; a nil cause lets it go on under the
// lease alone.
func (a *Attempt) Lose(cause error) {
	a.mu.Lock()
	again := a.holdLost
	a.holdLost = true
	a.mu.Unlock()
	a.Cancel(cause)
	if !again {
		a.mark(spanEventHoldLost)
		a.g.emit(context.Background(), Event{Kind: EventHoldLost, ID: a.id, Err: cause})
	}
}

// Cancel cancels the handler's context with the cause, now or as soon as it
// starts. Its claim is renewed for Options.Grace more. A nil cause does nothing.
func (a *Attempt) Cancel(cause error) {
	if cause != nil {
		a.abort(cause)
	}
}

func (a *Attempt) leaseLost(cause error) {
	a.mu.Lock()
	late := a.settling // the settlement's answer decides
	a.mu.Unlock()
	if !late {
		a.abort(cause) // before anybody is told: a slow hook must not delay it
		a.mark(spanEventLeaseLost)
		a.g.emit(context.Background(), Event{Kind: EventLeaseLost, ID: a.id, Err: cause})
	}
}

// abort cancels the handler, now or as soon as it starts.
func (a *Attempt) abort(cause error) {
	a.mu.Lock()
	if a.cause == nil {
		a.cause = cause
	}
	cancel := a.cancelRun
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	a.windDown()
}

// windDown bounds the renewals of a run that was told to end.
func (a *Attempt) windDown() {
	a.mu.Lock()
	beat := a.beat // the twins' are written before it
	a.mu.Unlock()
	if beat == nil {
		return
	}
	at := time.Now().Add(a.g.opt.Grace)
	a.g.beats.limit(beat, at, nil)
	for _, t := range a.twins {
		a.g.beats.limit(t.beat, at, nil)
	}
}

// begin makes the handler's context, which ends with ctx or by abort.
func (a *Attempt) begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.mu.Lock()
	a.cancelRun = cancel
	cause := a.cause
	a.mu.Unlock()
	if cause != nil {
		cancel(cause)
		a.windDown()
	}
	return ctx, cancel
}

// whenDone bounds the renewals once ctx has ended. stop must be called.
func (a *Attempt) whenDone(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil || a.beat == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, a.windDown)
}

func (a *Attempt) aborted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

// returned notes that the handler has returned: a lost lease is no news from
// here on.
func (a *Attempt) returned() {
	a.mu.Lock()
	a.settling = true
	a.mu.Unlock()
}

// tellReturned tells the adapter that the handler has returned.
func (a *Attempt) tellReturned() {
	if a.d.Returned != nil {
		a.d.Returned()
	}
}

func (a *Attempt) lostHold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holdLost
}
