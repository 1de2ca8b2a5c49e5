package lincheck_test

import (
	"testing"

	"github.com/secondrun/secondrun/store/storetest/lincheck"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

func TestSeededBugs(t *testing.T) {
	for _, bug := range seeded.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			r := lincheck.Check(t.Context(), bug.Store, lincheck.Config{Histories: 40})
			t.Logf("illegal %d of %d histories", r.Illegal, r.Histories)
			if r.Illegal == 0 {
				t.Error("not found")
			}
		})
	}
}
