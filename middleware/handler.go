package secondrun

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/store"
)

// Handler is a handler of messages of type M, wrapped by a [Guard]. It is safe
// for concurrent use.
type Handler[M keyfn.Message] struct {
	p *Processor
}

// ResultHandler is a [Handler] whose result is recorded and replayed.
type ResultHandler[M keyfn.Message, R any] struct {
	Handler[M]
}

// Wrapped is a wrapped handler of any type, as adapters take it.
type Wrapped interface {
	Processor() *Processor
}

// Wrap wraps a handler. Every message that gives the same key runs once.
//
// Wrap and its siblings are for the start of a program: they panic when the
// guard, the key function or the handler is nil.
func Wrap[M keyfn.Message](g *Guard, key keyfn.Func, handle func(context.Context, M) error) *Handler[M] {
	mustWrap("Wrap", g, key, handle == nil)
	return &Handler[M]{newProcessor[M](g, key, func(ctx context.Context, m M) (any, error) { return nil, handle(ctx, m) })}
}

// WrapResult wraps a handler with a result. A later message with the same key
// gets the recorded result ([ResultHandler.HandleResult]). It panics as [Wrap]
// does.
func WrapResult[M keyfn.Message, R any](g *Guard, key keyfn.Func, handle func(context.Context, M) (R, error)) *ResultHandler[M, R] {
	mustWrap("WrapResult", g, key, handle == nil)
	return &ResultHandler[M, R]{Handler[M]{newProcessor[M](g, key, func(ctx context.Context, m M) (any, error) {
		r, err := handle(ctx, m)
		return &wrapped{r}, err
	})}}
}

// WrapJSON wraps a handler that takes the decoded JSON body of any adapter's
// message. A body that does not decode is a terminal failure of the message. It
// panics as [Wrap] does.
func WrapJSON[T any](g *Guard, key keyfn.Func, handle func(context.Context, T) error) *Handler[keyfn.Message] {
	mustWrap("WrapJSON", g, key, handle == nil)
	return Wrap(g, key, func(ctx context.Context, m keyfn.Message) error {
		var in T
		if err := json.Unmarshal(m.Body(), &in); err != nil {
			return Terminal(fmt.Errorf("secondrun: body is not the JSON of a %T: %w", in, err))
		}
		return handle(ctx, in)
	})
}

// mustWrap panics with a sentence when what op was given cannot work.
func mustWrap(op string, g *Guard, key keyfn.Func, noHandler bool) {
	switch {
	case g == nil:
		panic("secondrun: " + op + ": the guard is nil; did New return an error?")
	case key == nil:
		panic("secondrun: " + op + ": the key function is nil")
	case noHandler:
		panic("secondrun: " + op + ": the handler is nil")
	}
}

// WithFingerprint returns a copy of h that also compares contents: a message
// with the key of an earlier one but another fingerprint is a conflict and is
// dead-lettered. fields derives the text to compare from the named, stable
// fields of a message; the version, which is not 0, must change when fields
// does. A message for which fields fails is treated like one without a key. It
// panics when fields is nil.
func (h *Handler[M]) WithFingerprint(version uint16, fields keyfn.Func) *Handler[M] {
	if fields == nil {
		panic("secondrun: WithFingerprint: the function for the fields is nil")
	}
	p := *h.p
	p.fingerprint, p.version = fields, or(version, 1)
	return &Handler[M]{&p}
}

// WithFingerprint is [Handler.WithFingerprint].
func (h *ResultHandler[M, R]) WithFingerprint(version uint16, fields keyfn.Func) *ResultHandler[M, R] {
	return &ResultHandler[M, R]{*h.Handler.WithFingerprint(version, fields)}
}

// Handle handles one message outside any adapter, and returns nil when it is
// done, now or before. The error is the handler's own, or one of this
// package's. Use [Processor.Process] for what to tell a broker.
func (h *Handler[M]) Handle(ctx context.Context, m M) error {
	d := h.p.Process(ctx, Delivery{Message: m})
	return d.Err
}

// Processor returns what adapters work with.
func (h *Handler[M]) Processor() *Processor { return h.p }

// HandleResult is Handle with the handler's result: of this run, or as it was
// recorded. [ErrResultUnavailable] means that the message is done but its
// result was not kept.
func (h *ResultHandler[M, R]) HandleResult(ctx context.Context, m M) (R, error) {
	return resultOf[R](h.p, ctx, Delivery{Message: m})
}

// Processor is a wrapped handler without its types: what an adapter needs of
// it.
type Processor struct {
	g           *Guard
	key         keyfn.Func
	evolution   *keyfn.Evolution // nil means that the key format does not change
	fingerprint keyfn.Func       // nil means none
	version     uint16
	accepts     func(keyfn.Message) bool
	handle      func(context.Context, keyfn.Message) (any, error)
}

func newProcessor[M keyfn.Message](g *Guard, key keyfn.Func, handle func(context.Context, M) (any, error)) *Processor {
	return &Processor{
		g: g, key: key,
		accepts: func(m keyfn.Message) bool { _, ok := m.(M); return ok },
		handle: func(ctx context.Context, m keyfn.Message) (any, error) {
			typed, ok := m.(M)
			if !ok {
				return nil, Terminal(fmt.Errorf("secondrun: handler takes %T, not %T", typed, m))
			}
			return handle(ctx, typed)
		},
	}
}

// Guard returns the guard behind the handler.
func (p *Processor) Guard() *Guard { return p.g }

// In returns a copy that works in the given guard, which should be a
// [Guard.Sub] of its own. It panics when g is nil.
func (p *Processor) In(g *Guard) *Processor {
	if g == nil {
		panic("secondrun: Processor.In: the guard is nil; did Sub return an error?")
	}
	c := *p
	c.g = g
	return &c
}

// Accepts reports whether the handler takes messages of the type of m.
func (p *Processor) Accepts(m keyfn.Message) bool { return p.accepts(m) }

// Process claims and runs one delivery.
func (p *Processor) Process(ctx context.Context, d Delivery) Decision {
	return p.Claim(ctx, []Delivery{d})[0].Run(ctx)
}

// derive derives key and fingerprint. A panic of user code is an error of this
// message alone.
func (p *Processor) derive(m keyfn.Message) (key string, fp store.Fingerprint, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = keyPanic(v)
		}
	}()
	key, err = p.key(m)
	switch {
	case err != nil:
		return "", fp, err
	case key == "":
		return "", fp, keyFault("key is empty")
	case len(key) > store.MaxKey:
		return "", fp, keyFault(fmt.Sprintf("key has %d bytes, the limit is %d", len(key), store.MaxKey))
	case p.fingerprint == nil:
		return key, fp, nil
	}
	fields, err := p.fingerprint(m)
	if err != nil {
		return "", fp, fmt.Errorf("fingerprint: %w", err)
	}
	return key, p.g.fingerprint(p.version, fields), nil
}

func keyPanic(v any) error { return keyFault(fmt.Sprintf("key function panicked (%T)", v)) }

func (g *Guard) fingerprint(version uint16, fields string) store.Fingerprint {
	var h hash.Hash = sha256.New()
	if len(g.opt.FingerprintKey) > 0 {
		h = hmac.New(sha256.New, g.opt.FingerprintKey)
	}
	h.Write([]byte(fields))
	f := store.Fingerprint{Version: version}
	h.Sum(f.Sum[:0])
	return f
}
