package main

import (
	"context"
	"net/http"
	"net/http/httptest"
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
