package lincheck_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/sqlitestore"
	"github.com/secondrun/secondrun/store/storetest/lincheck"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

// size is that of an ordinary run, or of a soak.
func size() lincheck.Config { return lincheck.Config{Histories: testenv.Size(40, 500), Ops: 300} }

func TestCorrect(t *testing.T) {
	lincheck.Run(t, "simple", seeded.Correct, size())
}

func TestMemory(t *testing.T) {
	lincheck.Run(t, "memstore", func() store.Store { return memstore.New(nil) }, size())
}

func TestSQLite(t *testing.T) {
	dir := t.TempDir()
	var n atomic.Int64
	lincheck.Run(t, "sqlitestore", func() store.Store {
		path := filepath.Join(dir, fmt.Sprint(n.Add(1)))
		var clients []store.Store
		for range 2 {
			s, err := sqlitestore.Open(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			clients = append(clients, s)
		}
		return lincheck.Spread(clients...)
	}, size())
}
