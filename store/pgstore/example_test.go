package pgstore_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/secondrun/secondrun/store/pgstore"
)

const dsn = "postgres://billing@db.internal/billing?sslmode=verify-full"

// Migrations are run by a deployment, the store is opened by every process.
func ExampleOpen() {
	ctx := context.Background()
	if err := pgstore.Migrate(ctx, dsn, nil); err != nil { // as a role that owns the schema
		log.Fatal(err)
	}
	st, err := pgstore.Open(ctx, dsn, &pgstore.Options{OnWarning: func(w string) { log.Print(w) }})
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
}

// Behind PgBouncer in transaction mode the DSN says that statements must not be
// prepared.
func ExampleOpen_pgBouncer() {
	st, err := pgstore.Open(context.Background(), dsn+"&default_query_exec_mode=exec", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
}

type invoice struct{ ID string }

// The invoice is marked and the outcome recorded in one transaction.
func ExampleWrapTx() {
	ctx := context.Background()
	st, err := pgstore.Open(ctx, dsn, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	pool, err := pgxpool.New(ctx, dsn) // the handlers' own
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	handle := pgstore.WrapTx(st, pool, func(ctx context.Context, tx pgx.Tx, in invoice) error {
		_, err := tx.Exec(ctx, `UPDATE invoices SET captured = true WHERE id = $1`, in.ID)
		return err
	})
	_ = handle // goes to secondrun.Wrap or an adapter
}
