package cases

import (
	"testing"

	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

// TestU31_Golden compares every key of every case with those of the last
// release. It runs on 32-bit builds too.
func TestU31_Golden(t *testing.T) {
	var samples []keyfntest.Sample
	for _, c := range All() {
		for _, m := range c.Messages {
			samples = append(samples, keyfntest.Sample{Name: c.ID + " " + c.Name + ": " + m.Name, Key: c.Key, Message: m.Message})
		}
	}
	keyfntest.Golden(t, "testdata/keys.golden", samples...)
}
