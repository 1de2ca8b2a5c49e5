package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store"
)

// The test binary starts itself again as another process on the same file.
const (
	childVar = "SECONDRUN_SQLITESTORE_CHILD" // what the child does
	pathVar  = "SECONDRUN_SQLITESTORE_PATH"
)

func child(role string) int {
	s, err := Open(context.Background(), os.Getenv(pathVar), nil)
	switch {
	case role == "open": // says what kind of error it is
		fmt.Println(errors.Is(err, store.ErrPermanent), err)
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close() //nolint:errcheck // the process ends
	if role == "race" {
		childRace(s)
	} else {
		childWrite(s)
	}
	return 0
}

// childRace claims every key that it reads, several times at once, and prints
// how many claims were granted.
func childRace(s *Store) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(raceFor(s, in.Text(), 8))
	}
}

func raceFor(s *Store, key string, n int) (granted, failed int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			out, err := s.Claim(context.Background(), []store.ClaimRequest{request(key)})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || out[0].Err != nil:
				failed++
			case out[0].Verdict == store.Granted:
				granted++
			}
		})
	}
	wg.Wait()
	return granted, failed
}

// childWrite runs messages until it is killed and prints every key that it
// settled.
func childWrite(s *Store) {
	prefix := fmt.Sprint(os.Getpid())
	for i := 0; ; i++ {
		r := request(fmt.Sprintf("%s-%d", prefix, i))
		if out, err := s.Claim(context.Background(), []store.ClaimRequest{r}); err != nil || out[0].Verdict != store.Granted {
			fmt.Fprintln(os.Stderr, "claim:", out, err)
			return
		}
		out, err := s.Settle(context.Background(), []store.Settlement{
			{ID: r.ID, Token: r.Token, Kind: store.Succeed, Payload: []byte(r.ID.Key), Retention: time.Hour},
		})
		if err != nil || out[0].Code != store.OK {
			fmt.Fprintln(os.Stderr, "settle:", out, err)
			return
		}
		fmt.Println(r.ID.Key)
	}
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, binary, role, path string) *process {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childVar+"="+role, pathVar+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && role == "open" { // permissions do not bind the superuser
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// One key, sixteen claims at once from two processes: exactly one is granted.
func TestProcessesRaceForOneKey(t *testing.T) {
	path := newPath(t)
	children := []*process{start(t, os.Args[0], "race", path), start(t, os.Args[0], "race", path)}
	rounds := testenv.Size(200, 10_000)
	for i := range rounds {
		for _, c := range children {
			fmt.Fprintf(c.in, "key-%d\n", i)
		}
		total := 0
		for _, c := range children {
			var granted, failed int
			if _, err := fmt.Fscanln(c.out, &granted, &failed); err != nil {
				t.Fatal(err)
			}
			if failed > 0 {
				t.Errorf("round %d: %d claims failed", i, failed)
			}
			total += granted
		}
		if total != 1 {
			t.Fatalf("round %d: %d grants", i, total)
		}
	}
	t.Logf("%d rounds of 16 claims, one grant each", rounds)
}

// C07: a process is killed while it writes, beside another one that goes on.
// Nothing that was answered is lost and the file is sound.
func TestC07_KilledWhileWriting(t *testing.T) {
	path := newPath(t)
	survivor := open(t, path, nil)
	settled := 0
	for round := range testenv.Size(6, 100) {
		c := start(t, os.Args[0], "write", path)
		first, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+13*round%80) * time.Millisecond)
		if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(c.out)
		_ = c.cmd.Wait()
		text := first + string(rest)
		for _, key := range strings.Split(text[:strings.LastIndexByte(text, '\n')], "\n") {
			if got := claim(t, survivor, request(key)); got.Verdict != store.Done || string(got.Payload) != key {
				t.Fatalf("%q: %v %q", key, got.Verdict, got.Payload)
			}
			settled++
		}
	}
	checkFile(t, survivor)
	checkFile(t, open(t, path, nil))
	t.Logf("%d settlements, none lost", settled)
}

func checkFile(t *testing.T, s *Store) {
	t.Helper()
	var answer string
	if err := s.read.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&answer); err != nil || answer != "ok" {
		t.Fatalf("integrity: %q, %v", answer, err)
	}
}

// A file, and a directory, that the process may not write are found when the
// store is opened.
func TestOpenReadOnly(t *testing.T) {
	dir, err := os.MkdirTemp("", "sqlitestore") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "records.db")
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.WriteFile(binary, b, 0o700), os.Chmod(binary, 0o755), os.Chmod(path, 0o444), os.Chmod(dir, 0o555)} { //nolint:gosec // another user must run it
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{path, filepath.Join(dir, "new.db")} {
		c := start(t, binary, "open", p)
		line, err := c.out.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "true ") {
			t.Errorf("%s: permanent error wanted, got %q, %v", p, line, err)
		}
		_ = c.cmd.Wait()
		t.Log(strings.TrimSpace(line))
	}
}
