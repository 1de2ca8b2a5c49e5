package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestQueriesAndMetrics(t *testing.T) {
	qs, err := queries([]byte(`{"panels":[{"title":"row"},{"title":"a","targets":[{"expr":"rate(secondrun_x_total{scope=~\"$scope\"}[$__rate_interval] offset $compare)"}]}]}`))
	if err != nil || len(qs) != 1 || qs[0].expr != `rate(secondrun_x_total{scope=~".*"}[30s] offset 5s)` {
		t.Error(qs, err)
	}
	if _, err := queries([]byte(`{"panels":[]}`)); err == nil {
		t.Error("an empty dashboard passes")
	}
	got := metrics("sum(secondrun_a_total) + scope:secondrun_b:ratio + secondrun_a_total + secondrun_c")
	if !slices.Equal(got, []string{"secondrun_a_total", "secondrun_c"}) {
		t.Error(got)
	}
}

func TestOnlyNumbersAreData(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"status":"success","data":{"result":[{"value":[1,"0"]}]}}`:                     true,
		`{"status":"success","data":{"result":[{"value":[1,"NaN"]},{"value":[1,"2"]}]}}`: true,
		`{"status":"success","data":{"result":[{"value":[1,"NaN"]}]}}`:                   false,
		`{"status":"success","data":{"result":[]}}`:                                      false,
		`{"status":"error","error":"parse error","data":{"result":[{"value":[1,"1"]}]}}`: false,
		`not json`: false,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = strings.NewReader(body).WriteTo(w) }))
		if err := ask(context.Background(), s.URL, "x"); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
		s.Close()
	}
}

// TestEveryAlertIsTestedAndExplained holds the rules against their unit tests
// and against the page that says what to do.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	rules, tests, page := read(t, "dashboards/rules.yml"), read(t, "dashboards/rules_test.yml"), read(t, "dashboards/README.md")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 7 {
		t.Errorf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		fires := regexp.MustCompile(`alertname: ` + a[1] + `\n\s+exp_alerts:\n\s+- exp_labels`)
		if !fires.MatchString(tests) {
			t.Errorf("no test in which %s fires", a[1])
		}
		if !strings.Contains(page, "\n## "+a[1]+"\n") {
			t.Errorf("README.md does not explain %s", a[1])
		}
		if !strings.Contains(rules, "README.md#"+strings.ToLower(a[1])+"'") {
			t.Errorf("%s does not point to its explanation", a[1])
		}
	}
}

// TestEveryMetricIsExplained holds the names of the metrics against the guide.
func TestEveryMetricIsExplained(t *testing.T) {
	page := read(t, "docs/telemetry.md")
	for _, file := range []string{"middleware/telemetry_names.go", "adapters/sqs/telemetry_names.go"} {
		names := regexp.MustCompile(`metric\w+ += "(.+?)"`).FindAllStringSubmatch(read(t, file), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, n := range names {
			if !strings.Contains(page, "`"+n[1]+"`") {
				t.Errorf("docs/telemetry.md does not explain %s", n[1])
			}
		}
	}
}

func read(t *testing.T, name string) string {
	b, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
