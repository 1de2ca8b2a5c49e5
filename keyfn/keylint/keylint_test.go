package keylint_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/secondrun/secondrun/keyfn/keylint"
)

// TestSamples: every bad sample is found, with the comment beside it saying
// what is reported, and no good one is.
func TestSamples(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), keylint.Analyzer, "bad", "good", "unrelated")
}
