package secondrun

import (
	"context"

	"github.com/secondrun/secondrun/keyfn"
)

// Do runs fn once per key, for anything that is not a message: a cron job, an
// HTTP request. It returns fn's result, of this run or as it was recorded.
//
// Once means one success. After a failure the next call runs fn again: after a
// transient one when the backoff is over ([ErrBusy] until then), after a
// terminal one, or when the budget was used up, at once and with a new budget.
// With Options.KeepFailures the last two are answered with [ErrFailed] instead.
//
// The error is fn's own, untouched, or one of this package's: [ErrBusy] when
// another caller is at work, [ErrFailed], [ErrStore], [ErrUnrecorded] (fn
// returned, and may run again), [ErrReentrant], [ErrKey] for an empty or too
// long key, [ErrResultUnavailable] when fn succeeded before and its result was
// not kept. Do panics when the guard or fn is nil.
func Do[R any](ctx context.Context, g *Guard, key string, fn func(context.Context) (R, error)) (R, error) {
	mustWrap("Do", g, keyOf, fn == nil)
	p := newProcessor(g, keyOf, func(ctx context.Context, _ doMessage) (any, error) {
		r, err := fn(ctx)
		return &wrapped{r}, err
	})
	return resultOf[R](p, ctx, Delivery{Message: doMessage(key)})
}

// DoFunc is [Do] for a function without a result. It runs fn again after a
// failure as Do does.
func DoFunc(ctx context.Context, g *Guard, key string, fn func(context.Context) error) error {
	mustWrap("DoFunc", g, keyOf, fn == nil)
	p := newProcessor(g, keyOf, func(ctx context.Context, _ doMessage) (any, error) { return nil, fn(ctx) })
	return p.Process(ctx, Delivery{Message: doMessage(key)}).Err
}

func resultOf[R any](p *Processor, ctx context.Context, d Delivery) (R, error) {
	var out R
	a := p.Claim(ctx, []Delivery{d})[0]
	dec := a.Run(ctx)
	if dec.Err != nil {
		return out, dec.Err
	}
	if r, ok := a.result.(*wrapped); ok {
		if v, ok := r.v.(R); ok || r.v == nil {
			return v, nil
		}
	}
	if err := decodeResult(p.g.opt.Codec, dec.Result, &out); err != nil {
		var zero R // a decoder may have left half a result
		return zero, err
	}
	return out, nil
}

// doMessage is the message of a call that has only a key.
type doMessage string

func (doMessage) Body() []byte           { return nil }
func (doMessage) Header(string) []string { return nil }

func keyOf(m keyfn.Message) (string, error) { return string(m.(doMessage)), nil }
