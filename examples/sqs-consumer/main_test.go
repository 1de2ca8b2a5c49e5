package main

import (
	"bytes"
	"crypto/rand"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Three messages of two invoices are two captures.
func TestConsumer(t *testing.T) {
	dsn, scope := testenv.Get(t, testenv.PostgresVar), "billing-"+rand.Text()
	t.Setenv("QUEUE_URL", "")
	var out lines
	if err := run(t.Context(), &out, dsn, scope); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // nothing to lose
	var rows, sum int
	err = conn.QueryRow(t.Context(), `SELECT count(*), sum(amount) FROM example_captures WHERE scope = $1`, scope).Scan(&rows, &sum)
	if err != nil || rows != 2 || sum != 5190 {
		t.Errorf("%d captures of %d in all, %v\n%s", rows, sum, err, &out.b)
	}
	if _, err := conn.Exec(t.Context(), `DELETE FROM example_captures WHERE scope = $1`, scope); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.b.String(), "captured inv_8841"); n != 1 {
		t.Errorf("captured %d times", n)
	}
}

// lines takes writes of several handlers.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
