// Command sqs-lambda is a Lambda function behind an SQS event source mapping
// (with ReportBatchItemFailures). Where there is no Lambda it plays the mapping
// itself, with a queue in memory.
//
//	go run ./examples/sqs-lambda
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqslambda"
	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/memstore"
)

func main() {
	shop := &shop{out: os.Stdout}
	h, err := function(memstore.New(nil), shop) // in production: redisstore.New, pgstore.Open
	if err != nil {
		log.Fatal(err)
	}
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(h.Handle)
		return
	}
	if err := local(context.Background(), h); err != nil {
		log.Fatal(err)
	}
}

// function makes the function. Stores are opened once, outside the handler.
func function(st store.Store, shop *shop) (*sqslambda.Handler, error) {
	g, err := secondrun.New("purchases", st, nil)
	if err != nil {
		return nil, err
	}
	h := secondrun.Wrap(g, keyfn.Template("purchase:{purchaseId}:execute"), shop.execute)
	return sqslambda.New(h, &sqslambda.Options{
		Concurrency: 5,
		Reserve:     2 * time.Second,
		View:        awskey.EventBridge, // the detail of the event is what key and handler see
	})
}

// shop executes purchases. The first try of p-2 meets an outage.
type shop struct {
	out  io.Writer
	once bool
}

func (s *shop) execute(ctx context.Context, m *sqsadapter.Message) error {
	id, err := keyfn.JSON("purchaseId")(m)
	if err != nil {
		return err
	}
	if id == "p-2" && !s.once {
		s.once = true
		return secondrun.RetryAfter(errors.New("the shop is closed"), time.Second)
	}
	_, err = fmt.Fprintf(s.out, "executed %s\n", id)
	return err
}
