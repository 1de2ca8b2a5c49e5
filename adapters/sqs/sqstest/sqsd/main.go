// Command sqsd serves an SQS in memory over HTTP, for programs in any
// language. Set their endpoint to the URL that it prints; any credentials do.
//
//	go run github.com/secondrun/secondrun/adapters/sqs/sqstest/sqsd -addr 127.0.0.1:9324 -queue orders -queue jobs.fifo
//
// Everything is lost when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sqsd:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("sqsd", flag.ContinueOnError)
	addr := fs.String("addr", "127.0.0.1:9324", "address to listen on")
	remote := fs.Bool("allow-remote", false, "allow an address that other machines reach; there is no authentication")
	seed := fs.Uint64("seed", 0, "seed of ids and of everything random, 0 to draw one")
	stale := fs.String("stale", "noop", "outdated handles on standard queues: noop, apply or error")
	shuffle := fs.Bool("shuffle", false, "deliver standard queues in random order and in short batches")
	var queues []string
	fs.Func("queue", "queue to create at the start, repeatable; name.fifo makes a FIFO queue", func(v string) error {
		queues = append(queues, v)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if !*remote && !loopback(*addr) {
		return fmt.Errorf("%s is not a loopback address; see -allow-remote", *addr)
	}
	o := &sqstest.Options{Seed: *seed, Shuffle: *shuffle, ShortReceives: *shuffle, KeepDeleted: -1, KeepCalls: -1}
	var err error
	if o.Stale, err = policy(*stale); err != nil {
		return err
	}
	srv := sqstest.NewServer(o)
	for _, name := range queues {
		if _, err := srv.CreateQueue(name, nil); err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	return srv.ListenAndServe(ctx, *addr, func(url string) {
		fmt.Fprintf(out, "endpoint %s\n", url)
		for _, name := range srv.Queues() {
			fmt.Fprintf(out, "queue    %s/000000000000/%s\n", url, name)
		}
	})
}

func policy(name string) (sqstest.Stale, error) {
	switch strings.ToLower(name) {
	case "noop":
		return sqstest.StaleNoop, nil
	case "apply":
		return sqstest.StaleApply, nil
	case "error":
		return sqstest.StaleError, nil
	}
	return 0, fmt.Errorf("unknown policy %q for -stale", name)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
