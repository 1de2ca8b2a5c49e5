package keyfn_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

func TestU31_Evolution(t *testing.T) {
	old := keyfn.Format{Scope: "billing", Version: 1, Func: keyfn.Template("{header:topic}:{header:offset}")}
	cur := keyfn.Format{Scope: "billing", Version: 2, Func: keyfn.Template("{header:topic}:{header:partition}:{header:offset}")}
	p0 := headers(`{"orderId":"ord-1"}`, "topic", "orders", "partition", "0", "offset", "41")
	p1 := headers(`{"orderId":"ord-2"}`, "topic", "orders", "partition", "1", "offset", "41")

	got, err := keyfn.Evolve(cur, old).Keys(p0)
	want := keyfn.Keys{
		Current: keyfn.Key{Scope: "billing", Version: 2, Text: "v2:orders:0:41"},
		Claim:   []keyfn.Key{{Scope: "billing", Version: 1, Text: "orders:41"}, {Scope: "billing", Version: 2, Text: "v2:orders:0:41"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
	// The old consumer claims a key that is among those of the new one.
	oldKey, err := old.AsFunc()(p0)
	if oldKey != got.Claim[0].Text || err != nil {
		t.Errorf("old %q, %v", oldKey, err)
	}
	if k, err := cur.AsFunc()(p1); k != "v2:orders:1:41" || err != nil {
		t.Errorf("got %q, %v", k, err)
	}
	if k, err := keyfn.Evolve(cur, old).AsFunc()(p0); k != got.Current.Text || err != nil {
		t.Errorf("got %q, %v", k, err)
	}
	// Building it again and again changes nothing.
	for range 1000 {
		again, err := keyfn.Evolve(cur, old).Keys(p0)
		if err != nil || !reflect.DeepEqual(again, want) {
			t.Fatalf("got %+v, %v", again, err)
		}
	}
}

func TestEvolution_Edges(t *testing.T) {
	id := keyfn.JSON("id")
	a := keyfn.Format{Scope: "s", Version: 2, Func: id}
	old := keyfn.Format{Scope: "s", Func: keyfn.JSON("oldId")}
	moved := keyfn.Format{Scope: "r", Func: id}
	e := keyfn.Evolve(a, old, moved)

	keys, err := e.Keys(body(`{"id":"1"}`))
	want := []keyfn.Key{{Scope: "r", Text: "1"}, {Scope: "s", Version: 2, Text: "v2:1"}}
	if err != nil || !reflect.DeepEqual(keys.Claim, want) {
		t.Errorf("without an old key: %+v, %v", keys, err)
	}
	if _, err := e.Keys(body(`{"oldId":"1"}`)); !errors.Is(err, keyfn.ErrMissing) {
		t.Errorf("without a current key: %v", err)
	}
	if _, err := moved.Key(body(`{"id":"v2:1"}`)); !errors.Is(err, keyfn.ErrMalformed) {
		t.Errorf("key that looks versioned: %v", err)
	}
	for _, s := range []string{"v1:1", "v02:1", "v:1", "v2", "vx:1"} {
		if k, err := moved.Key(body(`{"id":"` + s + `"}`)); k.Text != s || err != nil {
			t.Errorf("%s: %q, %v", s, k.Text, err)
		}
	}
	mustPanic(t, "no scope", func() { keyfn.Evolve(keyfn.Format{Func: id}) })
	mustPanic(t, "no function", func() { keyfn.Evolve(keyfn.Format{Scope: "s"}) })
	mustPanic(t, "negative", func() { keyfn.Evolve(keyfn.Format{Scope: "s", Version: -1, Func: id}) })
	mustPanic(t, "twice", func() { keyfn.Evolve(keyfn.Format{Scope: "s", Version: 1, Func: id}, old) })
}

func TestVersion(t *testing.T) {
	f := keyfn.Version(keyfn.First(keyfn.JSON("v"), keyfn.Literal("1")), 3, keyfn.JSON("id"))
	check(t, f, []row{
		{name: "known", m: body(`{"v":3,"id":"a"}`), key: "a"},
		{name: "text", m: body(`{"v":"2","id":"a"}`), key: "a"},
		{name: "none", m: body(`{"id":"a"}`), key: "a"},
		{name: "newer", m: body(`{"v":4,"id":"a"}`), err: keyfn.ErrNewer},
		{name: "newer with another shape", m: body(`{"v":4}`), err: keyfn.ErrNewer},
		{name: "huge", m: body(`{"v":99999999999999999999,"id":"a"}`), err: keyfn.ErrNewer},
		{name: "word", m: body(`{"v":"` + canary + `","id":"a"}`), err: keyfn.ErrMalformed},
		{name: "fraction", m: body(`{"v":1.5,"id":"a"}`), err: keyfn.ErrMalformed},
		{name: "null", m: body(`{"v":null,"id":"a"}`), err: keyfn.ErrNull},
	})
	_, err := f(body(`{"v":7}`))
	var newer *keyfn.NewerError
	if !errors.As(err, &newer) || newer.Version != 7 || newer.Newest != 3 {
		t.Errorf("got %v", err)
	}
}
