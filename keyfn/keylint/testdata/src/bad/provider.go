package bad

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/avast/retry"
	"github.com/google/uuid"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

type params struct {
	Amount         int
	IdempotencyKey *string
	ClientToken    string
}

func (p *params) SetIdempotencyKey(string) {}

func charge(params) error { return nil }

func loops(req *http.Request) {
	for i := 0; i < 3; i++ {
		_ = charge(params{ClientToken: uuid.NewString()}) // want `provider: uuid.NewString makes a new provider key for every try of the loop`
	}
	for range 3 {
		req.Header.Set("Idempotency-Key", uuid.NewString()) // want `provider: uuid.NewString`
	}
	for {
		key := uuid.NewString() // want `provider: uuid.NewString`
		p := params{Amount: 5, IdempotencyKey: &key}
		if charge(p) == nil {
			break
		}
	}
	for attempt := 0; ; attempt++ {
		var p params
		p.SetIdempotencyKey(fmt.Sprint("charge-", time.Now().UnixNano())) // want `provider: time.Now`
		if charge(p) == nil {
			return
		}
	}
}

func retries() error {
	return retry.Do(func() error {
		var p params
		p.ClientToken = uuid.New().String() // want `provider: uuid.New makes a new provider key for every try`
		return charge(p)
	})
}

var _ = secondrun.Wrap(nil, keyfn.JSON("id"), handle)

func handle(ctx context.Context, m keyfn.Message) error {
	idempotencyKey := uuid.NewString() // want `provider: uuid.NewString makes a new provider key for a run that is repeated`
	return secondrun.OnceFunc(ctx, "charge", func(context.Context) error {
		return charge(params{IdempotencyKey: &idempotencyKey})
	})
}
