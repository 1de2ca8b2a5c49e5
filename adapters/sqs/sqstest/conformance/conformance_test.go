package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// assess reports each rule as a subtest's line: a difference must be listed,
// and a listed one must be there.
func assess(t *testing.T, client *sqs.Client, server string) {
	t.Helper()
	list := knownDifferences(server)
	for _, r := range check(t.Context(), client, "", 16) {
		k, listed := list[r.id]
		switch {
		case r.err == nil && listed:
			t.Errorf("%s passes, but is listed as a difference of %s: %s", r.id, server, k.why)
		case r.err != nil && !k.explains(r.err):
			t.Errorf("%s (%s): %v", r.id, r.text, r.err)
		case r.err != nil:
			t.Logf("%s differs as known: %s", r.id, k.why)
		}
	}
}

func TestConformance_InFakeTime(t *testing.T) {
	for _, o := range []*sqstest.Options{nil, {Stale: sqstest.StaleApply}} {
		synctest.Test(t, func(t *testing.T) { assess(t, sqstest.NewServer(o).Client(), "none") })
	}
}

func TestConformance_OverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes real seconds")
	}
	hs := httptest.NewServer(sqstest.NewServer(nil))
	defer hs.Close()
	assess(t, newClient(hs.URL), "none")
}

// The independent server; each of its differences is explained.
func TestConformance_Endpoint(t *testing.T) {
	endpoint := testenv.Get(t, testenv.SQSVar)
	name, err := guess(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	assess(t, newClient(endpoint), name)
}

// Rules can fail: under StaleError exactly those on outdated handles do, and
// without the query header that one and no other.
func TestConformance_FindsDeviations(t *testing.T) {
	for name, c := range map[string]struct {
		o    sqstest.Options
		want string
	}{
		"stale error": {sqstest.Options{Stale: sqstest.StaleError}, "handle-expired-extend handle-superseded-delete"},
		"no header":   {sqstest.Options{OmitQueryErrors: true}, "error-query-header"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				for _, r := range check(t.Context(), sqstest.NewServer(&c.o).Client(), "", 16) {
					if r.err != nil {
						got = append(got, r.id)
					}
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("differs in %v, want %s", got, c.want)
				}
			})
		})
	}
}

func TestReport(t *testing.T) {
	results := []result{
		{rule: rule{id: "a", text: "one"}, note: "seen"},
		{rule: rule{id: "b", text: "two"}, err: difference("it is odd")},
		{rule: rule{id: "c", text: "three"}, err: difference("it is odd")},
	}
	list := map[string]known{"b": {"odd", "so it is"}, "c": {"even", "so it was"}}
	var out strings.Builder
	if report(&out, results, list) {
		t.Error("an unexplained difference was accepted")
	}
	for _, want := range []string{
		"pass     a", "observed: seen", "differs  b", "known: so it is", "DIFFERS  c",
		"1 pass, 1 differ as known, 1 differ\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if !report(&out, results[:2], list) {
		t.Error("a known difference was not accepted")
	}
}

func TestRun(t *testing.T) {
	hs := httptest.NewServer(sqstest.NewServer(nil))
	defer hs.Close()
	var out strings.Builder
	ok, err := run(context.Background(), []string{"-endpoint", hs.URL, "-rule", "batch-"}, &out)
	if err != nil || !ok || !strings.Contains(out.String(), "4 pass, 0 differ as known, 0 differ") {
		t.Fatal(ok, err, out.String())
	}
	if ok, err := run(context.Background(), []string{"-rule", "error-"}, &out); err != nil || !ok {
		t.Fatal(ok, err)
	}
}

// The table that readers see has a row for each difference that is asserted.
func TestReadme_ListsTheDifferences(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	total, known := len(rules()), elasticMQ()
	for _, want := range []string{
		fmt.Sprintf("against %d rules", total), fmt.Sprintf("agrees on %d,", total-len(known)),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
	for id, k := range known {
		if !strings.Contains(string(text), "| `"+id+"` | "+k.why+" |") {
			t.Errorf("README.md lacks the row\n| `%s` | %s |", id, k.why)
		}
	}
}
