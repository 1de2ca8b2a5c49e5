package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

func TestOpenCreatesAPrivateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ?%23#b.db") // nothing in a path has a meaning
	s := open(t, path, nil)
	if v := claim(t, s, request("k")).Verdict; v != store.Granted {
		t.Fatal(v)
	}
	for _, p := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", p, info.Mode())
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 512), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.db")
	execute(t, foreign, "CREATE TABLE users (name TEXT)")
	for path, word := range map[string]string{
		"":                                "empty",
		":memory:":                        "memstore",
		"file:x?mode=memory":              "memstore",
		garbage:                           "not a database",
		foreign:                           "something else",
		filepath.Join(dir, "no", "where"): "the directory " + filepath.Join(dir, "no") + " does not exist",
		dir:                               dir + " is a directory",
	} {
		_, err := Open(t.Context(), path, nil)
		if !errors.Is(err, store.ErrPermanent) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), ".new") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// K12, G14: a file of a newer version is not touched.
func TestK12_NewerSchema(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	execute(t, path, fmt.Sprintf("PRAGMA user_version=%d", schemaVersion+1))
	if _, err := Open(t.Context(), path, nil); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("open: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("ping: %v", err)
	}
	execute(t, path, fmt.Sprintf("PRAGMA user_version=%d", schemaVersion))
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// execute runs one statement on the file as somebody else.
func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // test
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// K12, K13: a record that cannot be understood fails alone and is not
// overwritten.
func TestK13_CorruptRecord(t *testing.T) {
	for column, want := range map[string]error{
		"token=x'0102'": store.ErrCorrupt, "fingerprint=x'01'": store.ErrCorrupt,
		"state=9": store.ErrIncompatible, "failure=1": store.ErrIncompatible,
	} {
		t.Run(column, func(t *testing.T) {
			s := open(t, newPath(t), nil)
			bad, good := request("a"), request("b")
			claim(t, s, bad)
			if _, err := s.write.ExecContext(t.Context(), "UPDATE records SET "+column); err != nil {
				t.Fatal(err)
			}
			claims, err := s.Claim(t.Context(), []store.ClaimRequest{bad, good})
			if err != nil || !errors.Is(claims[0].Err, want) || claims[1].Verdict != store.Granted {
				t.Errorf("claim: %+v, %v", claims, err)
			}
			renewals, err := s.Renew(t.Context(), []store.Lease{{ID: bad.ID, Token: bad.Token}, {ID: good.ID, Token: good.Token}}, time.Minute)
			if err != nil || !errors.Is(renewals[0].Err, want) || renewals[1].Code != store.OK {
				t.Errorf("renew: %+v, %v", renewals, err)
			}
			if st := settle(t, s, bad, store.Succeed, nil); !errors.Is(st.Err, want) {
				t.Errorf("settle: %+v", st)
			}
			if _, _, err := s.Get(t.Context(), bad.ID); !errors.Is(err, want) {
				t.Errorf("get: %v", err)
			}
			if _, _, err := s.List(t.Context(), store.ListQuery{Scope: "test"}); !errors.Is(err, want) {
				t.Errorf("list: %v", err)
			}
		})
	}
}

// A full disk passes; what was recorded before stays readable meanwhile, and
// the connection is usable afterwards.
func TestDiskFull(t *testing.T) {
	s := open(t, newPath(t), nil)
	done := request("done")
	claim(t, s, done)
	settle(t, s, done, store.Succeed, []byte("result"))
	var pages int
	if err := s.write.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count=%d", pages)); err != nil {
		t.Fatal(err)
	}
	big := request("big")
	claim(t, s, big) // fits into the page that is there
	_, err := s.Settle(t.Context(), []store.Settlement{
		{ID: big.ID, Token: big.Token, Kind: store.Succeed, Payload: make([]byte, 100_000), Retention: time.Hour},
	})
	if err == nil || errors.Is(err, store.ErrPermanent) {
		t.Fatalf("an error that passes is wanted, got %v", err)
	}
	t.Log(err)
	if got := claim(t, s, request("done")); got.Verdict != store.Done || string(got.Payload) != "result" {
		t.Errorf("%+v", got)
	}
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count=1000000"); err != nil {
		t.Fatal(err)
	}
	if st := settle(t, s, big, store.Succeed, make([]byte, 100_000)); st.Code != store.OK {
		t.Errorf("%+v", st)
	}
}

// A page that was overwritten is an error for good, not a wrong answer.
func TestCorruptFile(t *testing.T) {
	path := newPath(t)
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		claim(t, s, request(fmt.Sprint(i)))
	}
	if err := s.Close(); err != nil { // the log goes into the file
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := f.Stat()
	for off := int64(8192); off < info.Size(); off += 4096 {
		if _, err := f.WriteAt(bytes.Repeat([]byte{0xee}, 2048), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(t.Context(), path, nil)
	if err == nil {
		defer s.Close() //nolint:errcheck // test
		_, err = s.Claim(t.Context(), []store.ClaimRequest{request("1")})
	}
	if !errors.Is(err, store.ErrPermanent) {
		t.Fatal(err)
	}
	t.Log(err)
}

// While others hold the write lock, duplicates are answered, renewals are
// locked, and the rest fails for now. Neither of them writes anything.
func TestA08_WriteLockHeld(t *testing.T) {
	path := newPath(t)
	s, other := open(t, path, &Options{Wait: 50 * time.Millisecond}), open(t, path, nil)
	running, done := request("running"), request("done")
	claim(t, s, running)
	claim(t, s, done)
	settle(t, s, done, store.Succeed, []byte("result"))

	held := errors.New("held")
	err := other.transact(t.Context(), "hold", false, func(context.Context, *sql.Conn) error {
		before := wal(t, path)
		for range 10 {
			if got := claim(t, s, request("done")); got.Verdict != store.Done || string(got.Payload) != "result" {
				t.Errorf("done: %+v", got)
			}
			if got := claim(t, s, request("running")); got.Verdict != store.Busy || got.Remaining <= 0 {
				t.Errorf("busy: %+v", got)
			}
			if got := claim(t, s, running); got.Verdict != store.Granted {
				t.Errorf("again: %+v", got)
			}
		}
		st, err := s.Renew(t.Context(), []store.Lease{{ID: running.ID, Token: running.Token}}, time.Minute)
		if err != nil || st[0].Code != store.Locked {
			t.Errorf("renew: %+v, %v", st, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Claim(ctx, []store.ClaimRequest{request("new")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim until its deadline: %v", err)
		}
		if _, err := s.Claim(t.Context(), []store.ClaimRequest{request("new")}); !errors.Is(err, errLocked) || errors.Is(err, store.ErrPermanent) {
			t.Errorf("claim: %v", err)
		}
		if !bytes.Equal(before, wal(t, path)) {
			t.Error("something was written")
		}
		return held
	})
	if !errors.Is(err, held) {
		t.Fatal(err)
	}
	if got := claim(t, s, request("new")); got.Verdict != store.Granted || got.Fence != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}

func wal(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Full is what the name says on the connection that writes.
func TestDurability(t *testing.T) {
	for d, want := range map[Durability]int{Full: 2, Normal: 1} {
		s := open(t, newPath(t), &Options{Durability: d})
		var got int
		if err := s.write.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous=%d, %v; want %d", got, err, want)
		}
	}
}
