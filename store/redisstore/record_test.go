package redisstore

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/secondrun/secondrun/store"
)

// TestS07_ScriptsPinned: the scripts are constants. A change here is meant, and
// then servers load the new text beside the old one.
func TestS07_ScriptsPinned(t *testing.T) {
	s := newScripts()
	for name, c := range map[string]struct {
		got  script
		want string
	}{
		"claim":  {s.claim, "7001b57167f9a0bdf1a0c4c985dff7e2ea232860"},
		"renew":  {s.renew, "f98cdc85e6b51dc34ac68109e254870a350c92d6"},
		"settle": {s.settle, "1c4106a6c5aee79f7a68faab8c798f01b83540db"},
		"read":   {s.read, "b4636c34ba8f0b11c263717d0526b86a1f1c7f5d"},
		"reopen": {s.reopen, "e7cfc27a60b347f985e4c9a317449e23171fdc69"},
		"forget": {s.forget, "1feff025503f984a67723a56a4b2a8754ae5928d"},
		"ping":   {s.ping, "a02ebe5aff28c1b21139f2242f8b1f2acd9909c8"},
	} {
		if c.got.sha != c.want {
			t.Errorf("%s: %s", name, c.got.sha)
		}
		for _, word := range []string{"loadstring", "load(", "dofile"} {
			if strings.Contains(c.got.text, word) {
				t.Errorf("%s has %q", name, word)
			}
		}
	}
}

// golden is a record as version 1 writes it: readers of later versions must
// understand it.
const golden = "d20163" + // version 1, succeeded, judge and fingerprint
	"000102030405060708090a0b0c0d0e0f" +
	"00000000000000" + "065e5bcf4a1234" +
	"000000000007" + "00000003" + "00000002" + "00000001" +
	"0008" + "0022" + "000006" +
	"101112131415161718191a1b1c1d1e1f" +
	"0001" + "abababababababababababababababababababababababababababababababab" +
	"64656c6976657279" +
	"06" + "686f6c646572" + "01" + "000af7651916cd43dd8448eb211c80319cb7ad6b716920333101" +
	"726573756c74"

func TestK11_Golden(t *testing.T) {
	raw, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	r, err := decode(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	rec := r.shown(store.ID{}, nil)
	if rec.State != store.StateSucceeded || rec.Fence != 7 || rec.Starts != 3 || rec.Failures != 2 || rec.Crashes != 1 ||
		rec.Delivery != "delivery" || rec.Holder != "holder" || string(rec.Payload) != "result" ||
		rec.Trace != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" ||
		rec.Fingerprint.Version != 1 || rec.Fingerprint.Sum[31] != 0xab || rec.ExpiresAt.UnixMicro() != 0x065e5bcf4a1234 {
		t.Fatalf("%+v", rec)
	}
}

func FuzzDecode(f *testing.F) {
	raw, _ := hex.DecodeString(golden)
	f.Add(string(raw))
	f.Add("")
	f.Add("\xd2\x01\x07")
	f.Fuzz(func(t *testing.T, v string) {
		r, err := decode(v)
		if err != nil {
			if !errors.Is(err, store.ErrPermanent) {
				t.Fatal(err)
			}
			return
		}
		if r.state == 0 {
			t.Fatal("a record without state")
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add("holder", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add(strings.Repeat("h", 256), "vendor trace")
	f.Fuzz(func(t *testing.T, holder, trace string) {
		h, tr, ok := decodeMeta(string(encodeMeta(holder, trace)))
		if !ok || h != holder || tr != trace {
			t.Fatalf("%q %q: %q %q %v", holder, trace, h, tr, ok)
		}
	})
}

// FuzzKeys (K04, D10): keys come back, and what the cluster hashes is exactly
// what stands between our own braces.
func FuzzKeys(f *testing.F) {
	f.Add("a:b", "c")
	f.Add("a", "b:c")
	f.Add("{x}", "}{")
	f.Add("%3A", "%")
	s := &Store{prefix: "secondrun"}
	f.Fuzz(func(t *testing.T, scope, key string) {
		id := store.ID{Scope: scope, Key: key}
		record, _ := s.keys(id)
		wantScope, wantKey, _ := id.Encode()
		gotScope, gotKey, ok := s.parseKey(record)
		if !ok || gotScope != wantScope || gotKey != wantKey {
			t.Fatalf("%q: %q %q", record, gotScope, gotKey)
		}
		if strings.Count(record, "{") != 1 || strings.Count(record, "}") != 1 {
			t.Fatalf("%q: the sender chose the slot", record)
		}
	})
}

// reply is an error of a server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestD08_Classification(t *testing.T) {
	for text, permanent := range map[string]bool{
		"READONLY You can't write against a read only replica.":       false,
		"LOADING Redis is loading the dataset in memory":              false,
		"CLUSTERDOWN The cluster is down":                             false,
		"MASTERDOWN Link with MASTER is down":                         false,
		"TRYAGAIN Multiple keys request during rehashing of slot":     false,
		"MOVED 1 127.0.0.1:1":                                         false,
		"ASK 1 127.0.0.1:1":                                           false,
		"OOM command not allowed when used memory > 'maxmemory'.":     false,
		"BUSY Redis is busy running a script.":                        false,
		"MISCONF Redis is configured to save RDB snapshots, but":      false,
		"NOREPLICAS Not enough good replicas to write.":               false,
		"ERR max number of clients reached":                           false,
		"NOPERM this user has no permissions to run the 'evalsha'":    true,
		"NOAUTH Authentication required.":                             true,
		"WRONGPASS invalid username-password pair":                    true,
		"WRONGTYPE Operation against a key holding the wrong kind":    true,
		"CROSSSLOT Keys in request don't hash to the same slot":       true,
		"ERR unknown command 'EVALSHA', with args beginning with:":    true,
		"ERR Error compiling script (new function): user_script:1:":   true,
		"ERR user_script:12: attempt to call field 'unpack' (a nil v": true,
	} {
		err := classify(reply(text))
		if errors.Is(err, store.ErrPermanent) != permanent || !errors.Is(err, reply(text)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if errors.Is(classify(context.DeadlineExceeded), store.ErrPermanent) || classify(nil) != nil {
		t.Error("client errors")
	}
}

func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 0, 0: 0, 1: 1, time.Microsecond: 1, 1001: 2, time.Hour: 3_600_000_000, 1<<63 - 1: maxMicros,
	} {
		if got := micros(d); got != want {
			t.Errorf("%d: %d, want %d", d, got, want)
		}
	}
}

func TestVersionCheck(t *testing.T) {
	for info, want := range map[string]bool{
		"redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\n":                      true,
		"redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\n":                       false,
		"server_name:valkey\r\nredis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\n": false,
		"redis_version:10.1.0\r\nmaxmemory_policy:noeviction\r\n":                      false,
		"": false, // warned of
	} {
		warned := 0
		c := &checker{opts: &Options{OnWarning: func(string) { warned++ }}}
		if err := c.info(info); errors.Is(err, store.ErrPermanent) != want {
			t.Errorf("%q: %v", info, err)
		}
		if info == "" && warned != 2 {
			t.Errorf("%d warnings", warned)
		}
	}
}
