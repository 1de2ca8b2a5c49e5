package pgstore

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// The commit took effect although the handler does not know: its result is the
// one that it completed with, for this delivery as for later ones.
func TestWrapTx_KeepsTheResultOfComplete(t *testing.T) {
	st := fresh(t)
	pool := poolOf(t, direct(t), 2)
	g, err := secondrun.New("test", st, nil)
	if err != nil {
		t.Fatal(err)
	}
	inner := WrapTx(st, pool, func(ctx context.Context, tx pgx.Tx, _ keyfn.Message) error {
		return st.Complete(ctx, tx, "paid")
	})
	h := secondrun.WrapResult(g, func(keyfn.Message) (string, error) { return "k", nil }, func(ctx context.Context, m keyfn.Message) (string, error) {
		if err := inner(ctx, m); err != nil {
			return "", err
		}
		return "", errors.New("the reply to the commit was lost")
	})
	for _, delivery := range []string{"first", "second"} {
		r, err := h.HandleResult(t.Context(), keyfn.NewMessage(nil, nil))
		if err != nil || r != "paid" {
			t.Errorf("%s delivery: %q, %v", delivery, r, err)
		}
	}
}
