package secondrun_test

import (
	"context"
	"fmt"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

// A new key format is rolled out while consumers with the old one still run:
// what one of them has done, the other one does not do again.
func ExampleHandler_WithEvolution() {
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	handle := func(_ context.Context, m keyfn.Message) error {
		fmt.Println("handled", string(m.Body()))
		return nil
	}
	order := keyfn.NewMessage([]byte(`{"id":"9f3a"}`), map[string][]string{"tenant": {"acme"}})

	older := keyfn.Format{Scope: "billing", Version: 1, Func: keyfn.Template("order:{id}")}
	newer := keyfn.Format{Scope: "billing", Version: 2, Func: keyfn.Template("{header:tenant}:order:{id}")}
	rollout := keyfn.Evolve(newer, older)
	h := secondrun.Wrap(g, rollout.AsFunc(), handle).WithEvolution(rollout)

	old := secondrun.Wrap(g, older.AsFunc(), handle)
	for _, consumer := range []*secondrun.Handler[keyfn.Message]{old, h, old, h} {
		if err := consumer.Handle(context.Background(), order); err != nil {
			panic(err)
		}
	}
	// Output: handled {"id":"9f3a"}
}
