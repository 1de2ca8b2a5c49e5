// Package secondrun stands for the real one.
package secondrun

import (
	"context"

	"github.com/secondrun/secondrun/keyfn"
)

type (
	Guard          struct{}
	Handler[M any] struct{}
)

func Wrap[M keyfn.Message](g *Guard, key keyfn.Func, handle func(context.Context, M) error) *Handler[M] {
	return nil
}

func WrapJSON[T any](g *Guard, key keyfn.Func, handle func(context.Context, T) error) *Handler[keyfn.Message] {
	return nil
}

func Once[R any](ctx context.Context, effect string, fn func(context.Context) (R, error)) (r R, err error) {
	return
}
func OnceFunc(ctx context.Context, effect string, fn func(context.Context) error) error { return nil }
func EffectKey(ctx context.Context, effect string) (string, error)                      { return "", nil }
func (g *Guard) Do(ctx context.Context, key string, fn func(context.Context) error) error {
	return nil
}
