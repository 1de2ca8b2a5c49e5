package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// The two sides of the demo.
const (
	without = "without"
	with    = "with"
)

// tally counts what happened in one scene on one side.
type tally struct {
	Deliveries, Runs, Charges, Mails, Suppressed int
}

// call is one request to the world outside.
type call struct {
	Mode, What, Order, Key string
	Amount                 int
}

// world is what the handlers act on: a payment gateway and a mail server. It
// is an HTTP server, since some of the workers are processes of their own.
type world struct {
	url string
	say func(mode, format string, args ...any)

	mu       sync.Mutex
	tallies  map[string]*tally
	keys     map[string]bool   // idempotency keys that the gateway has seen
	mailDown map[string]int    // mails that still fail, by side
	onCharge map[string]func() // called once, after the charge and before the answer
}

func newWorld(say func(mode, format string, args ...any)) (*world, func(), error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	w := &world{url: "http://" + ln.Addr().String(), say: say, keys: map[string]bool{}}
	w.reset()
	srv := &http.Server{Handler: w, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(ln) //nolint:errcheck // ends with Close
	return w, func() { _ = srv.Close() }, nil
}

func (w *world) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tallies = map[string]*tally{without: {}, with: {}}
	w.mailDown, w.onCharge = map[string]int{}, map[string]func(){}
}

func (w *world) tally(mode string) tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.tallies[mode]
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Mode != with && c.Mode != without {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	rw.WriteHeader(w.handle(c))
}

func (w *world) handle(c call) (status int) {
	w.mu.Lock()
	t := w.tallies[c.Mode]
	var after func()
	switch c.What {
	case "run":
		t.Runs++
	case "suppressed":
		t.Suppressed++
	case "charge":
		if c.Key != "" && w.keys[c.Key] {
			w.mu.Unlock()
			w.say(c.Mode, "gateway: seen this idempotency key, answering with the first charge")
			return http.StatusOK
		}
		w.keys[c.Key] = c.Key != ""
		t.Charges++
		after = w.onCharge[c.Mode]
		delete(w.onCharge, c.Mode)
	case "mail":
		if w.mailDown[c.Mode] > 0 {
			w.mailDown[c.Mode]--
			status = http.StatusServiceUnavailable
		} else {
			t.Mails++
		}
	}
	charges, mails, failed := t.Charges, t.Mails, status != 0
	w.mu.Unlock()

	switch {
	case c.What == "charge":
		w.say(c.Mode, "charge  %s  $%d.%02d%s", c.Order, c.Amount/100, c.Amount%100, again(charges))
	case c.What == "mail" && failed:
		w.say(c.Mode, "mail    %s  fails: 503", c.Order)
	case c.What == "mail":
		w.say(c.Mode, "mail    %s  receipt%s", c.Order, again(mails))
	case c.What == "suppressed":
		w.say(c.Mode, "duplicate suppressed, message deleted")
	}
	if after != nil {
		after()
	}
	return max(status, http.StatusOK)
}

func again(n int) string {
	if n > 1 {
		return fmt.Sprintf("   <- number %d", n)
	}
	return ""
}

// shop is the handlers' client of the world.
type shop struct {
	url, mode string
}

func (s *shop) ran(ctx context.Context) { _ = s.do(ctx, call{What: "run"}) }
func (s *shop) suppressed()             { _ = s.do(context.Background(), call{What: "suppressed"}) }

func (s *shop) charge(ctx context.Context, o order, key string) error {
	return s.do(ctx, call{What: "charge", Order: o.ID, Amount: o.Amount, Key: key})
}

func (s *shop) mail(ctx context.Context, o order) error {
	return s.do(ctx, call{What: "mail", Order: o.ID})
}

func (s *shop) do(ctx context.Context, c call) error {
	c.Mode = s.mode
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return secondrun.Transient(fmt.Errorf("%s: status %d", c.What, res.StatusCode))
	}
	return nil
}
