package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

// A second delivery is told what the first one has recorded.
func Example() {
	ctx, st := context.Background(), memstore.New(nil)
	id := store.ID{Scope: "billing", Key: "invoice:inv_8841:capture"}
	claim := func(token store.Token) store.Claim {
		c, err := st.Claim(ctx, []store.ClaimRequest{{ID: id, Token: token, Lease: time.Minute, Retention: 24 * time.Hour}})
		if err != nil {
			panic(err)
		}
		return c[0]
	}

	first, second := store.NewToken(), store.NewToken()
	fmt.Println(claim(first).Verdict)
	fmt.Println(claim(second).Verdict)

	done, err := st.Settle(ctx, []store.Settlement{{
		ID: id, Token: first, Kind: store.Succeed, Payload: []byte("captured"), Retention: 24 * time.Hour,
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(done[0].Code)

	c := claim(second)
	fmt.Printf("%s: %s\n", c.Verdict, c.Payload)
	// Output:
	// granted
	// busy
	// ok
	// done: captured
}
