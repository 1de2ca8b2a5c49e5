// Command testreport turns the output of `go test -json` into what a person
// reads: the ordinary result line of every package, the output of tests that
// failed, and at the end how many tests ran and which were skipped, with the
// reasons.
//
// It exits with 1 if a test or package failed, and if a test was skipped for
// want of a service although SECONDRUN_REQUIRE_SERVICES is set.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	r := newReport(out, os.Getenv("SECONDRUN_REQUIRE_SERVICES") != "")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
			out.Flush()
		}
		if err != nil {
			break
		}
	}
	ok := r.finish()
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		ok = false
	}
	if !ok {
		os.Exit(1)
	}
}
