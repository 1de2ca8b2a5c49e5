package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/rules"
)

// TestKeysOfOneHashAreSeparate inserts and removes entries that have one hash,
// in every order.
func TestKeysOfOneHashAreSeparate(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var sh shard
		sh.init(time.Now())
		keys := make([]key, 3)
		entries := make([]*entry, 3)
		for i := range keys {
			keys[i] = key{hash: 7, scope: "s", key: fmt.Sprint(i)}
			entries[i] = sh.take(keys[i])
			entries[i].rec = rules.Record{State: store.StateSucceeded}
			sh.insert(entries[i])
		}
		for n, i := range order {
			if sh.lookup(keys[i]) != entries[i] || sh.live != 3-n {
				t.Fatalf("order %v: key %d is not found, or %d live", order, i, sh.live)
			}
			sh.remove(entries[i])
			if sh.lookup(keys[i]) != nil {
				t.Fatalf("order %v: key %d is still found", order, i)
			}
		}
		if len(sh.entries) != 0 || sh.live != 0 {
			t.Fatalf("order %v: %d hashes, %d entries left", order, len(sh.entries), sh.live)
		}
	}
}
