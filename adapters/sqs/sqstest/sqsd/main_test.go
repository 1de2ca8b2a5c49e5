package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// output is a buffer that the server writes and the test reads.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestRun_ServesUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out output
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-addr", "127.0.0.1:0", "-queue", "orders", "-queue", "jobs.fifo"}, &out)
	}()
	for strings.Count(out.String(), "\n") < 3 {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond): // until the server is up
		}
	}
	lines := strings.Split(out.String(), "\n")
	endpoint := strings.TrimPrefix(lines[0], "endpoint ")
	if want := "queue    " + endpoint + "/000000000000/jobs.fifo"; lines[1] != want {
		t.Errorf("printed %q, want %q", lines[1], want)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(`{"QueueName":"orders"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Target", "AmazonSQS.GetQueueUrl")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-amz-json-1.0" {
		t.Errorf("answer %d, %v", resp.StatusCode, resp.Header)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRun_Refusals(t *testing.T) {
	for _, args := range [][]string{
		{"-addr", "0.0.0.0:0"},
		{"-addr", ":0"},
		{"-addr", "192.0.2.1:0"},
		{"-addr", "127.0.0.1:0", "-stale", "maybe"},
		{"-addr", "127.0.0.1:0", "-queue", "a b"},
		{"-nope"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a server that starts by mistake ends at once
		if err := run(ctx, args, &output{}); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
