package keyfn_test

import (
	"fmt"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
)

type Order struct {
	ID string `json:"id"`
}

// The code of the guide "Choosing a key".
func Example() {
	keys := []keyfn.Func{
		keyfn.Template("invoice:{id}:capture"),                         // fields of a JSON body
		keyfn.Template("{header:tenant}:order:{orderId}"),              // and headers that your gateway has set
		keyfn.From(func(o Order) (string, error) { return o.ID, nil }), // typed
		keyfn.Join(keyfn.Literal("order"), keyfn.JSON("id")),           // parts, joined so that no two lists are equal
		keyfn.In(awskey.SNS, keyfn.Template("{event}:{orderId}")),      // inside an envelope
		keyfn.First(keyfn.Header("event_id"), keyfn.JSON("event_id")),  // two shapes of one event
	}
	m := keyfn.NewMessage([]byte(`{"id":"inv_8841","orderId":"9f3a","event":"paid"}`), map[string][]string{"tenant": {"t-1"}, "event_id": {"ev-1"}})
	for _, key := range keys {
		fmt.Println(key(m))
	}
	// Output:
	// invoice:inv_8841:capture <nil>
	// t-1:order:9f3a <nil>
	// inv_8841 <nil>
	// order:inv_8841 <nil>
	// paid:9f3a <nil>
	// ev-1 <nil>
}

func ExamplePaths() {
	strip := keyfn.Hash(keyfn.Strip("sentAt", "meta.trace_id", "lines.*.updated_at")) // all but the volatile
	keep := keyfn.Hash(keyfn.Keep("user.id", "email_data.token_hash"))                // only the stable; better

	for _, sent := range []string{"10:00", "10:05"} {
		m := keyfn.NewMessage([]byte(`{"user":{"id":"u-1"},"email_data":{"token_hash":"h1"},"sentAt":"`+sent+`"}`), nil)
		a, err1 := strip(m)
		b, err2 := keep(m)
		fmt.Println(a[:8], err1, b[:8], err2)
	}
	// Output:
	// cb8a87fb <nil> cb8a87fb <nil>
	// cb8a87fb <nil> cb8a87fb <nil>
}

func ExampleCollapse() {
	berlin := time.FixedZone("Europe/Berlin", 2*60*60) // in a program: time.LoadLocation("Europe/Berlin")
	keys := []keyfn.Func{
		keyfn.Join(keyfn.Literal("report"), keyfn.Every(15*time.Minute, keyfn.JSON("slot"))),
		keyfn.Join(keyfn.Literal("rollup"), keyfn.Daily(berlin, keyfn.JSON("slot"))),
		keyfn.Collapse(10*time.Minute, keyfn.JSON("slot"), keyfn.JSON("to"), keyfn.JSON("template"), keyfn.JSON("entity")),
	}
	m := keyfn.NewMessage([]byte(`{"slot":"2026-06-14T22:17:00Z","to":"u-5","template":"assigned","entity":"task-9"}`), nil)
	for _, key := range keys {
		fmt.Println(key(m))
	}
	// Output:
	// report:20260614T221500Z/PT15M <nil>
	// rollup:2026-06-15[Europe/Berlin] <nil>
	// u-5:assigned:task-9:20260614T221000Z/PT10M <nil>
}
