package sqsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/memstore"
)

type Invoice struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

func charge(_ context.Context, in Invoice) error {
	fmt.Printf("charged %s: %d\n", in.ID, in.Amount)
	return nil
}

// The producer sent the invoice twice; the customer is charged once.
func Example() {
	client, queueURL := exampleQueue(`{"id":"inv_8841","amount":4200}`, `{"id":"inv_8841","amount":4200}`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	st := memstore.New(nil) // in production: pgstore.Open(ctx, dsn, nil)
	g, err := secondrun.New("billing", st, nil)
	if err != nil {
		log.Fatal(err)
	}
	h := secondrun.WrapJSON(g, keyfn.Template("invoice:{id}:capture"),
		func(ctx context.Context, in Invoice) error {
			return charge(ctx, in)
		})
	c, err := sqsadapter.NewConsumer(client, queueURL, h, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil { // until ctx ends; then it drains
		log.Fatal(err)
	}
	// Output: charged inv_8841: 4200
}

// exampleQueue returns a queue that has these messages, and a redrive policy.
func exampleQueue(bodies ...string) (*sqs.Client, string) {
	srv := sqstest.NewServer(nil)
	client := srv.Client()
	if _, err := srv.CreateQueue("dead", nil); err != nil {
		log.Fatal(err)
	}
	url, err := srv.CreateQueue("invoices", map[string]string{
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"10"}`,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range bodies {
		_, err := client.SendMessage(context.Background(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body)})
		if err != nil {
			log.Fatal(err)
		}
	}
	return client, url
}

// The mail server is down at first: the handler runs again, the charge does
// not.
func Example_effects() {
	client, queueURL := exampleQueue(`{"id":"ord_9f3a"}`)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	g, err := secondrun.New("shop", memstore.New(nil), &secondrun.Options{Backoff: secondrun.Backoff{Base: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	gateway := func(_ context.Context, key string) error {
		fmt.Println("charge, idempotency key of", len(key), "digits")
		return nil
	}
	down := true
	mail := func(context.Context) error {
		if down {
			down = false
			fmt.Println("mail fails")
			return secondrun.Transient(errors.New("503"))
		}
		fmt.Println("mail")
		return nil
	}

	h := secondrun.Wrap(g, keyfn.Template("order:{id}:checkout"), func(ctx context.Context, m *sqsadapter.Message) error {
		err := secondrun.OnceFunc(ctx, "charge", func(ctx context.Context) error {
			key, err := secondrun.EffectKey(ctx, "charge") // the provider's idempotency key
			if err != nil {
				return err
			}
			return gateway(ctx, key)
		})
		if err != nil {
			return err
		}
		return secondrun.OnceFunc(ctx, "receipt", mail)
	})

	c, err := sqsadapter.NewConsumer(client, queueURL, h, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// charge, idempotency key of 64 digits
	// mail fails
	// mail
}
