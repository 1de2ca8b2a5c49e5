package storetest

import "github.com/secondrun/secondrun/store"

func restChecks() []check {
	return []check{
		{"Ping", ping},
		{"Limits", limits},
		{"a second client sees the same records", peers},
	}
}

func ping(e *env) {
	p, ok := e.st.(store.Pinger)
	if !ok {
		e.Skip("the store does not implement store.Pinger")
	}
	if err := p.Ping(e.ctx); err != nil {
		e.Errorf("Ping: %v", err)
	}
}

func limits(e *env) {
	l, ok := e.st.(store.Limiter)
	if !ok {
		e.Skip("the store does not implement store.Limiter")
	}
	if got := l.Limits(); got.Batch < 0 || got.Parallel < 0 || got != l.Limits() {
		e.Errorf("Limits = %+v, then %+v", got, l.Limits())
	}
}

func peers(e *env) {
	r := e.req("k")
	e.granted(r)
	if c := e.claimOn(e.peer, e.req("k")); c.Verdict != store.Busy || c.Holder != r.Holder {
		e.Errorf("the peer is told %s", show(c))
	}
	if c := e.claimOn(e.peer, r); c.Verdict != store.Granted || c.Fence != 1 {
		e.Errorf("the peer with the same token is told %s", show(c))
	}
	if code := e.settle1(e.peer, settlement(r, store.Succeed, "by the peer")); code != store.OK {
		e.Errorf("the peer settles: %s", code)
	}
	if c := e.verdict(e.req("k"), store.Done); string(c.Payload) != "by the peer" {
		e.Errorf("payload %q", c.Payload)
	}
}
