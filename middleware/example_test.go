package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

// A handler that captures an invoice runs once for each invoice, however often
// and in whatever form the message comes.
func ExampleWrap() {
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	h := secondrun.Wrap(g, keyfn.Template("invoice:{id}:capture"), func(_ context.Context, m msg) error {
		fmt.Println("capturing", string(m.Body()))
		return nil
	})
	ctx := context.Background()
	fmt.Println(h.Handle(ctx, msg(`{"id":"inv_1"}`)))
	fmt.Println(h.Handle(ctx, msg(`{"id":"inv_1", "resent":true}`)))
	fmt.Println(h.Handle(ctx, msg(`{"id":"inv_2"}`)))
	// Output:
	// capturing {"id":"inv_1"}
	// <nil>
	// <nil>
	// capturing {"id":"inv_2"}
	// <nil>
}

// The second delivery gets the result of the first.
func ExampleWrapResult() {
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	receipts := 0
	h := secondrun.WrapResult(g, keyfn.Template("invoice:{id}:capture"), func(context.Context, msg) (string, error) {
		receipts++
		return fmt.Sprint("receipt ", receipts), nil
	})
	for range 2 {
		fmt.Println(h.HandleResult(context.Background(), msg(`{"id":"inv_1"}`)))
	}
	// Output:
	// receipt 1 <nil>
	// receipt 1 <nil>
}

func ExampleWrapJSON() {
	type Invoice struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	h := secondrun.WrapJSON(g, keyfn.Template("invoice:{id}:capture"), func(_ context.Context, in Invoice) error {
		fmt.Println("capturing", in.Total, "of", in.ID)
		return nil
	})
	for range 2 {
		if err := h.Handle(context.Background(), msg(`{"id":"inv_1","total":4200}`)); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// capturing 4200 of inv_1
}

// A cron job that every replica starts runs on one of them.
func ExampleDo() {
	g, err := secondrun.New("rollup", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	for replica := range 3 {
		rows, err := secondrun.Do(context.Background(), g, "daily_rollup:2026-06-14", func(context.Context) (int, error) {
			fmt.Println("replica", replica, "is at work")
			return 365, nil
		})
		fmt.Println(rows, err)
	}
	// Output:
	// replica 0 is at work
	// 365 <nil>
	// 365 <nil>
	// 365 <nil>
}

// A retry after a successful charge and a failed email sends the email only.
func ExampleOnce() {
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	mailServer := errors.New("mail server away")
	h := secondrun.Wrap(g, keyfn.Template("order:{id}"), func(ctx context.Context, _ msg) error {
		charge, err := secondrun.Once(ctx, "charge", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		if err != nil {
			return err
		}
		return secondrun.OnceFunc(ctx, "receipt", func(context.Context) error {
			fmt.Println("mailing the receipt of", charge)
			err := mailServer
			mailServer = nil
			return secondrun.RetryAfter(err, time.Nanosecond)
		})
	})
	fmt.Println(h.Handle(context.Background(), msg(`{"id":"ord_1"}`)))
	time.Sleep(time.Millisecond)
	fmt.Println(h.Handle(context.Background(), msg(`{"id":"ord_1"}`)))
	// Output:
	// charging
	// mailing the receipt of ch_1
	// mail server away
	// mailing the receipt of ch_1
	// <nil>
}

// A provider that takes idempotency keys gets the same one on every attempt,
// so that even a process that dies between its call and the record charges once.
func ExampleEffectKey() {
	g, err := secondrun.New("billing", memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	h := secondrun.Wrap(g, keyfn.Template("order:{id}"), func(ctx context.Context, _ msg) error {
		return secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error {
			key, err := secondrun.EffectKey(ctx, "charge")
			fmt.Println("Idempotency-Key:", key[:16])
			return errors.Join(err, secondrun.RetryAfter(errors.New("the call timed out"), time.Nanosecond))
		})
	})
	for range 2 {
		fmt.Println(h.Handle(context.Background(), msg(`{"id":"ord_1"}`)))
		time.Sleep(time.Millisecond)
	}
	// Output:
	// Idempotency-Key: cdaed8381113acde
	// the call timed out
	// Idempotency-Key: cdaed8381113acde
	// the call timed out
}

// On a live queue, Observe shows what would be suppressed before anything is.
func ExampleOptions() {
	g, err := secondrun.New("billing", memstore.New(nil), &secondrun.Options{
		Mode: secondrun.Observe,
		OnEvent: func(_ context.Context, e secondrun.Event) {
			if e.Kind == secondrun.EventWouldSuppress {
				fmt.Println("would suppress", e.KeyHash(), "since it is", e.Verdict)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	h := secondrun.Wrap(g, keyfn.Template("invoice:{id}:capture"), func(context.Context, msg) error {
		fmt.Println("capturing")
		return nil
	})
	for range 2 {
		if err := h.Handle(context.Background(), msg(`{"id":"inv_1"}`)); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// capturing
	// would suppress 6b71c3d1 since it is done
	// capturing
}

// When a process died in the middle of a transfer, the next one looks at the
// bank before it transfers again.
func Example_takeoverProbe() {
	st := memstore.New(nil)
	g, err := secondrun.New("transfers", st, &secondrun.Options{
		Takeover: secondrun.Takeover{Probe: func(_ context.Context, key string) (secondrun.Probed, error) {
			fmt.Println("is there a transfer for", key+"?")
			return secondrun.Probed{Answer: secondrun.ProbeDone, Result: "tr_1"}, nil
		}},
	})
	if err != nil {
		panic(err)
	}
	h := secondrun.WrapResult(g, keyfn.Template("transfer:{id}"), func(context.Context, msg) (string, error) {
		fmt.Println("transferring")
		return "tr_1", nil
	})
	died(st, store.ID{Scope: "transfers", Key: "transfer:7"})
	fmt.Println(h.HandleResult(context.Background(), msg(`{"id":"7"}`)))
	// Output:
	// is there a transfer for transfer:7?
	// tr_1 <nil>
}

// died leaves the claim of a process that is no more.
func died(st store.Store, id store.ID) {
	_, err := st.Claim(context.Background(), []store.ClaimRequest{
		{ID: id, Token: store.NewToken(), Lease: time.Millisecond, Retention: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	time.Sleep(2 * time.Millisecond)
}
