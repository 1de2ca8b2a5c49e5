package bench

import (
	"testing"

	"github.com/secondrun/secondrun/store/memstore"
)

// The floor does what it should: the second time it is refused.
func TestPair(t *testing.T) {
	st := memstore.New(nil)
	if err := pair(st, "s", "k"); err != nil {
		t.Error(err)
	}
	if err := pair(st, "s", "k"); err == nil {
		t.Error("a duplicate was granted")
	}
}
