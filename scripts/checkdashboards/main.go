// Checkdashboards asks a Prometheus server every query of a Grafana dashboard
// and fails for each that returns no number, and for each metric in the
// dashboard or in the rules that the server does not know:
//
//	go run ./scripts/checkdashboards -prometheus http://127.0.0.1:9090 dashboards/secondrun.json dashboards/rules.yml
//
// It asks again for a minute, since rates need some scrapes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	server := flag.String("prometheus", "", "URL of the server")
	patience := flag.Duration("patience", time.Minute, "how long to ask again")
	flag.Parse()
	if flag.NArg() != 2 || *server == "" {
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	n, err := check(ctx, *server, flag.Arg(0), flag.Arg(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkdashboards:", err)
		os.Exit(1)
	}
	fmt.Printf("checkdashboards: %d queries return data\n", n)
}

// query is one that must return data.
type query struct{ where, expr string }

func check(ctx context.Context, server, dashboard, rules string) (int, error) {
	b, err := os.ReadFile(dashboard)
	if err != nil {
		return 0, err
	}
	open, err := queries(b)
	if err != nil {
		return 0, err
	}
	r, err := os.ReadFile(rules)
	if err != nil {
		return 0, err
	}
	for _, name := range metrics(string(b) + string(r)) {
		open = append(open, query{"metric " + name, "count(" + name + ")"})
	}
	n := len(open)
	for {
		open, err = unanswered(ctx, server, open)
		if err == nil {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(time.Second):
		}
	}
}

// unanswered asks the queries and returns those that have no answer yet.
func unanswered(ctx context.Context, server string, qs []query) (open []query, err error) {
	var errs []error
	for _, q := range qs {
		// The last attempt may be cut off by the deadline: its error would hide
		// what the one before has found.
		if err := ask(context.WithoutCancel(ctx), server, q.expr); err != nil {
			open = append(open, q)
			errs = append(errs, fmt.Errorf("%s: %s: %w", q.where, q.expr, err))
		}
	}
	return open, errors.Join(errs...)
}

// queries are all of a dashboard, with its variables filled in for a server
// that has scraped for some seconds only.
func queries(dashboard []byte) ([]query, error) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("$__rate_interval", "30s", "$scope", ".*", "$compare", "5s")
	var qs []query
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			qs = append(qs, query{fmt.Sprintf("panel %q", p.Title), fill.Replace(t.Expr)})
		}
	}
	if len(qs) == 0 {
		return nil, errors.New("the dashboard has no queries")
	}
	return qs, nil
}

var metricName = regexp.MustCompile(`\bsecondrun_[a-z_]+\b`)

// metrics are the names of all metrics in a text, but not of recording rules,
// which have colons around.
func metrics(text string) []string {
	var names []string
	for _, at := range metricName.FindAllStringIndex(text, -1) {
		if (at[0] == 0 || text[at[0]-1] != ':') && (at[1] == len(text) || text[at[1]] != ':') {
			names = append(names, text[at[0]:at[1]])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var client = http.Client{Timeout: 10 * time.Second}

// ask returns nil when the answer to an instant query holds a number.
func ask(ctx context.Context, server, expr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // was read
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value []any }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		if len(r.Value) == 2 && r.Value[1] != "NaN" {
			return nil
		}
	}
	return errors.New("no data")
}
