package bad

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

var (
	_ = keyfn.Func(func(keyfn.Message) (string, error) {
		return uuid.NewString(), nil // want `random: uuid.NewString in a key`
	})
	_ = keyfn.Map(keyfn.JSON("id"), func(s string) (string, error) {
		return s + time.Now().Format(time.DateOnly), nil // want `random: time.Now in a key`
	})
	_ = keyfn.Part("mine", "", func(keyfn.Message) (string, error) {
		return fmt.Sprint(rand.IntN(5)), nil // want `random: rand.IntN in a key`
	})
	_ = map[string]keyfn.Func{
		"a": func(keyfn.Message) (string, error) {
			id, err := uuid.NewV7() // want `random: uuid.NewV7 in a key`
			return id.String(), err
		},
		"b": indirect,
	}
)

func indirect(m keyfn.Message) (string, error) { return today(), nil }

func today() string {
	host, _ := os.Hostname()                // want `random: os.Hostname in a key`
	return host + time.Now().Format("2006") // want `random: time.Now in a key`
}

type keyer struct{}

func (keyer) key(keyfn.Message) (string, error) {
	var b [8]byte
	_, _ = crand.Read(b[:]) // want `random: rand.Read in a key`
	return string(b[:]), nil
}

func cron(ctx context.Context, g *secondrun.Guard) {
	_ = g.Do(ctx, "daily:"+time.Now().Format(time.DateOnly), nil) // want `random: time.Now in a key`
	id := uuid.New()                                              // want `random: uuid.New in a key`
	_ = g.Do(ctx, "job:"+id.String(), nil)
}
