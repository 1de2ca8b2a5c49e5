package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/sqlitestore"
)

func Example() {
	dir, err := os.MkdirTemp("", "secondrun")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	ctx := context.Background()
	st, err := sqlitestore.Open(ctx, filepath.Join(dir, "records.db"), nil)
	if err != nil {
		panic(err)
	}
	defer st.Close() //nolint:errcheck // everything that was answered is on the disk

	id := store.ID{Scope: "billing", Key: "invoice:inv_8841:capture"}
	deliver := func() {
		token := store.NewToken()
		claims, err := st.Claim(ctx, []store.ClaimRequest{
			{ID: id, Token: token, Lease: time.Minute, Retention: 30 * 24 * time.Hour},
		})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s %q\n", claims[0].Verdict, claims[0].Payload)
		if claims[0].Verdict != store.Granted {
			return
		}
		_, err = st.Settle(ctx, []store.Settlement{
			{ID: id, Token: token, Kind: store.Succeed, Payload: []byte("captured"), Retention: 30 * 24 * time.Hour},
		})
		if err != nil {
			panic(err)
		}
	}
	deliver()
	deliver() // again
	// Output:
	// granted ""
	// done "captured"
}
