// Command conformance holds an SQS endpoint against the rules that package
// sqstest keeps, over HTTP with the real SDK, and prints for each rule whether
// the endpoint passes or differs.
//
//	go run github.com/secondrun/secondrun/adapters/sqs/sqstest/conformance -endpoint http://127.0.0.1:9324
//
// Without -endpoint it runs against sqstest itself. It creates queues with the
// prefix "secondrun-conformance-" and deletes them again. With -aws it uses the
// environment's region and credentials and AWS's own endpoint, which costs a
// few hundred requests.
//
// The exit code is 0 if each difference is a known one of the server, which
// -server names or the endpoint's Server header tells, and 1 otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run checks one endpoint and reports whether every difference is known.
func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	endpoint := fs.String("endpoint", "", "URL of the server; sqstest in this process if empty")
	server := fs.String("server", "", `name of the server for its known differences: "elasticmq", "none"; guessed if empty`)
	realAWS := fs.Bool("aws", false, "use AWS with the environment's credentials")
	only := fs.String("rule", "", "run the rules whose id has this prefix")
	parallel := fs.Int("parallel", 8, "rules at a time")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return true, nil
		}
		return false, err
	}
	client, name, err := connect(ctx, *endpoint, *realAWS)
	if err != nil {
		return false, err
	}
	if *server != "" {
		name = *server
	}
	results := check(ctx, client, *only, *parallel)
	return report(out, results, knownDifferences(name)), ctx.Err()
}

// connect returns a client for the endpoint and the server's name as far as it
// can be told.
func connect(ctx context.Context, endpoint string, realAWS bool) (*sqs.Client, string, error) {
	if realAWS {
		cfg, err := config.LoadDefaultConfig(ctx)
		return sqs.NewFromConfig(cfg), "none", err
	}
	if endpoint == "" {
		return sqstest.NewServer(nil).Client(), "none", nil
	}
	name, err := guess(ctx, endpoint)
	return newClient(endpoint), name, err
}

func newClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		Credentials:      credentials.NewStaticCredentialsProvider("conformance", "conformance", ""),
		RetryMaxAttempts: 1,
		HTTPClient:       &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Second}},
	})
}

// guess asks the endpoint for its Server header.
func guess(ctx context.Context, endpoint string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if h := resp.Header.Get("Server"); strings.HasPrefix(h, "pekko-http") || strings.HasPrefix(h, "akka-http") {
		return "elasticmq", nil
	}
	return "none", nil
}

// result is what came out of one rule.
type result struct {
	rule
	note string // what the endpoint does where more than one answer is right
	err  error  // the difference
}

// check runs the rules, several at a time, and returns the results in order.
func check(ctx context.Context, client *sqs.Client, prefix string, parallel int) []result {
	var results []result
	for _, r := range rules() {
		if strings.HasPrefix(r.id, prefix) {
			results = append(results, result{rule: r})
		}
	}
	slots := make(chan struct{}, max(1, parallel))
	var wg sync.WaitGroup
	for i := range results {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i].note, results[i].err = runRule(ctx, client, results[i].rule)
		})
	}
	wg.Wait()
	return results
}

func runRule(ctx context.Context, client *sqs.Client, r rule) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	p := &probe{ctx: ctx, c: client, id: r.id}
	defer p.cleanUp()
	defer func() {
		// A probe gives up by panicking with its difference, so that a rule
		// reads as a list of steps.
		switch v := recover().(type) {
		case nil:
		case difference:
			note, err = p.note, v
		default:
			panic(v)
		}
	}()
	r.run(p)
	return p.note, nil
}

// report prints the results and returns whether all differences are known.
func report(out io.Writer, results []result, list map[string]known) bool {
	var passed, explained, unexplained int
	for _, r := range results {
		k, listed := list[r.id]
		more := ""
		switch {
		case r.err == nil:
			passed++
			if listed {
				more = "listed as a difference: " + k.why
			}
			fmt.Fprintf(out, "pass     %-26s %s\n", r.id, r.text)
		case k.explains(r.err):
			explained++
			more = "known: " + k.why
			fmt.Fprintf(out, "differs  %-26s %s\n%36s%v\n", r.id, r.text, "", r.err)
		default:
			unexplained++
			fmt.Fprintf(out, "DIFFERS  %-26s %s\n%36s%v\n", r.id, r.text, "", r.err)
		}
		if more != "" {
			fmt.Fprintf(out, "%36s%s\n", "", more)
		}
		if r.note != "" {
			fmt.Fprintf(out, "%36sobserved: %s\n", "", r.note)
		}
	}
	fmt.Fprintf(out, "%d pass, %d differ as known, %d differ\n", passed, explained, unexplained)
	return unexplained == 0
}
