package main

import (
	"context"
	"encoding/json"
	"time"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// order is the message on the queue.
type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"` // cents
}

// protected is the handler as one writes it with secondrun: a message whose
// order id was seen before does not run, and each effect inside it happens once
// even when the handler has to run again.
func protected(g *secondrun.Guard, shop *shop, slow time.Duration) secondrun.Wrapped {
	return secondrun.Wrap(g, keyfn.Template("order:{id}:checkout"), func(ctx context.Context, m *sqsadapter.Message) error {
		var o order
		if err := json.Unmarshal(m.Body(), &o); err != nil {
			return secondrun.Terminal(err)
		}
		shop.ran(ctx)
		err := secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error {
			key, err := secondrun.EffectKey(ctx, "charge") // the gateway's idempotency key
			if err != nil {
				return err
			}
			return shop.charge(ctx, o, key)
		})
		if err != nil {
			return err
		}
		if err := work(ctx, slow); err != nil {
			return err
		}
		return secondrun.OnceFunc(ctx, "receipt", func(ctx context.Context) error { return shop.mail(ctx, o) })
	})
}

// plain is the same handler without secondrun. An error leaves the message on
// the queue.
func plain(ctx context.Context, body []byte, shop *shop, slow time.Duration) error {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	shop.ran(ctx)
	if err := shop.charge(ctx, o, ""); err != nil {
		return err
	}
	if err := work(ctx, slow); err != nil {
		return err
	}
	return shop.mail(ctx, o)
}

// work is the slow part of the handler: making the invoice, say.
func work(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
