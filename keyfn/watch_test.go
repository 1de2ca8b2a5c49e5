package keyfn_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/keyfn"
)

func brokerID(m keyfn.Message) string {
	if v := m.Header("broker-id"); len(v) > 0 {
		return v[0]
	}
	return ""
}

func TestWatch(t *testing.T) {
	const guid = "0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b"
	hash := keyfn.Hash(keyfn.Everything())
	for _, c := range []struct {
		name string
		f    keyfn.Func
		ms   []keyfn.Message
		want keyfn.WarningKind
		n    uint64
	}{
		{"id alone", keyfn.Header("broker-id"), []keyfn.Message{headers("", "broker-id", guid)}, keyfn.WarnTransportID, 1},
		{"id as a part", keyfn.Template("x:{header:broker-id}:y"), []keyfn.Message{headers("", "broker-id", guid)}, keyfn.WarnTransportID, 1},
		{"escaped id as a part", keyfn.Template("x:{header:broker-id}:y"), []keyfn.Message{headers("", "broker-id", "orders:0:41")}, keyfn.WarnTransportID, 1},
		{"short id by chance", keyfn.Literal("order:41:x"), []keyfn.Message{headers("", "broker-id", "41")}, keyfn.WarnTransportID, 0},
		{"id inside a word", keyfn.Literal("order:12345678901"), []keyfn.Message{headers("", "broker-id", "2345678901")}, keyfn.WarnTransportID, 0},
		{"unstable", keyfn.JSON("at"), []keyfn.Message{headers(`{"at":"1"}`, "broker-id", "m1"), headers(`{"at":"2"}`, "broker-id", "m1")}, keyfn.WarnUnstable, 1},
		{"stable", keyfn.JSON("at"), []keyfn.Message{headers(`{"at":"1"}`, "broker-id", "m1"), headers(`{"at":"1"}`, "broker-id", "m1")}, keyfn.WarnUnstable, 0},
		{"U34-5 heartbeats", hash, []keyfn.Message{headers(`{"kind":"rotation"}`, "broker-id", "m1"), headers(`{"kind":"rotation"}`, "broker-id", "m2")}, keyfn.WarnEqualHash, 1},
		{"hash redelivered", hash, []keyfn.Message{headers(`{"kind":"rotation"}`, "broker-id", "m1"), headers(`{"kind":"rotation"}`, "broker-id", "m1")}, keyfn.WarnEqualHash, 0},
		{"equal keys without a hash", keyfn.JSON("kind"), []keyfn.Message{headers(`{"kind":"r"}`, "broker-id", "m1"), headers(`{"kind":"r"}`, "broker-id", "m2")}, keyfn.WarnEqualHash, 0},
		{"no id", keyfn.JSON("kind"), []keyfn.Message{body(`{"kind":"r"}`)}, keyfn.WarnTransportID, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []keyfn.Warning
			w := keyfn.NewWatch(&keyfn.WatchOptions{OnWarning: func(v keyfn.Warning) { seen = append(seen, v) }})
			for _, m := range c.ms {
				if _, err := w.Func(brokerID, c.f)(m); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.Warnings(c.want); got != c.n {
				t.Errorf("%v: %d warnings, want %d", c.want, got, c.n)
			}
			if uint64(len(seen)) != c.n {
				t.Fatalf("hook saw %v", seen)
			}
			for _, v := range seen {
				if v.Kind != c.want || len(v.KeyHash) != 8 || strings.Contains(fmt.Sprintf("%+v", v), guid) {
					t.Errorf("hook saw %+v", v)
				}
			}
		})
	}
}

func TestU04_WatchCountsKeyErrors(t *testing.T) {
	w := keyfn.NewWatch(nil)
	f := w.Func(brokerID, keyfn.JSON("id"))
	for _, b := range []string{`{}`, `{"id":null}`, `{"id":""}`, ``, `{`, `{"id":1}`} {
		_, _ = f(body(b))
	}
	for reason, want := range map[error]uint64{keyfn.ErrMissing: 2, keyfn.ErrNull: 1, keyfn.ErrEmpty: 1, keyfn.ErrMalformed: 1, keyfn.ErrType: 0} {
		if got := w.Failures(reason); got != want {
			t.Errorf("%v: %d, want %d", reason, got, want)
		}
	}
	w.Failed(fmt.Errorf("own"))
	if w.Failures(keyfn.ErrOther) != 1 {
		t.Error("an error of the caller is not counted")
	}
}

func TestWatch_ForgetsTheOldest(t *testing.T) {
	w := keyfn.NewWatch(&keyfn.WatchOptions{Remember: 2})
	for _, id := range []string{"a", "b", "c"} {
		w.Derived("key-1", id)
	}
	w.Derived("key-2", "a") // forgotten, so nothing to compare
	w.Derived("key-2", "c") // remembered
	if got := w.Warnings(keyfn.WarnUnstable); got != 1 {
		t.Errorf("%d warnings, want 1", got)
	}
}

func TestWatch_NewerIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []keyfn.Warning
		w := keyfn.NewWatch(&keyfn.WatchOptions{OnWarning: func(v keyfn.Warning) { seen = append(seen, v) }})
		f := w.Func(brokerID, keyfn.Version(keyfn.JSON("v"), 1, keyfn.JSON("id")))
		for range 5 {
			_, _ = f(body(`{"v":2}`))
			time.Sleep(4 * time.Minute)
		}
		if len(seen) != 1 || seen[0] != (keyfn.Warning{Kind: keyfn.WarnNewer, Version: 2}) {
			t.Errorf("saw %+v", seen)
		}
		if w.Warnings(keyfn.WarnNewer) != 1 || w.Failures(keyfn.ErrNewer) != 5 {
			t.Errorf("%d warnings, %d failures", w.Warnings(keyfn.WarnNewer), w.Failures(keyfn.ErrNewer))
		}
	})
}

func TestWatch_Concurrent(t *testing.T) {
	w := keyfn.NewWatch(&keyfn.WatchOptions{Remember: 8})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				w.Derived(fmt.Sprint("key-", j%16), fmt.Sprint("id-", i, j%32))
				w.Failed(keyfn.ErrMissing)
			}
		})
	}
	wg.Wait()
	if w.Failures(keyfn.ErrMissing) != 1600 {
		t.Error("lost counts")
	}
}
