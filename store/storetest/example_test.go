package storetest_test

import (
	"testing"

	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/storetest"
)

// The test of a store of your own has this shape.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		storetest.Run(t, func(*testing.T) storetest.Harness {
			return storetest.Harness{Store: memstore.New(nil), Peer: nil}
		})
	}
	// Output:
}
