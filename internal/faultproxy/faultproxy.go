// Package faultproxy is a TCP proxy that breaks connections on demand, for
// tests of what a store does when a reply is lost.
//
// It knows no protocol: a request is what one read from the client returns,
// which on loopback is what the client wrote at once.
package faultproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Fault is what happens to a request.
type Fault uint8

// Faults.
const (
	CutReply   Fault = iota + 1 // the server gets the request; its reply is dropped and the connection closed
	HalfReply                   // as CutReply, but the first half of the reply arrives
	CutRequest                  // the server gets the first half of the request; the connection is closed
	Reset                       // the server gets nothing; the connection is reset
	Delay                       // the server gets the request; the reply comes late, see [Proxy.SetDelay]
	BlackHole                   // the server gets nothing, and nothing ever comes back
)

// String returns the fault in plain English.
func (f Fault) String() string {
	names := [...]string{"none", "cut reply", "half reply", "cut request", "reset", "delay", "black hole"}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown"
}

// Faults returns all of them.
func Faults() []Fault { return []Fault{CutReply, HalfReply, CutRequest, Reset, Delay, BlackHole} }

// Proxy forwards connections to one address. It is safe for concurrent use.
type Proxy struct {
	target string
	addr   string
	wg     sync.WaitGroup
	closed chan struct{}

	mu       sync.Mutex
	listener net.Listener
	pairs    map[*pair]bool
	fault    Fault
	left     int
	met      int
	delay    time.Duration
}

// Listen starts a proxy for target on a free port of the loopback interface.
func Listen(target string) (*Proxy, error) {
	p := &Proxy{target: target, addr: "127.0.0.1:0", pairs: map[*pair]bool{}, closed: make(chan struct{}), delay: time.Second}
	return p, p.Accept()
}

// Addr is where the proxy listens. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// SetDelay sets how late a reply comes under [Delay]. The default is a second.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Arm makes the next n requests, on any connection, meet f; those after them
// are forwarded. It replaces what was armed before.
func (p *Proxy) Arm(f Fault, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.left, p.met = f, n, 0
}

// Met returns how many requests met the fault since Arm.
func (p *Proxy) Met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met
}

// Refuse closes every connection and the port, so that new ones are refused.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for c := range p.pairs {
		c.close()
	}
}

// Accept ends Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener, p.addr = l, l.Addr().String()
	p.wg.Go(func() { p.serve(l) })
	return nil
}

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() {
	close(p.closed)
	p.Refuse()
	p.wg.Wait()
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &pair{proxy: p, client: client, server: server, next: make(chan Fault, 1)}
		p.mu.Lock()
		if p.listener != l {
			c.close()
		}
		p.pairs[c] = true
		p.mu.Unlock()
		p.wg.Go(c.up)
		p.wg.Go(c.down)
	}
}

// take returns the fault that the next request meets, 0 for none.
func (p *Proxy) take() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return 0
	}
	p.left--
	p.met++
	return p.fault
}

func (p *Proxy) late() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	select {
	case <-p.closed:
	case <-time.After(d):
	}
}

// pair is a client's connection with its connection to the server.
type pair struct {
	proxy          *Proxy
	client, server net.Conn
	next           chan Fault // of the reply
}

func (c *pair) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *pair) end() {
	c.close()
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	delete(c.proxy.pairs, c)
}

func (c *pair) up() {
	defer c.end()
	buf := make([]byte, 2<<20)
	for {
		n, err := c.client.Read(buf)
		if err != nil {
			return
		}
		switch f := c.proxy.take(); f {
		case CutRequest:
			_, _ = c.server.Write(buf[:n/2])
			return
		case Reset:
			_ = c.client.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // listens on TCP only
			return
		case BlackHole:
			for err == nil {
				_, err = c.client.Read(buf)
			}
			return
		case CutReply, HalfReply, Delay:
			select {
			case c.next <- f:
			default: // the reply of an earlier request will meet it
			}
		}
		if _, err := c.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *pair) down() {
	defer c.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		if err != nil {
			return
		}
		select {
		case f := <-c.next:
			switch f {
			case CutReply:
				return
			case HalfReply:
				_, _ = c.client.Write(buf[:n/2])
				return
			case Delay:
				c.proxy.late()
			}
		default:
		}
		if _, err := c.client.Write(buf[:n]); err != nil {
			return
		}
	}
}
