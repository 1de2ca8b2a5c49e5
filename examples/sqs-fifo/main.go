// Command sqs-fifo applies the movements of accounts, which must be applied in
// order. Each account is a message group of a FIFO queue: accounts go side by
// side, the movements of one account one after the other. When one fails, those
// behind it wait for it.
//
//	go run ./examples/sqs-fifo
//
// It uses the queue that QUEUE_URL names, or one in memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/examples/internal/demoqueue"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
}

type movement struct {
	Account string `json:"account"`
	Number  int    `json:"number"`
	Amount  int    `json:"amount"`
}

func run(ctx context.Context, out io.Writer) error {
	queue, err := demoqueue.Open(ctx, "movements.fifo",
		demoqueue.Message{Group: "a", Body: `{"account":"a","number":1,"amount":100}`},
		demoqueue.Message{Group: "a", Body: `{"account":"a","number":2,"amount":-30}`},
		demoqueue.Message{Group: "b", Body: `{"account":"b","number":1,"amount":7}`},
		demoqueue.Message{Group: "a", Body: `{"account":"a","number":2,"amount":-30}`}, // sent again, too late for SQS to notice
		demoqueue.Message{Group: "a", Body: `{"account":"a","number":3,"amount":-70}`},
	)
	if err != nil {
		return err
	}
	client, queueURL := queue.Client, queue.URL
	ctx, cancel := queue.Until(ctx)
	defer cancel()
	bank := bank{out: out, balance: map[string]int{}, fails: map[string]bool{"a/2": true}}

	g, err := secondrun.New("bank", memstore.New(nil), nil) // in production: pgstore.Open
	if err != nil {
		return err
	}
	h := secondrun.WrapJSON(g, keyfn.Template("movement:{account}:{number}"), bank.apply)
	c, err := sqsadapter.NewConsumer(client, queueURL, h, &sqsadapter.Options{
		Concurrency: 100, // ten groups of ten: what stands behind the head of its group waits in a slot
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// bank is where the movements go.
type bank struct {
	out     io.Writer
	mu      sync.Mutex
	balance map[string]int
	fails   map[string]bool // the first time
}

func (b *bank) apply(_ context.Context, m movement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := fmt.Sprintf("%s/%d", m.Account, m.Number)
	if b.fails[id] {
		delete(b.fails, id)
		_, _ = fmt.Fprintf(b.out, "%s fails, those behind it wait\n", id)
		return secondrun.Transient(errors.New("the ledger is locked"))
	}
	b.balance[m.Account] += m.Amount
	_, err := fmt.Fprintf(b.out, "%s applied, balance %d\n", id, b.balance[m.Account])
	return err
}
