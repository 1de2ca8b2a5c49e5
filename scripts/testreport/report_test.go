package main

import (
	"fmt"
	"strings"
	"testing"
)

// passing has a test that passes, one that is skipped for a service and one
// that is skipped for another reason.
const passing = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"-test.shuffle 7\n"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"run","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: SECONDRUN_X is not set; ` + "`make test` starts this service" + `\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: long\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

func TestPassingRun(t *testing.T) {
	got, ok := read(passing, false)
	want := "ok  \tp\t0.1s\n\n" +
		"ran 1 packages: 1 tests and 1 subtests passed, 0 failed, 2 skipped\n" +
		"skipped 1, SECONDRUN_X is not set; `make test` starts this service:\n    p TestB\n" +
		"skipped 1, long:\n    p TestC\n"
	if got != want || !ok {
		t.Errorf("ok = %v, report:\n%s\nwant:\n%s", ok, got, want)
	}
}

func TestLongListsOfSkipsAreCut(t *testing.T) {
	var in strings.Builder
	for i := range 8 {
		fmt.Fprintf(&in, "{\"Action\":\"skip\",\"Package\":\"p\",\"Test\":\"Test%d\"}\n", i)
	}
	got, _ := read(in.String(), false)
	if !strings.HasSuffix(got, "skipped 8, no reason given:\n    p Test0\n    p Test1\n    p Test2\n    p Test3\n    p Test4\n    p Test5\n    and 2 more\n") {
		t.Error(got)
	}
}

func TestMissingServiceIsAFailureWhereRequired(t *testing.T) {
	got, ok := read(passing, true)
	if ok || !strings.Contains(got, "1 tests were skipped for want of a service") {
		t.Errorf("ok = %v, report:\n%s", ok, got)
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"a test": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`, "    a_test.go:1: wrong\nFAIL\tp\t0.1s\n",
		},
		"a test that never ends": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t600s\n"}
{"Action":"fail","Package":"p"}
`, "panic: test timed out\nFAIL\tp\t600s\n",
		},
		"a build": {
			`{"Action":"build-output","ImportPath":"p","Output":"a.go:1: no\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`, "a.go:1: no\nFAIL\tp [build failed]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := read(test.in, false)
			if ok || !strings.HasPrefix(got, test.want) {
				t.Errorf("ok = %v, report:\n%s\nwant it to start with:\n%s", ok, got, test.want)
			}
		})
	}
}

func TestNothingRan(t *testing.T) {
	if got, ok := read("go: no such module\n", false); ok || !strings.HasPrefix(got, "go: no such module\n") {
		t.Errorf("ok = %v, report:\n%s", ok, got)
	}
}

func read(in string, require bool) (string, bool) {
	var out strings.Builder
	r := newReport(&out, require)
	for line := range strings.Lines(in) {
		r.line([]byte(line))
	}
	ok := r.finish()
	return out.String(), ok
}
