package pgstore

import (
	"sync"
	"testing"

	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, direct(t)) })
}

func TestG06_ConformanceBehindPgBouncer(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, bouncer(t)) })
}

func TestG02_ConformanceSerializable(t *testing.T) {
	dsn := withParam(direct(t), "default_transaction_isolation", "serializable")
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, dsn) })
}

// harness has two clients and remembers audits.
func harness(t *testing.T, dsn string) storetest.Harness {
	opts := freshTable(t)
	var mu sync.Mutex
	var audits []store.Audit
	opts.Audit = func(a store.Audit) {
		mu.Lock()
		defer mu.Unlock()
		audits = append(audits, a)
	}
	return storetest.Harness{
		Store: open(t, dsn, opts),
		Peer:  open(t, dsn, opts),
		Audits: func() []store.Audit {
			mu.Lock()
			defer mu.Unlock()
			return append([]store.Audit(nil), audits...)
		},
	}
}
