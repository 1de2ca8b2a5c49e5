package ownstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/secondrun/secondrun/examples/ownstore"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/storetest"
)

// The whole conformance suite, with one function.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{Store: ownstore.New()}
	})
}

// A store of one's own is used like any other.
func Example() {
	g, err := secondrun.New("reports", ownstore.New(), nil)
	if err != nil {
		panic(err)
	}
	for range 2 {
		err := secondrun.DoFunc(context.Background(), g, "daily:2026-06-14", func(context.Context) error {
			fmt.Println("the report is written")
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	// Output: the report is written
}
