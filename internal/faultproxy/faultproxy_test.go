package faultproxy_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/secondrun/secondrun/internal/faultproxy"
	"github.com/secondrun/secondrun/internal/leaktest"
)

// echo answers every line with itself and remembers the lines.
func echo(t *testing.T) (addr string, lines chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	lines = make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					_, _ = c.Write([]byte(line))
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

func TestFaults(t *testing.T) {
	leaktest.Check(t)
	addr, lines := echo(t)
	p, err := faultproxy.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.SetDelay(300 * time.Millisecond)
	ask := func() string {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return "refused"
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(150 * time.Millisecond))
		_, _ = c.Write([]byte("hello\n"))
		b := make([]byte, 100)
		n, err := c.Read(b)
		if n == 0 && err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return "timeout"
			}
			return "closed"
		}
		return string(b[:n])
	}
	for f, want := range map[faultproxy.Fault]struct {
		answer  string
		arrives bool
	}{
		faultproxy.CutReply:   {"closed", true},
		faultproxy.HalfReply:  {"hel", true},
		faultproxy.CutRequest: {"closed", false},
		faultproxy.Reset:      {"closed", false},
		faultproxy.Delay:      {"timeout", true},
		faultproxy.BlackHole:  {"timeout", false},
	} {
		p.Arm(f, 1)
		if got := ask(); got != want.answer {
			t.Errorf("%v: answer %q, want %q", f, got, want.answer)
		}
		if got := len(lines) > 0; got != want.arrives {
			t.Errorf("%v: arrives %v, want %v", f, got, want.arrives)
		}
		if p.Met() != 1 {
			t.Errorf("%v: met %d", f, p.Met())
		}
		for len(lines) > 0 {
			<-lines
		}
		if got := ask(); got != "hello\n" {
			t.Errorf("after %v: %q", f, got)
		}
		<-lines
	}
	p.Refuse()
	if got := ask(); got != "refused" {
		t.Errorf("refuse: %q", got)
	}
	if err := p.Accept(); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != "hello\n" {
		t.Errorf("accept: %q", got)
	}
}
