// Quickstart shows five ways in which a message is worked on twice, each with
// and without secondrun, on an SQS queue and a SQLite file. It needs no service
// and no account and talks to loopback only.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		err = workerProcess(os.Args[2:])
	} else {
		err = run(context.Background(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "secondrun-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary

	say := speaker(out)
	// SQS does not say what a delete with an outdated handle does. Here it
	// works; otherwise the slow handler without secondrun would never end.
	srv := sqstest.NewServer(&sqstest.Options{Stale: sqstest.StaleApply})
	d := &demo{srv: srv, dir: dir, say: say}
	var closeWorld func()
	if d.world, closeWorld, err = newWorld(say); err != nil {
		return err
	}
	defer closeWorld()
	ready := make(chan string, 1)
	served := make(chan error, 1)
	go func() { served <- d.srv.ListenAndServe(ctx, "", func(url string) { ready <- url }) }()
	select {
	case d.sqs = <-ready:
	case err := <-served:
		return err
	}

	fmt.Fprint(out, "Every order should be charged once and mailed once.\n")
	results := make([]map[string]tally, len(scenes))
	for i, s := range scenes {
		fmt.Fprintf(out, "\n%d. %s\n   %s\n", i+1, strings.ToUpper(s.name), s.story)
		if results[i], err = d.play(ctx, i+1, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	cancel()
	if err := <-served; err != nil {
		return err
	}
	return table(out, results)
}

// speaker prints what happens, as it happens.
func speaker(out io.Writer) func(mode, format string, args ...any) {
	var mu sync.Mutex
	start := time.Now()
	return func(mode, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "   %5.1fs  %-8s %s\n", time.Since(start).Seconds(), mode, fmt.Sprintf(format, args...))
	}
}

// table prints what it came to, and returns an error when secondrun did not
// keep its promise.
func table(out io.Writer, results []map[string]tally) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\tdeliveries\truns\tcharges\tmails\tsuppressed\t")
	var broken []string
	for i, s := range scenes {
		for _, mode := range []string{without, with} {
			t := results[i][mode]
			name := ""
			if mode == without {
				name = s.name
			}
			note := ""
			if t.Charges != 1 || t.Mails != 1 {
				note = "  <- wrong"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", name, mode, t.Deliveries, t.Runs, t.Charges, t.Mails, t.Suppressed, note)
			if mode == with && note != "" {
				broken = append(broken, s.name)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if broken != nil {
		return fmt.Errorf("with secondrun, not exactly one charge and one mail: %s", strings.Join(broken, ", "))
	}
	return nil
}
