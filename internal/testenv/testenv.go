// Package testenv tells tests where the services are that they need.
//
// The addresses come from environment variables, which `make test` sets for
// the servers it starts and which may name existing servers instead. Where a
// variable is missing the test is skipped with the reason, or fails when
// SECONDRUN_REQUIRE_SERVICES is set, as it is in CI.
package testenv

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Names of the environment variables.
const (
	PostgresVar  = "SECONDRUN_POSTGRES_URL"   // a superuser's URL of a throw-away database
	PgBouncerVar = "SECONDRUN_PGBOUNCER_URL"  // the same database through PgBouncer in transaction mode
	RedisVar     = "SECONDRUN_REDIS_ADDR"     // host:port of a standalone server
	SentinelVar  = "SECONDRUN_SENTINEL_ADDRS" // comma-separated; the master is called "secondrun"
	ClusterVar   = "SECONDRUN_CLUSTER_ADDRS"  // comma-separated nodes of a cluster
	SQSVar       = "SECONDRUN_SQS_ENDPOINT"   // URL of an independent SQS-compatible server
	requireVar   = "SECONDRUN_REQUIRE_SERVICES"
)

// Get returns the value of the variable. Without one it skips or fails the
// test.
func Get(tb testing.TB, variable string) string {
	tb.Helper()
	v := os.Getenv(variable)
	if v != "" {
		return v
	}
	if Required() {
		tb.Fatalf("%s is not set, and %s demands every service", variable, requireVar)
	}
	tb.Skipf("%s is not set; `make test` starts this service", variable)
	return ""
}

// List returns the comma-separated parts of Get.
func List(tb testing.TB, variable string) []string {
	tb.Helper()
	return strings.Split(Get(tb, variable), ",")
}

// Required reports whether a missing service is a failure.
func Required() bool { return os.Getenv(requireVar) != "" }

// Soak reports whether long scenarios run at full size (`make soak`).
func Soak() bool { return os.Getenv("SECONDRUN_SOAK") != "" }

// Size returns small in an ordinary run and full in a soak.
func Size(small, full int) int {
	if Soak() {
		return full
	}
	return small
}

// seedVar holds the seed of a test run; SEED=... `make test` sets it.
const seedVar = "SECONDRUN_SEED"

// Seed returns the number that random choices of a test start from. The test
// shows it when it fails, and the same SEED repeats it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	tb.Logf("seed %d (%s=%d repeats it)", seed, seedVar, seed)
	return seed
}
