package secondrun_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

var update = flag.Bool("update", false, "write the golden files of payloads that have none yet")

// golden is one payload of a released format, in testdata/payloads. A file is
// never changed: records with it are out there.
type golden struct {
	file   string
	codec  secondrun.Codec
	result any   // of the handler; noResult for none
	err    error // of the handler
	replay error // with which it is answered, nil for the result
	text   string
}

type noResult struct{}

func goldens() []golden {
	return []golden{
		{file: "v1-bare", result: noResult{}, replay: secondrun.ErrResultUnavailable},
		{file: "v1-json", result: map[string]any{"id": "inv_1", "total": 4200.0}},
		{file: "v1-json-null", result: nil},
		{file: "v1-raw", codec: secondrun.Raw, result: []byte("\x00\xffbytes")},
		{file: "v1-raw-nil", codec: secondrun.Raw, result: []byte(nil)},
		{file: "v1-raw-empty", codec: secondrun.Raw, result: []byte{}},
		{file: "v1-other-codec", codec: named("msgpack"), result: "x"},
		{file: "v1-omitted-size", result: strings.Repeat("x", 100), replay: secondrun.ErrResultUnavailable, text: "102 bytes, limit 64"},
		{file: "v1-omitted-kind", result: make(chan int), replay: secondrun.ErrResultUnavailable, text: "not encodable (*json.UnsupportedTypeError)"},
		{file: "v1-failure", err: secondrun.Terminal(errBad), replay: secondrun.ErrFailed, text: "*errors.errorString"},
		{file: "v1-failure-used-up", err: secondrun.Transient(errBad), replay: secondrun.ErrFailed, text: "*errors.errorString"},
	}
}

func (g golden) guard(t *testing.T, st store.Store) *secondrun.Guard {
	t.Helper()
	guard, err := secondrun.New("test", st, &secondrun.Options{Codec: g.codec, MaxResult: 64, MaxFailures: 1})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// do runs the handler once, or replays it.
func (g golden) do(t *testing.T, guard *secondrun.Guard) error {
	t.Helper()
	ctx := t.Context()
	switch want := g.result.(type) {
	case noResult:
		_, err := secondrun.Do(ctx, guard, "again", func(context.Context) (int, error) { return 0, nil })
		isError(t, err, nil)
		return secondrun.DoFunc(ctx, guard, "k", func(context.Context) error { return g.err })
	case []byte:
		got, err := secondrun.Do(ctx, guard, "k", func(context.Context) ([]byte, error) { return want, g.err })
		if err == nil && (string(got) != string(want) || (got == nil) != (want == nil)) {
			t.Errorf("result is %#v, want %#v", got, want)
		}
		return err
	default:
		got, err := secondrun.Do(ctx, guard, "k", func(context.Context) (any, error) { return want, g.err })
		if m, ok := want.(map[string]any); ok && err == nil {
			is(t, "total", got.(map[string]any)["total"], m["total"])
		} else if err == nil {
			is(t, "result", got, want)
		}
		return err
	}
}

func TestK11_PayloadsAreWrittenAsEver(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.file, func(t *testing.T) {
			st := newFaults()
			isError(t, g.do(t, g.guard(t, st)), errors.Unwrap(g.err))
			r, ok, err := st.Get(t.Context(), store.ID{Scope: "test", Key: "k"})
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			path := filepath.Join("testdata", "payloads", g.file)
			want, err := os.ReadFile(path) //nolint:gosec // a name of this file
			if *update && errors.Is(err, os.ErrNotExist) {
				want, err = r.Payload, os.WriteFile(path, r.Payload, 0o600)
			}
			isError(t, err, nil)
			is(t, "payload", string(r.Payload), string(want))
		})
	}
}

// stored puts a payload into a store, as another release may have done.
func stored(t testing.TB, kind store.Kind, payload []byte) *faultStore {
	t.Helper()
	st, ctx := newFaults(), context.Background()
	id, token := store.ID{Scope: "test", Key: "k"}, store.NewToken()
	_, err := st.Claim(ctx, []store.ClaimRequest{{ID: id, Token: token, Lease: lease, Retention: 24 * lease, Delivery: "d"}})
	isError(t, err, nil)
	_, err = st.Settle(ctx, []store.Settlement{{ID: id, Token: token, Kind: kind, Payload: payload, Retention: 24 * lease}})
	isError(t, err, nil)
	return st
}

