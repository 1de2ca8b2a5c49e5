package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" { // the process that the demo kills
		main()
		return
	}
	leaktest.Main(m)
}

// The demo keeps its promise: with secondrun, one charge and one mail in every
// scene.
func TestQuickstart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute; left out by -short")
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
