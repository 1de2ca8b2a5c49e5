package main

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestLambda(t *testing.T) {
	t.Setenv("QUEUE_URL", "")
	var out lines
	h, err := function(memstore.New(nil), &shop{out: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := local(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(strings.ReplaceAll(out.b.String(), "executed ", ""))
	slices.Sort(got)
	if !slices.Equal(got, []string{"p-1", "p-2", "p-3"}) {
		t.Errorf("executed %v, want each purchase once", got)
	}
}

// lines takes writes of several handlers.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
