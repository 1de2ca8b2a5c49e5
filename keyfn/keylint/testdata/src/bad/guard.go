package bad

import (
	"context"
	"database/sql"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

type repo struct{}

func (repo) Exists(id string) (bool, error) { return false, nil }
func (repo) Insert(id string) error         { return nil }
func (repo) HasSeen(id string) bool         { return false }
func (repo) MarkSeen(id string)             {}

var (
	rep repo
	db  *sql.DB
)

var _ = secondrun.WrapJSON(nil, keyfn.JSON("id"), func(ctx context.Context, in struct{ ID string }) error {
	if ok, err := rep.Exists(in.ID); ok || err != nil { // want `guard: exists-then-insert`
		return err
	}
	if err := secondrun.OnceFunc(ctx, "charge", nil); err != nil {
		return err
	}
	return rep.Insert(in.ID)
})

func effects(ctx context.Context, id string) error {
	seen := rep.HasSeen(id) // want `guard: exists-then-insert`
	if seen {
		return nil
	}
	err := secondrun.OnceFunc(ctx, "mail", nil)
	rep.MarkSeen(id)
	return err
}

var _ = secondrun.Wrap(nil, keyfn.JSON("id"), func(ctx context.Context, m keyfn.Message) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM done WHERE id = $1", "x").Scan(&n); err != nil { // want `guard: exists-then-insert`
		return err
	}
	if n > 0 {
		return nil
	}
	_, err := db.ExecContext(ctx, "INSERT INTO done (id) VALUES ($1)", "x")
	return err
})
