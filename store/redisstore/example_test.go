package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store/redisstore"
)

// A store of its own client, which may as well be a Sentinel client
// (redis.NewFailoverClient) or a cluster client.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "localhost:6379",
		ContextTimeoutEnabled: true, // deadlines of calls count
	})
	defer client.Close()

	st, err := redisstore.New(context.Background(), client, &redisstore.Options{
		OnWarning: func(text string) { log.Println(text) },
	})
	if err != nil {
		log.Fatal(err) // unreachable, too old, or it may evict records
	}
	_ = st // secondrun.New("billing", st, nil)
}