func TestK11_PayloadsOfEveryReleaseAreRead(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.file, func(t *testing.T) {
			payload, err := os.ReadFile(filepath.Join("testdata", "payloads", g.file))
			isError(t, err, nil)
			if g.err != nil {
				p := process(g.guard(t, stored(t, store.Fail, payload)), nothing)
				d := p.Process(t.Context(), secondrun.Delivery{Message: msg("k"), ID: "d"})
				decided(t, d, secondrun.DeadLetter, false, g.replay)
				var failed *secondrun.FailedError
				if !errors.As(d.Err, &failed) || failed.Text != g.text {
					t.Error(d.Err)
				}
				return
			}
			guard := g.guard(t, stored(t, store.Succeed, payload))
			if _, ok := g.result.(noResult); ok {
				_, err = secondrun.Do(t.Context(), guard, "k", func(context.Context) (int, error) { panic("ran") })
			} else {
				err = g.do(t, guard)
			}
			isError(t, err, g.replay)
			var reason *secondrun.ResultError
			if errors.As(err, &reason) && g.text != "" {
				is(t, "reason", reason.Reason, g.text)
			}
		})
	}
}

func TestK13_PayloadsThatCannotBeRead(t *testing.T) {
	for _, payload := range []string{
		"", "\x01", "\x00\x02\x04json1", "\x02\x02\x04json1", "\x01\x05rest", "\x01\x02", "\x01\x02\x05json", "\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
		"\x01\x02\x04json{", "\x01\x02\x04yaml1", "\x01\x04\x02failure",
	} {
		g, err := secondrun.New("test", stored(t, store.Succeed, []byte(payload)), nil)
		isError(t, err, nil)
		n, err := secondrun.Do(t.Context(), g, "k", func(context.Context) (int, error) { t.Error("ran again"); return 0, nil })
		isError(t, err, secondrun.ErrResultUndecodable)
		is(t, "result", n, 0)

		g, err = secondrun.New("test", stored(t, store.Fail, []byte(payload)), nil)
		isError(t, err, nil)
		d := process(g, nothing).Process(t.Context(), secondrun.Delivery{Message: msg("k"), ID: "d"})
		decided(t, d, secondrun.DeadLetter, false, secondrun.ErrFailed)
	}
}

func FuzzPayload(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "payloads", "*"))
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		payload, err := os.ReadFile(file) //nolint:gosec // test data
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > store.MaxPayload {
			return
		}
		for _, codec := range []secondrun.Codec{secondrun.JSON, secondrun.Raw} {
			g, err := secondrun.New("test", stored(t, store.Succeed, payload), &secondrun.Options{Codec: codec})
			isError(t, err, nil)
			_, err = secondrun.Do(t.Context(), g, "k", func(context.Context) ([]byte, error) { t.Error("ran again"); return nil, nil })
			if err != nil && !errors.Is(err, secondrun.ErrResultUnavailable) {
				t.Error(err)
			}
		}
		g, err := secondrun.New("test", stored(t, store.Fail, payload), nil)
		isError(t, err, nil)
		d := process(g, nothing).Process(t.Context(), secondrun.Delivery{Message: msg("k"), ID: "d"})
		decided(t, d, secondrun.DeadLetter, false, secondrun.ErrFailed)
		_ = d.Err.Error()
	})
}

func FuzzRaw(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0})
	f.Add([]byte{0, 1})
	f.Add([]byte("\x01text"))
	f.Fuzz(func(t *testing.T, data []byte) {
		encoded, err := secondrun.Raw.Encode(data)
		isError(t, err, nil)
		var back []byte
		isError(t, secondrun.Raw.Decode(encoded, &back), nil)
		if string(back) != string(data) || (back == nil) != (data == nil) {
			t.Errorf("%#v came back as %#v", data, back)
		}
		// What is read at all is written in the same way.
		var b []byte
		var s string
		var n int
		if err := secondrun.Raw.Decode(data, &b); err == nil {
			again, err := secondrun.Raw.Encode(b)
			isError(t, err, nil)
			is(t, "written", string(again), string(data))
			isError(t, secondrun.Raw.Decode(data, &s), nil)
			is(t, "text", s, string(b))
		}
		if secondrun.Raw.Decode(data, &n) == nil {
			t.Error("decoded into an int")
		}
	})
}
