package storetest

import (
	"testing"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestCorrectStorePasses(t *testing.T) {
	Run(t, func(*testing.T) Harness { return Harness{Store: seeded.Correct()} })
}

func TestCorrectStorePassesInFakeTime(t *testing.T) {
	RunInBubble(t, func(*testing.T) Harness { return Harness{Store: seeded.Correct()} })
}
