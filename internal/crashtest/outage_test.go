package crashtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/internal/testenv"
)

// TestB15_StoreOutage takes the store away under load: nothing is
// dead-lettered, nothing is lost, nothing happens twice, and the workers go on
// by themselves when it is back. The queue would give a message up after four
// receives. `make soak` keeps the store away for 30 s.
func TestB15_StoreOutage(t *testing.T) {
	away := time.Duration(testenv.Size(6, 30)) * time.Second
	t.Run("postgres refuses connections", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, "postgres")
		u, err := url.Parse(b.conf.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p := proxy(t, u.Host)
		u.Host = p.Addr()
		b.conf.DSN = u.String()
		b.outage(away, p.Refuse, func() { must(t, p.Accept()) })
	})
	t.Run("redis refuses connections", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, "redis")
		p := proxy(t, b.conf.DSN)
		b.conf.DSN = p.Addr()
		b.outage(away, p.Refuse, func() { must(t, p.Accept()) })
	})
	t.Run("redis is killed and restarted", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, "redis")
		r := &redisServer{t: t, dir: t.TempDir(), port: freePort(t)}
		b.conf.DSN = fmt.Sprintf("127.0.0.1:%d", r.port)
		r.start()
		b.outage(away, r.kill, r.start)
	})
}

func (b *bench) outage(away time.Duration, stop, start func()) {
	t, n := b.t, testenv.Size(150, 1000)
	b.conf.Lease = 10 * time.Second
	b.setReceives(4)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k-%d", i)
	}
	b.start("one", nil, func(c *config) { c.Behave, c.DeadLetter = "short", "" })
	b.start("two", nil, func(c *config) { c.Behave, c.DeadLetter = "short", "" })
	b.send(keys[:n/3]...)
	b.await(n/6, line{what: "effect"})
	stop()
	b.send(keys[n/3:]...) // the load goes on
	before := b.count(line{what: "effect"})
	time.Sleep(away)
	if late := b.count(line{what: "start"}) - before; late > 2*b.conf.Slots {
		t.Errorf("%d handlers started without a store", late)
	}
	start()
	b.drained(60 * time.Second)
	if dead := b.dead.Counts().Visible; dead != 0 {
		t.Errorf("%d messages in the dead-letter queue", dead)
	}
	for _, key := range keys {
		if effects := b.count(line{what: "effect", key: key}); effects != 1 {
			t.Errorf("%s: %d effects", key, effects)
		}
	}
	for _, event := range []string{"store-down", "store-up"} {
		if b.count(line{what: "event", text: event}) == 0 {
			t.Errorf("no worker reported %s", event)
		}
	}
	most := 0
	for _, m := range b.queue.Messages() {
		most = max(most, m.Receives)
	}
	t.Logf("%d messages, store away for %v: 0 lost, at most %d receives of a message", n, away, most)
}

func proxy(t *testing.T, target string) *faultproxy.Proxy {
	p, err := faultproxy.Listen(target)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	must(t, err)
	defer l.Close() //nolint:errcheck // only its number was wanted
	return l.Addr().(*net.TCPAddr).Port
}

// redisServer is a server of the test's own that survives its own death: every
// write is on disk before it is acknowledged.
type redisServer struct {
	t    *testing.T
	dir  string
	port int
	cmd  *exec.Cmd
}

func (r *redisServer) start() {
	r.t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		if testenv.Required() {
			r.t.Fatal(err)
		}
		r.t.Skip("redis-server is not installed; `make test` installs it")
	}
	r.cmd = exec.Command(exe, "--port", itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir, //nolint:gosec,noctx // of the test
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--logfile", filepath.Join(r.dir, "log"))
	r.cmd.Stderr = os.Stderr
	must(r.t, r.cmd.Start())
	r.t.Cleanup(r.kill)
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", r.port), MaxRetries: -1})
	defer client.Close() //nolint:errcheck // nothing to lose
	for end := time.Now().Add(10 * time.Second); client.Ping(context.Background()).Err() != nil; {
		if time.Now().After(end) {
			r.t.Fatal("redis-server does not answer")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *redisServer) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
