package lincheck_test

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
	"github.com/secondrun/secondrun/store/sqlitestore"
	"github.com/secondrun/secondrun/store/storetest/lincheck"
)

// pathVar makes the test binary serve the file that it names to its parent.
const pathVar = "SECONDRUN_LINCHECK_SERVE"

func TestMain(m *testing.M) {
	if path := os.Getenv(pathVar); path != "" {
		os.Exit(serve(path))
	}
	leaktest.Main(m)
}

func serve(path string) int {
	s, err := sqlitestore.Open(context.Background(), path, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server := rpc.NewServer()
	if err := server.RegisterName("S", &Server{s}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server.ServeConn(stdio{os.Stdin, os.Stdout}) // until the parent goes
	if err := s.Close(); err != nil {
		return 1
	}
	return 0
}

type stdio struct {
	io.ReadCloser
	io.WriteCloser
}

func (s stdio) Close() error {
	_ = s.ReadCloser.Close()
	return s.WriteCloser.Close()
}

// Server answers for a store in this process. It is exported for net/rpc.
type Server struct{ s *sqlitestore.Store }

// Args are the arguments of every call.
type Args struct {
	Claims      []store.ClaimRequest
	Leases      []store.Lease
	D           time.Duration
	Settlements []store.Settlement
	ID          store.ID
	Text        string
}

// Reply is the answer to every call.
type Reply struct {
	Claims   []store.Claim
	Statuses []store.Status
	Record   store.Record
	OK       bool
	N        int
	Text     string
}

func (s *Server) Claim(a Args, r *Reply) (err error) {
	r.Claims, err = s.s.Claim(context.Background(), a.Claims)
	return err
}

func (s *Server) Renew(a Args, r *Reply) (err error) {
	r.Statuses, err = s.s.Renew(context.Background(), a.Leases, a.D)
	return err
}

func (s *Server) Settle(a Args, r *Reply) (err error) {
	r.Statuses, err = s.s.Settle(context.Background(), a.Settlements)
	return err
}

func (s *Server) Get(a Args, r *Reply) (err error) {
	r.Record, r.OK, err = s.s.Get(context.Background(), a.ID)
	return err
}

func (s *Server) Reopen(a Args, r *Reply) (err error) {
	r.OK, err = s.s.Reopen(context.Background(), a.ID, a.Text)
	return err
}

func (s *Server) Forget(a Args, r *Reply) (err error) {
	r.OK, err = s.s.Forget(context.Background(), a.ID, a.Text)
	return err
}

func (s *Server) ForceRelease(a Args, r *Reply) (err error) {
	r.OK, err = s.s.ForceRelease(context.Background(), a.ID, a.Text)
	return err
}

func (s *Server) Purge(a Args, r *Reply) (err error) {
	r.N, r.Text, err = s.s.Purge(context.Background(), a.Text)
	return err
}

// remote is the store of another process.
type remote struct{ c *rpc.Client }

func (r remote) call(method string, a Args) (out Reply, err error) {
	err = r.c.Call("S."+method, a, &out)
	return out, err
}

func (r remote) Claim(_ context.Context, reqs []store.ClaimRequest) ([]store.Claim, error) {
	out, err := r.call("Claim", Args{Claims: reqs})
	return out.Claims, err
}

func (r remote) Renew(_ context.Context, leases []store.Lease, d time.Duration) ([]store.Status, error) {
	out, err := r.call("Renew", Args{Leases: leases, D: d})
	return out.Statuses, err
}

func (r remote) Settle(_ context.Context, s []store.Settlement) ([]store.Status, error) {
	out, err := r.call("Settle", Args{Settlements: s})
	return out.Statuses, err
}

func (r remote) Get(_ context.Context, id store.ID) (store.Record, bool, error) {
	out, err := r.call("Get", Args{ID: id})
	return out.Record, out.OK, err
}

func (r remote) List(context.Context, store.ListQuery) ([]store.Record, string, error) {
	return nil, "", nil // not used here
}

func (r remote) Reopen(_ context.Context, id store.ID, reason string) (bool, error) {
	out, err := r.call("Reopen", Args{ID: id, Text: reason})
	return out.OK, err
}

func (r remote) Forget(_ context.Context, id store.ID, reason string) (bool, error) {
	out, err := r.call("Forget", Args{ID: id, Text: reason})
	return out.OK, err
}

func (r remote) ForceRelease(_ context.Context, id store.ID, reason string) (bool, error) {
	out, err := r.call("ForceRelease", Args{ID: id, Text: reason})
	return out.OK, err
}

func (r remote) Purge(_ context.Context, cursor string) (int, string, error) {
	out, err := r.call("Purge", Args{Text: cursor})
	return out.N, out.Text, err
}

func startRemote(t *testing.T, path string) store.Store {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pathVar+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := rpc.NewClient(stdio{out, in})
	t.Cleanup(func() {
		_ = c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
	return remote{c}
}

// Two other processes and this one share a file, and all runs share it too.
func TestSQLiteProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	here, err := sqlitestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	st := lincheck.Spread(here, startRemote(t, path), startRemote(t, path))
	cfg := lincheck.Config{Histories: testenv.Size(20, 500), Ops: 300, Parallel: 2}
	lincheck.Run(t, "sqlitestore", func() store.Store { return st }, cfg)
}
