//go:build race

package keyfn_test

const raceEnabled = true
