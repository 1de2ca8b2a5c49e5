package keyfn_test

import (
	"fmt"
	"time"

	"github.com/secondrun/secondrun/keyfn"
)

func ExampleTemplate() {
	key := keyfn.Template("invoice:{id}:capture")
	fmt.Println(key(keyfn.NewMessage([]byte(`{"id":"inv_8841","sentAt":"10:00"}`), nil)))
	fmt.Println(key(keyfn.NewMessage([]byte(`{"sentAt":"10:00"}`), nil)))
	// Output:
	// invoice:inv_8841:capture <nil>
	//  keyfn: JSON "id": missing
}

func ExampleFrom() {
	type order struct {
		ID string `json:"id"`
	}
	key := keyfn.From(func(o order) (string, error) {
		if o.ID == "" {
			return "", keyfn.ErrMissing
		}
		return "order:" + o.ID + ":fulfil", nil
	})
	fmt.Println(key(keyfn.NewMessage([]byte(`{"id":"9f3a"}`), nil)))
	// Output: order:9f3a:fulfil <nil>
}

func ExampleJoin() {
	key := keyfn.Join(keyfn.Literal("order"), keyfn.Header("tenant"), keyfn.JSON("orderId"))
	m := keyfn.NewMessage([]byte(`{"orderId":1001}`), map[string][]string{"tenant": {"t:1"}})
	fmt.Println(key(m))
	// Output: order:t%3A1:#1001 <nil>
}

func ExampleHash() {
	key := keyfn.Hash(keyfn.Strip("sentAt", "lines.*.updated_at"))
	a, _ := key(keyfn.NewMessage([]byte(`{"order":7,"lines":[{"sku":"a","updated_at":1}],"sentAt":"10:00"}`), nil))
	b, _ := key(keyfn.NewMessage([]byte(`{"sentAt":"10:05", "lines":[{"updated_at":2,"sku":"a"}], "order":7.0}`), nil))
	fmt.Println(a == b)
	// Output: true
}

func ExampleEvery() {
	key := keyfn.Join(keyfn.Literal("report"), keyfn.Every(15*time.Minute, keyfn.JSON("slot")))
	fmt.Println(key(keyfn.NewMessage([]byte(`{"slot":"2026-09-14T14:15:00+02:00"}`), nil)))
	// Output: report:20260914T121500Z/PT15M <nil>
}

func ExampleExplain() {
	key := keyfn.Template("{header:tenant}:order:{orderId}")
	m := keyfn.NewMessage([]byte(`{"orderId":"a:b"}`), map[string][]string{"tenant": {"t-1"}})
	fmt.Print(keyfn.Explain(key, m))
	// Output:
	// key "t-1:order:a%3Ab" (15 bytes)
	//   Template "{header:tenant}:order:{orderId}" → "t-1:order:a%3Ab"
	//     Header "tenant" → "t-1"
	//     JSON "orderId" → "a:b"
}

func ExampleEvolve() {
	e := keyfn.Evolve(
		keyfn.Format{Scope: "billing", Version: 2, Func: keyfn.Template("order:{orderId}:{currency}")},
		keyfn.Format{Scope: "billing", Version: 1, Func: keyfn.Template("order:{orderId}")})
	keys, err := e.Keys(keyfn.NewMessage([]byte(`{"orderId":"ord-1","currency":"eur"}`), nil))
	for _, k := range keys.Claim {
		fmt.Println(k.Scope, k.Version, k.Text)
	}
	fmt.Println(err)
	// Output:
	// billing 1 order:ord-1
	// billing 2 v2:order:ord-1:eur
	// <nil>
}
