package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// load is a shop that is always busy, and a second consumer to which all goes
// wrong that can.
type load struct {
	*shop
	mail    *secondrun.Guard // with short leases, on a store that fails now and then
	watched *secondrun.Guard // only observes
	shaky   *shaky
	n       int
}

const mailLease = 600 * time.Millisecond

func newLoad(ctx context.Context, tel *secondrun.Telemetry) (*load, error) {
	s, err := newShop(ctx, tel)
	if err != nil {
		return nil, err
	}
	l := &load{shop: s, shaky: &shaky{Store: s.store}}
	l.mail, err = secondrun.New("mail", l.shaky, &secondrun.Options{
		Telemetry: tel, Lease: mailLease, MaxCrashes: 1, MaxResult: 64,
		CallTimeout: 50 * time.Millisecond, ClaimTimeout: 100 * time.Millisecond, SettleTimeout: 150 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if l.watched, err = secondrun.New("watched", s.store, &secondrun.Options{Telemetry: tel, Mode: secondrun.Observe}); err != nil {
		return nil, err
	}
	for _, g := range []*secondrun.Guard{l.guard, l.watched} {
		if _, err := g.ObserveStore(&secondrun.ObserveOptions{Every: time.Second}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// run plays all scenes again and again.
func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.n++
		l.orders(ctx)
		var scenes sync.WaitGroup
		for _, scene := range []func(context.Context){l.busy, l.crashes, l.conflicts, l.mishaps, l.observes} {
			scenes.Go(func() { scene(ctx) })
		}
		scenes.Wait()
		l.loses(ctx)
		l.outage(ctx)
	}
}

func (l *load) orders(ctx context.Context) {
	for i, work := range []string{"", "", "", "slow", "impossible", "later"} {
		o := order{ID: fmt.Sprintf("%d-%d", l.n, i), Work: work}
		_ = l.send(ctx, o)
		if i == 0 {
			_ = l.send(ctx, o) // a producer that sends twice
		}
	}
	l.dies("orders", fmt.Sprint("order:dead-", l.n%3, ":fulfil"), time.Second) // nobody comes back to it
}

// note is a message of the second consumer.
type note struct{ key, text string }

func (n note) Body() []byte         { return []byte(n.text) }
func (note) Header(string) []string { return nil }

func noteKey(m keyfn.Message) (string, error) { return m.(note).key, nil }

func noteText(m keyfn.Message) (string, error) { return m.(note).text, nil }

func (l *load) deliver(ctx context.Context, g *secondrun.Guard, n note, h func(context.Context) (string, error)) {
	w := secondrun.WrapResult(g, noteKey, func(ctx context.Context, _ note) (string, error) { return h(ctx) })
	w.WithFingerprint(1, noteText).Processor().Process(ctx, secondrun.Delivery{Message: n, ID: n.key})
}

func sent(context.Context) (string, error) { return "sent", nil }

func (l *load) key(name string) note { return note{key: fmt.Sprint(name, l.n), text: "hello"} }

// busy delivers twice at the same time, and long enough for a renewal.
func (l *load) busy(ctx context.Context) {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			l.deliver(ctx, l.mail, l.key("busy"), func(context.Context) (string, error) {
				time.Sleep(mailLease / 2)
				return "sent", nil
			})
		})
	}
	both.Wait()
}

// dies claims a key like a process that is killed.
func (l *load) dies(scope, key string, lease time.Duration) {
	_, _ = l.store.Claim(context.Background(), []store.ClaimRequest{{
		ID: store.ID{Scope: scope, Key: key}, Token: store.NewToken(), Lease: lease, Retention: time.Hour,
	}})
}

// crashes leads to a takeover, and to a budget that is used up.
func (l *load) crashes(ctx context.Context) {
	l.dies("mail", l.key("once").key, time.Millisecond)
	time.Sleep(5 * time.Millisecond)
	l.deliver(ctx, l.mail, l.key("once"), sent)
	for range 2 {
		l.dies("mail", l.key("twice").key, time.Millisecond)
		time.Sleep(5 * time.Millisecond)
	}
	l.deliver(ctx, l.mail, l.key("twice"), sent)
}

func (l *load) conflicts(ctx context.Context) {
	n := l.key("conflict")
	l.deliver(ctx, l.mail, n, sent)
	n.text = "something else"
	l.deliver(ctx, l.mail, n, sent)
}

// mishaps are a message without a key, a result that is too large, a failure
// delivered twice, and a claim given back.
func (l *load) mishaps(ctx context.Context) {
	l.deliver(ctx, l.mail, note{}, sent)
	l.deliver(ctx, l.mail, l.key("large"), func(context.Context) (string, error) { return fmt.Sprintf("%100d", 1), nil })
	for range 2 {
		l.deliver(ctx, l.mail, l.key("failed"), func(context.Context) (string, error) { return "", errors.New("no such mailbox") })
	}
	l.deliver(ctx, l.mail, l.key("released"), func(context.Context) (string, error) { return "", secondrun.ErrShutdown })
}

// loses lets a lease run out under a handler that finishes all the same.
func (l *load) loses(ctx context.Context) {
	l.shaky.renew.Store(true)
	l.deliver(ctx, l.mail, l.key("late"), func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "sent", nil
	})
	l.shaky.renew.Store(false)
}

func (l *load) observes(ctx context.Context) {
	for range 2 {
		l.deliver(ctx, l.watched, l.key("observed"), sent)
	}
}

// outage lets an outcome go unrecorded, and then all claims fail for a while.
func (l *load) outage(ctx context.Context) {
	l.deliver(ctx, l.mail, l.key("unrecorded"), func(context.Context) (string, error) {
		l.shaky.settle.Store(true)
		return "sent", nil
	})
	l.shaky.settle.Store(false)
	l.shaky.claim.Store(true)
	for i := range 5 {
		l.deliver(ctx, l.mail, l.key(fmt.Sprint("down", i)), sent)
	}
	if l.n%2 == 0 { // long enough to be seen
		time.Sleep(2 * time.Second)
	}
	l.shaky.claim.Store(false)
}

// shaky is a store that fails on demand.
type shaky struct {
	store.Store
	claim, renew, settle atomic.Bool
}

var errAway = errors.New("the store is away")

func (s *shaky) Claim(ctx context.Context, qs []store.ClaimRequest) ([]store.Claim, error) {
	if s.claim.Load() {
		return nil, errAway
	}
	return s.Store.Claim(ctx, qs)
}

func (s *shaky) Renew(ctx context.Context, ls []store.Lease, d time.Duration) ([]store.Status, error) {
	if s.renew.Load() {
		return nil, errAway
	}
	return s.Store.Renew(ctx, ls, d)
}

func (s *shaky) Settle(ctx context.Context, ss []store.Settlement) ([]store.Status, error) {
	if s.settle.Load() {
		return nil, errAway
	}
	return s.Store.Settle(ctx, ss)
}
