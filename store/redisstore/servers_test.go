package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/internal/leaktest"
	"github.com/secondrun/secondrun/internal/testenv"
	"github.com/secondrun/secondrun/store/redisstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// server is a redis-server that a test started for itself.
type server struct {
	addr string
	args []string
	dir  string
	cmd  *exec.Cmd
}

// startServer starts a private server with the given arguments and ends it with
// the test.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	return startProcess(tb, "redis-server", append([]string{"--save", "", "--appendonly", "no"}, args...)...)
}

func startProcess(tb testing.TB, binary string, args ...string) *server {
	tb.Helper()
	if _, err := exec.LookPath(binary); err != nil {
		if testenv.Required() {
			tb.Fatal(err)
		}
		tb.Skip(err)
	}
	s := &server{addr: freeAddr(tb), dir: tb.TempDir()}
	_, port, _ := net.SplitHostPort(s.addr)
	s.args = append([]string{binary}, args...)
	s.args = append(s.args, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir)
	tb.Cleanup(func() { s.stop() })
	s.start(tb)
	return s
}

func (s *server) start(tb testing.TB) {
	tb.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...) //nolint:gosec // of this file
	var out bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &out, &out
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer c.Close()
	defer func() {
		if tb.Failed() {
			tb.Logf("output of %v:\n%s", s.args, out.String())
		}
	}()
	eventually(tb, "the server answers", func() error { return c.Ping(context.Background()).Err() })
}

// stop kills the server; a stopped one too.
func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) signal(tb testing.TB, sig os.Signal) {
	tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

func (s *server) freeze(tb testing.TB) { tb.Helper(); s.signal(tb, syscall.SIGSTOP) }
func (s *server) thaw(tb testing.TB)   { tb.Helper(); s.signal(tb, syscall.SIGCONT) }

func (s *server) replica(tb testing.TB) *server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	r := startServer(tb, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	c := dial(tb, r.addr)
	eventually(tb, "the replica is in sync", func() error {
		return contains(c.Info(tb.Context(), "replication"), "master_link_status:up")
	})
	return r
}

func contains(cmd *redis.StringCmd, text string) error {
	v, err := cmd.Result()
	if err == nil && !strings.Contains(v, text) {
		err = fmt.Errorf("no %q in %q", text, v)
	}
	return err
}

// freeAddr answers an address whose port is free, as is the one 10,000 above it,
// which a cluster node uses too; both are below the ephemeral ports.
func freeAddr(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		port := 11000 + rand.IntN(10000) //nolint:gosec // a port
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if free(addr) && free(fmt.Sprintf("127.0.0.1:%d", port+10000)) {
			return addr
		}
	}
	tb.Fatal("no free port")
	return ""
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	tb.Fatalf("%s: %v", what, err)
}

func dial(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// standalone answers a client of the standalone server, private if there is no
// other.
func standalone(tb testing.TB) *redis.Client {
	tb.Helper()
	if os.Getenv(testenv.RedisVar) != "" || testenv.Required() {
		return dial(tb, testenv.Get(tb, testenv.RedisVar))
	}
	return dial(tb, startServer(tb).addr)
}

// sentinelServers starts a master, a replica and a sentinel.
func sentinelServers(tb testing.TB) (sentinel, master, replica *server) {
	tb.Helper()
	master = startServer(tb)
	replica = master.replica(tb)
	host, port, _ := net.SplitHostPort(master.addr)
	conf := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor secondrun %s %s 1\n"+
		"sentinel down-after-milliseconds secondrun 500\n"+
		"sentinel failover-timeout secondrun 3000\n", host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	sentinel = startProcess(tb, "redis-sentinel", conf)
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.addr})
	defer c.Close()
	eventually(tb, "the sentinel knows the replica", func() error {
		r, err := c.Replicas(tb.Context(), "secondrun").Result()
		if err == nil && len(r) != 1 {
			err = fmt.Errorf("%d replicas", len(r))
		}
		return err
	})
	return sentinel, master, replica
}

func failoverClient(tb testing.TB, sentinels ...string) *redis.Client {
	tb.Helper()
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "secondrun", SentinelAddrs: sentinels, ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func sentinel(tb testing.TB) *redis.Client {
	tb.Helper()
	if os.Getenv(testenv.SentinelVar) != "" || testenv.Required() {
		return failoverClient(tb, testenv.List(tb, testenv.SentinelVar)...)
	}
	s, _, _ := sentinelServers(tb)
	return failoverClient(tb, s.addr)
}

func clusterAddrs(tb testing.TB) []string {
	tb.Helper()
	if os.Getenv(testenv.ClusterVar) != "" || testenv.Required() {
		return testenv.List(tb, testenv.ClusterVar)
	}
	return privateCluster(tb)
}

// privateCluster starts three masters.
func privateCluster(tb testing.TB) []string {
	tb.Helper()
	var addrs []string
	for range 3 {
		s := startServer(tb, "--cluster-enabled", "yes")
		addrs = append(addrs, s.addr)
	}
	for i, addr := range addrs {
		c := dial(tb, addr)
		if err := c.ClusterAddSlotsRange(tb.Context(), i*5462, min(i*5462+5461, 16383)).Err(); err != nil {
			tb.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(addrs[0])
		if err := c.ClusterMeet(tb.Context(), host, port).Err(); err != nil {
			tb.Fatal(err)
		}
	}
	for _, addr := range addrs {
		c := dial(tb, addr)
		eventually(tb, "the cluster is up", func() error {
			if err := contains(c.ClusterInfo(tb.Context()), "cluster_state:ok"); err != nil {
				return err
			}
			return contains(c.ClusterInfo(tb.Context()), "cluster_known_nodes:3")
		})
	}
	return addrs
}

func cluster(tb testing.TB, addrs []string) *redis.ClusterClient {
	tb.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadOnly: true})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func open(tb testing.TB, c redis.UniversalClient, o *redisstore.Options) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.New(tb.Context(), c, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// clusterPair starts a cluster of one master and one replica.
func clusterPair(t *testing.T) (master, replica *server) {
	t.Helper()
	master = startServer(t, "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")
	replica = startServer(t, "--cluster-enabled", "yes")
	mc, rc := dial(t, master.addr), dial(t, replica.addr)
	host, port, _ := net.SplitHostPort(master.addr)
	if err := mc.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	rc.ClusterMeet(t.Context(), host, port)
	eventually(t, "the nodes know each other", func() error {
		return rc.ClusterReplicate(t.Context(), nodeID(t, mc)).Err()
	})
	eventually(t, "the replica follows", func() error {
		return contains(rc.Info(t.Context(), "replication"), "master_link_status:up")
	})
	for _, c := range []*redis.Client{mc, rc} {
		eventually(t, "the cluster is up", func() error { return contains(c.ClusterInfo(t.Context()), "cluster_state:ok") })
	}
	return master, replica
}

func nodeID(t *testing.T, c *redis.Client) string {
	t.Helper()
	id, err := c.Do(t.Context(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
