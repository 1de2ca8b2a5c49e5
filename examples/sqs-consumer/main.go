// Command sqs-consumer captures invoices from an SQS queue. The captures are rows
// in PostgreSQL, and so are the records of which invoice was captured: both are
// written in one transaction, so that an invoice that is delivered twice is
// captured once, also when the process dies at the worst moment.
//
//	DATABASE_URL=postgres://… go run ./examples/sqs-consumer
//
// It uses the queue that QUEUE_URL names, or one in memory with three messages,
// two of which are the same invoice.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/examples/internal/demoqueue"
	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/pgstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv("DATABASE_URL"), "billing"); err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context, out io.Writer, dsn, scope string) error {
	queue, err := demoqueue.Open(ctx, "invoices",
		demoqueue.Message{Body: `{"id":"inv_8841","amount":4200}`},
		demoqueue.Message{Body: `{"id":"inv_8842","amount":990}`},
		demoqueue.Message{Body: `{"id":"inv_8841","amount":4200}`}, // the producer timed out, and sent again
	)
	if err != nil {
		return err
	}
	client, queueURL := queue.Client, queue.URL
	pool, err := prepare(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, cancel := queue.Until(ctx)
	defer cancel()

	capture := func(ctx context.Context, tx pgx.Tx, m *sqsadapter.Message) error {
		var in struct {
			ID     string `json:"id"`
			Amount int    `json:"amount"`
		}
		if err := json.Unmarshal(m.Body(), &in); err != nil {
			return secondrun.Terminal(err)
		}
		_, err := tx.Exec(ctx, `INSERT INTO example_captures (scope, invoice, amount) VALUES ($1, $2, $3)`, scope, in.ID, in.Amount)
		fmt.Fprintf(out, "captured %s: %d\n", in.ID, in.Amount)
		return err
	}

	st, err := pgstore.Open(ctx, dsn, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	g, err := secondrun.New(scope, st, nil)
	if err != nil {
		return err
	}
	h := secondrun.Wrap(g, keyfn.Template("invoice:{id}:capture"), pgstore.WrapTx(st, pool, capture))
	c, err := sqsadapter.NewConsumer(client, queueURL, h, &sqsadapter.Options{
		Concurrency: 20,
		View:        awskey.SNS, // messages come through SNS, with raw delivery or without
		OnEvent:     sqsadapter.LogEvents(nil),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx) // until SIGTERM; then it drains
}

// prepare creates the tables: the example's own, and the records'.
func prepare(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	if dsn == "" {
		return nil, fmt.Errorf("DATABASE_URL must name a PostgreSQL database")
	}
	if err := pgstore.Migrate(ctx, dsn, nil); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	// No unique constraint: the records are what keeps a capture from happening twice.
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_captures (scope text, invoice text, amount int)`)
	if err != nil {
		pool.Close()
	}
	return pool, err
}
