package main

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestLoop(t *testing.T) {
	t.Setenv("QUEUE_URL", "")
	var out bytes.Buffer
	if err := run(t.Context(), &lines{w: &out}); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(strings.ReplaceAll(out.String(), "fulfilled ", ""))
	slices.Sort(got)
	if !slices.Equal(got, []string{"9f3a", "9f3b"}) {
		t.Errorf("fulfilled %v, want each order once", got)
	}
}

// lines takes writes of several handlers.
type lines struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
