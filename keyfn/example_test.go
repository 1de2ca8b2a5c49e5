package keyfn_test

import (
	"errors"
	"fmt"
	"strings"
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

func ExampleFirst() {
	key := keyfn.First(keyfn.Header("event_id"), keyfn.JSON("event.id"))
	fmt.Println(key(keyfn.NewMessage([]byte(`{}`), map[string][]string{"event_id": {"ev-1"}})))
	fmt.Println(key(keyfn.NewMessage([]byte(`{"event":{"id":"ev-1"}}`), nil)))
	fmt.Println(key(keyfn.NewMessage([]byte(`{"event":{"id":null}}`), nil)))
	// Output:
	// ev-1 <nil>
	// ev-1 <nil>
	//  keyfn: JSON "event.id": null
}

func ExampleIn() {
	// An order, in Base64, in a member of the body.
	key := keyfn.In(keyfn.Base64("payload"), keyfn.Template("order:{id}"))
	fmt.Println(key(keyfn.NewMessage([]byte(`{"payload":"eyJpZCI6IjlmM2EifQ=="}`), nil)))
	// Output: order:9f3a <nil>
}

func ExampleVersion() {
	key := keyfn.Version(keyfn.JSON("v"), 2, keyfn.Template("order:{id}"))
	_, err := key(keyfn.NewMessage([]byte(`{"v":3,"orderIdentifier":"9f3a"}`), nil))
	fmt.Println(errors.Is(err, keyfn.ErrNewer))
	fmt.Println(err)
	// Output:
	// true
	// keyfn: Version "at most 2": payload version newer than the code: 3, newest known 2
}

func ExampleNewWatch() {
	w := keyfn.NewWatch(&keyfn.WatchOptions{OnWarning: func(v keyfn.Warning) { fmt.Println("warning:", v.Kind) }})
	messageID := func(m keyfn.Message) string { return m.Header("id")[0] }
	key := w.Func(messageID, keyfn.JSON("sentAt")) // a key that changes with every send

	for _, sentAt := range []string{"10:00", "10:05"} {
		m := keyfn.NewMessage([]byte(`{"sentAt":"`+sentAt+`"}`), map[string][]string{"id": {"m-1"}})
		if _, err := key(m); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(w.Warnings(keyfn.WarnUnstable))
	// Output:
	// warning: unstable
	// 1
}

func ExamplePart() {
	// A part of one's own shows up in errors and in Explain like any other.
	digits := keyfn.Part("Digits", "order", func(m keyfn.Message) (string, error) {
		s, err := keyfn.JSON("order")(m)
		if err == nil && strings.Trim(s, "0123456789") != "" {
			err = keyfn.ErrMalformed
		}
		return s, err
	})
	fmt.Println(digits(keyfn.NewMessage([]byte(`{"order":"1001"}`), nil)))
	fmt.Println(digits(keyfn.NewMessage([]byte(`{"order":"10-01"}`), nil)))
	// Output:
	// 1001 <nil>
	//  keyfn: Digits "order": malformed
}
