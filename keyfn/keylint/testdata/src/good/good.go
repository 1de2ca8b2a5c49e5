// Package good holds what keylint must not report.
package good

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/avast/retry"
	"github.com/google/uuid"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

var space = uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

type order struct {
	ID        string
	MessageID string // of a chat: not read by a key function
	Attempts  int
}

// Keys of the domain.
var (
	_ = keyfn.Template("invoice:{id}:capture")
	_ = keyfn.Template("attempt:{header:event_id}") // a word of the text is no value
	_ = keyfn.JSON("data.object.id")
	_ = keyfn.JSON("order.id")
	_ = keyfn.JSON("message.id")
	_ = keyfn.Template("parcel:{delivery.id}")
	_ = keyfn.JSON("event_id")
	_ = keyfn.Header("X-GitHub-Delivery")
	_ = keyfn.Header("X-Shopify-Event-Id")
	_ = keyfn.Form("MessageSid")
	_ = keyfn.Literal("MessageId")
	_ = keyfn.Hash(keyfn.Strip("sentAt", "trace_id", "attempt"))
	_ = keyfn.Hash(keyfn.Keep("user.id", "token_hash"))
	_ = keyfn.Join(keyfn.Literal("report"), keyfn.Time(keyfn.JSON("slot")))
	_ = keyfn.Map(keyfn.JSON("email"), func(s string) (string, error) { return strings.ToLower(s), nil })
	_ = keyfn.From(func(o order) (string, error) { return "order:" + o.ID, nil })
	_ = keyfn.Func(func(m keyfn.Message) (string, error) {
		// Made from a name, so always the same.
		return uuid.NewSHA1(space, []byte(m.Header("event_id")[0])).String(), nil
	})
	_ = keyfn.From(func(o order) (string, error) {
		sum := sha256.Sum256([]byte(o.ID)) // of a field, not of the payload
		return hex.EncodeToString(sum[:]), nil
	})
	_ = keyfn.From(func(o struct{ At time.Time }) (string, error) { return o.At.UTC().Format(time.DateOnly), nil })

	_ = keyfn.Hash(keyfn.Everything()) //keylint:ignore the schema has no volatile fields

	//keylint:ignore this broker keeps the id over resends
	_ = keyfn.Header("MessageId")
)

// Not key functions.
func observe(m keyfn.Message) string { return m.Header("MessageId")[0] + uuid.NewString() }

func log(m order) (string, time.Time) { return m.MessageID, time.Now() }

func token(n int) (string, error) { return fmt.Sprint(rand.IntN(n)), nil }

type params struct{ IdempotencyKey string }

func charge(params) error { return nil }

func provider(ctx context.Context, req *http.Request, orders []order) error {
	key := uuid.NewString() // once, before the first try
	for range 3 {
		if charge(params{IdempotencyKey: key}) == nil {
			break
		}
		req.Header.Set("X-Trace-Id", uuid.NewString())
		time.Sleep(time.Until(time.Now().Add(rand.N(time.Second))))
	}
	for _, o := range orders {
		// One try for each order, outside a handler.
		_ = charge(params{IdempotencyKey: uuid.NewString() + o.ID})
	}
	return retry.Do(func() error { return charge(params{IdempotencyKey: key}) })
}

type repo struct{}

func (repo) Exists(id string) (bool, error) { return false, nil }
func (repo) Insert(id string) error         { return nil }
func (repo) Customer(id string) (string, error) {
	return "", nil
}

var (
	rep repo
	db  *sql.DB
)

var _ = secondrun.WrapJSON(nil, keyfn.Template("order:{id}"), func(ctx context.Context, in order) error {
	start := time.Now() // in a handler, not in a key
	key, err := secondrun.EffectKey(ctx, "charge")
	if err != nil {
		return err
	}
	if err := secondrun.OnceFunc(ctx, "charge", func(context.Context) error {
		return charge(params{IdempotencyKey: key})
	}); err != nil {
		return err
	}
	if ok, err := rep.Exists(in.ID); err != nil || !ok { // a question without an insert
		return err
	}
	_ = time.Since(start)
	return nil
})

var _ = secondrun.Wrap(nil, keyfn.Template("order:{id}"), func(ctx context.Context, m keyfn.Message) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT stock FROM items WHERE id = $1", "x").Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	_, err := db.ExecContext(ctx, "INSERT INTO ledger (event) VALUES ($1) ON CONFLICT DO NOTHING", "x")
	return err
})

// Neither a handler nor around an effect.
func register(id string) error {
	if ok, err := rep.Exists(id); ok || err != nil {
		return err
	}
	return rep.Insert(id)
}

func cron(ctx context.Context, g *secondrun.Guard, slot time.Time) error {
	started := time.Now()
	_ = started
	return g.Do(ctx, "daily:"+slot.UTC().Format(time.DateOnly), nil)
}

func effectNames(ctx context.Context, to []string, stock map[string]int) {
	for i := range to {
		_ = secondrun.OnceFunc(ctx, "mail:"+to[i], nil)
	}
	for sku := range stock {
		_ = secondrun.OnceFunc(ctx, "reserve:"+sku, nil)
	}
	for _, r := range to {
		_ = secondrun.OnceFunc(ctx, "push:"+r, nil)
	}
}
