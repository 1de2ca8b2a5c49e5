package sqlitestore

import (
	"testing"

	"github.com/secondrun/secondrun/store/storetest"
)

// The suite with a clock that stands still, so that the boundary cases run
// (Z08), and with two clients on one file.
func TestConformanceExact(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path, clock, log := newPath(t), newClock(), &audits{}
		opts := &Options{Audit: log.add}
		st, peer := open(t, path, opts), open(t, path, opts)
		st.now, peer.now = clock.now, clock.now
		return storetest.Harness{Store: st, Peer: peer, Wait: clock.advance, Exact: true, Audits: log.all}
	})
}

// The suite on the host's clock and with the default durability.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path, log := newPath(t), &audits{}
		opts := &Options{Audit: log.add}
		return storetest.Harness{Store: open(t, path, opts), Peer: open(t, path, opts), Audits: log.all}
	})
}
