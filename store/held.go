package store

import (
	"context"
	"time"
)

// Held is the claim that a handler runs under. The middleware puts it into the
// handler's context, so that a store package can settle the claim inside the
// caller's own transaction.
type Held struct {
	Lease
	Fence     int64
	Retention time.Duration // of the settlement

	// Encode turns the handler's result into the payload of a Succeed
	// settlement, as the middleware would. It never fails: a result that
	// cannot be kept becomes a payload that says so.
	Encode func(result any) []byte

	// Completing tells the middleware that a transaction has begun to settle
	// the claim. From then on the row lock holds the claim: renewals stop, the
	// local deadline no longer cancels the handler, and the middleware never
	// settles success by itself.
	Completing func()
}

type heldKey struct{}

// WithHeld returns a context that carries h.
func WithHeld(ctx context.Context, h *Held) context.Context {
	return context.WithValue(ctx, heldKey{}, h)
}

// HeldFrom returns the claim that ctx runs under, nil when there is none.
func HeldFrom(ctx context.Context) *Held {
	h, _ := ctx.Value(heldKey{}).(*Held)
	return h
}
