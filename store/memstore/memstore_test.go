package memstore_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// harness is a new store with an audit hook.
func harness(*testing.T) storetest.Harness {
	var mu sync.Mutex
	var audits []store.Audit
	return storetest.Harness{
		Store: memstore.New(&memstore.Options{Audit: func(a store.Audit) {
			mu.Lock()
			defer mu.Unlock()
			audits = append(audits, a)
		}}),
		Audits: func() []store.Audit {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(audits)
		},
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness) }

func TestConformanceInFakeTime(t *testing.T) { storetest.RunInBubble(t, harness) }
