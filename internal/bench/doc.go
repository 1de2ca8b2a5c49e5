// Package bench holds benchmarks of the middleware over real stores, each
// beside a floor in the same run.
package bench
