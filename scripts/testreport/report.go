package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
}

// missingService is how package testenv explains a skip.
const missingService = "`make test` starts this service"

type report struct {
	out     io.Writer
	require bool // a skip for want of a service is a failure

	output map[string][]string // by package and test: what it printed so far
	open   map[string][]string // by package: tests without a result

	packages, failedPackages       int
	passed, failed, subtests       int
	skipped                        map[string][]string // by reason: the tests
	failures, missing, buildFailed []string
}

func newReport(out io.Writer, require bool) *report {
	return &report{
		out: out, require: require,
		output: map[string][]string{}, open: map[string][]string{}, skipped: map[string][]string{},
	}
}

// line takes one line of input. What is not JSON is passed on.
func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		_, _ = r.out.Write(line)
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "build-fail":
		r.buildFailed = append(r.buildFailed, e.ImportPath)
	case e.Action == "output":
		r.output[e.id()] = append(r.output[e.id()], e.Output)
	case e.Test == "":
		r.packageEvent(e)
	default:
		r.testEvent(e)
	}
}

func (e event) id() string { return e.Package + " " + e.Test }

func (r *report) testEvent(e event) {
	if e.Action == "run" {
		r.open[e.Package] = append(r.open[e.Package], e.Test)
		return
	}
	if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	r.open[e.Package] = slices.DeleteFunc(r.open[e.Package], func(t string) bool { return t == e.Test })
	sub := strings.Contains(e.Test, "/")
	switch {
	case e.Action == "fail":
		r.fail(e)
	case e.Action == "skip":
		r.skip(e)
	case sub:
		r.subtests++
	default:
		r.passed++
	}
	delete(r.output, e.id())
}

func (r *report) fail(e event) {
	r.failed++
	r.failures = append(r.failures, e.id())
	r.print(r.output[e.id()])
}

func (r *report) skip(e event) {
	reason := skipReason(r.output[e.id()])
	r.skipped[reason] = append(r.skipped[reason], e.id())
	if strings.Contains(reason, missingService) {
		r.missing = append(r.missing, e.id())
	}
}

var position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// skipReason is the last thing that a skipped test said.
func skipReason(output []string) string {
	reason := "no reason given"
	for _, line := range output {
		if loc := position.FindStringIndex(line); loc != nil {
			reason = strings.TrimSpace(line[loc[1]:])
		}
	}
	return reason
}

func (r *report) packageEvent(e event) {
	switch e.Action {
	case "fail":
		r.failedPackages++
		// A test without a result was running when the process ended.
		for _, test := range r.open[e.Package] {
			r.fail(event{Package: e.Package, Test: test})
		}
		r.print(r.output[e.id()])
	case "pass", "skip":
		lines := slices.DeleteFunc(r.output[e.id()], func(l string) bool {
			return l == "PASS\n" || strings.HasPrefix(l, "-test.shuffle ")
		})
		r.print(lines)
	default:
		return
	}
	if e.Action != "skip" {
		r.packages++
	}
	delete(r.output, e.id())
	delete(r.open, e.Package)
}

// print leaves out the marks of progress that `go test` shows with -v only.
func (r *report) print(lines []string) {
	for _, l := range lines {
		if !strings.HasPrefix(l, "=== ") {
			fmt.Fprint(r.out, l)
		}
	}
}

// finish prints the summary and reports whether all is well.
func (r *report) finish() bool {
	skips := 0
	for _, tests := range r.skipped {
		skips += len(tests)
	}
	fmt.Fprintf(r.out, "\nran %d packages: %d tests and %d subtests passed, %d failed, %d skipped\n",
		r.packages, r.passed, r.subtests, r.failed, skips)
	reasons := make([]string, 0, len(r.skipped))
	for reason := range r.skipped {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	for _, reason := range reasons {
		tests := r.skipped[reason]
		r.list(fmt.Sprintf("skipped %d, %s:", len(tests), reason), tests, maxListed)
	}
	r.list("failed:", r.failures, len(r.failures))
	r.list("did not build:", r.buildFailed, len(r.buildFailed))
	ok := r.failed == 0 && r.failedPackages == 0 && len(r.buildFailed) == 0
	if r.require && len(r.missing) > 0 {
		fmt.Fprintf(r.out, "%d tests were skipped for want of a service, but every service is required\n", len(r.missing))
		ok = false
	}
	return ok && r.packages > 0
}

// maxListed is how many tests the summary names for one reason of skips.
const maxListed = 6

func (r *report) list(title string, tests []string, limit int) {
	if len(tests) == 0 {
		return
	}
	fmt.Fprintln(r.out, title)
	for _, t := range tests[:min(limit, len(tests))] {
		fmt.Fprintln(r.out, "   ", t)
	}
	if more := len(tests) - limit; more > 0 {
		fmt.Fprintf(r.out, "    and %d more\n", more)
	}
}
