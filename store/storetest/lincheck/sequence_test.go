package lincheck_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
	"github.com/secondrun/secondrun/store/sqlitestore"
	"github.com/secondrun/secondrun/store/storetest/lincheck"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

func nothing() {}

func TestSequences(t *testing.T) {
	dir, n := t.TempDir(), 0
	for name, open := range map[string]func(t *testing.T) (store.Store, func()){
		"simple":   func(*testing.T) (store.Store, func()) { return seeded.Correct(), nothing },
		"memstore": func(*testing.T) (store.Store, func()) { return memstore.New(nil), nothing },
		"sqlitestore": func(t *testing.T) (store.Store, func()) {
			n++
			s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, fmt.Sprint(n)), &sqlitestore.Options{Durability: sqlitestore.Normal})
			if err != nil {
				t.Fatal(err)
			}
			return s, func() { _ = s.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range testenv.Size(1, 50) { // of 100 sequences each
				synctest.Test(t, func(t *testing.T) {
					lincheck.Sequences(t, func() (store.Store, func()) { return open(t) })
				})
			}
		})
	}
}

// recorder is a test that may fail.
type recorder struct {
	rapid.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Log(...any)            {}
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Fail()                 { r.failed = true }
func (r *recorder) FailNow() {
	r.failed = true
	runtime.Goexit()
}

func (r *recorder) Fatalf(string, ...any) { r.FailNow() }
func (r *recorder) Fatal(...any)          { r.FailNow() }

// found reports whether sequences find a bug.
func found(t *testing.T, bug seeded.Bug) bool {
	r := &recorder{TB: t}
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 3 {
				lincheck.Sequences(r, func() (store.Store, func()) { return bug.Store(), nothing })
			}
		}()
		<-done
	})
	return r.failed
}

// TestSeededBugs says which layer finds which of the known bugs. What only
// concurrency reveals is left to the histories; they find everything else too.
func TestSeededBugs(t *testing.T) {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil { // they are meant to fail
		t.Fatal(err)
	}
	onlyConcurrent := map[string]bool{"check then act": true}
	for _, bug := range seeded.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			r := lincheck.Check(t.Context(), bug.Store, lincheck.Config{Histories: 60})
			bySequence := found(t, bug)
			t.Logf("%-22s illegal histories %2d of %d, found by sequences: %t", bug.Name, r.Illegal, r.Histories, bySequence)
			if r.Illegal == 0 {
				t.Error("not found by histories")
			}
			if bySequence == onlyConcurrent[bug.Name] {
				t.Errorf("found by sequences: %t", bySequence)
			}
		})
	}
}
