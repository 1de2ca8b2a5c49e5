package sqsadapter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sqsadapter "github.com/secondrun/secondrun/adapters/sqs"
	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
)

// logged collects what LogEvents writes for whatever the rig does.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) hook() func(context.Context, sqsadapter.Event) {
	return sqsadapter.LogEvents(slog.New(slog.NewTextHandler(l, nil)))
}

// lines are the lines of one event.
func (l *logged) lines(event string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		if strings.Contains(line, "event="+event+" ") {
			found = append(found, line)
		}
	}
	return found
}

// The line about a dead letter says why, with nothing of the message in it.
func TestLog_WhyItIsDead(t *testing.T) {
	for _, c := range []struct {
		way   func(r *rig) sqsadapter.DeadLetter
		event string
	}{
		{func(r *rig) sqsadapter.DeadLetter { return sqsadapter.To(r.dead) }, "dead-lettered"},
		{func(*rig) sqsadapter.DeadLetter { return sqsadapter.Discard }, "discarded"},
		{func(*rig) sqsadapter.DeadLetter { return sqsadapter.Redrive }, "warning"},
	} {
		for body, want := range map[string]string{
			`{"ID":"secret"}`:  `reason="no key" key_error="keyfn: JSON \"id\": missing"`,
			`{"id":"secret"`:   `reason="no key" key_error="keyfn: JSON \"id\": malformed"`,
			`{"id":"secret"}`:  `reason=failed`,
			`{"id":["secret"]`: `reason="no key" key_error=`,
		} {
			if c.event == "warning" { // it has come back
				want = strings.Replace(want, "=failed", `="failed before"`, 1)
			}
			inBubble(t, nil, "", nil, func(r *rig) {
				var l logged
				r.opt.DeadLetter, r.opt.OnEvent = c.way(r), l.hook()
				r.sendBody(body, nil)
				r.start(func(context.Context, string) error { return errors.New("secret") })
				r.sleep(time.Minute)
				lines := l.lines(c.event)
				if len(lines) != 1 || !strings.Contains(lines[0], want) || strings.Contains(l.out.String(), "secret") {
					r.t.Errorf("%s: %q, want one line with %s in\n%s", body, lines, want, l.out.String())
				}
			})
		}
	}
}

// What a function of the caller says is not written: it may quote the message.
func TestLog_OwnKeyErrors(t *testing.T) {
	for name, err := range map[string]error{
		"an error of its own": errors.New("secret"),
		"empty":               errors.Join(keyfn.ErrEmpty, errors.New("secret")),
	} {
		inBubble(t, nil, "", nil, func(r *rig) {
			var l logged
			r.opt.OnEvent = l.hook()
			r.send("k")
			h := secondrun.Wrap(r.guard, keyfn.From(func(struct{}) (string, error) { return "", err }),
				func(context.Context, *sqsadapter.Message) error { return nil })
			defer r.run(h)()
			r.sleep(time.Minute)
			synctest.Wait()
			if lines := l.lines("dead-lettered"); len(lines) != 1 || !strings.Contains(lines[0], `key_error="keyfn: From: `+name+`"`) ||
				strings.Contains(l.out.String(), "secret") {
				r.t.Errorf("%q", l.out.String())
			}
		})
	}
}

// A message that is thrown away is not said to be in a dead-letter queue.
func TestLog_Discarded(t *testing.T) {
	everyPolicy(t, func(r *rig) {
		r.opt.DeadLetter = sqsadapter.Discard
		r.send("k")
		r.start(func(context.Context, string) error { return errors.New("no") })
		r.sleep(time.Minute)
		r.settled(1)
		if n, dead := r.count(sqsadapter.EventDiscarded), r.count(sqsadapter.EventDeadLettered); n != 1 || dead != 0 {
			r.t.Errorf("%d discarded, %d dead-lettered", n, dead)
		}
		if s := sqsadapter.EventDiscarded.String(); s != "discarded" {
			r.t.Errorf("named %q", s)
		}
	})
}

// A consumer runs once; one that could not start can be tried again.
func TestRun_Once(t *testing.T) {
	inBubble(t, nil, "", nil, func(r *rig) {
		opt := r.opt
		opt.DeadLetter = sqsadapter.DeadLetter{}
		plain := r.create("plain", nil)
		c, err := sqsadapter.NewConsumer(r.client, plain, r.handler(r.guard, succeeds), &opt)
		r.must(err)
		for range 2 {
			if err := c.Run(r.t.Context()); !errors.Is(err, sqsadapter.ErrNoDeadLetter) {
				r.t.Errorf("a start that fails: %v", err)
			}
		}
		c, err = sqsadapter.NewConsumer(r.client, r.url, r.handler(r.guard, succeeds), &r.opt)
		r.must(err)
		ctx, cancel := context.WithCancel(r.t.Context())
		first := make(chan error, 1)
		go func() { first <- c.Run(ctx) }()
		r.sleep(time.Second)
		if err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), "runs once") {
			r.t.Errorf("beside the first: %v", err)
		}
		cancel()
		r.must(<-first)
		if err := c.Run(r.t.Context()); err == nil || !strings.Contains(err.Error(), "runs once") {
			r.t.Errorf("after the first: %v", err)
		}
	})
}
