package secondrun_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// named is the JSON codec under another name.
type named string

func (n named) Name() string                  { return string(n) }
func (named) Encode(v any) ([]byte, error)    { return json.Marshal(v) }
func (named) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// panicking is a codec that panics.
type panicking struct{ encode bool }

func (panicking) Name() string { return "json" }
func (p panicking) Encode(v any) ([]byte, error) {
	if p.encode {
		panic("encode")
	}
	return json.Marshal(v)
}
func (panicking) Decode([]byte, any) error { panic("decode") }

// roundTrip runs a handler with the result, and replays it.
func roundTrip[R any](f *fixture, opt *secondrun.Options, result R) (first, replay R, err error) {
	f.Helper()
	runs := 0
	key := fmt.Sprint(time.Now().UnixNano())
	h := secondrun.WrapResult(f.guard(opt), body, func(context.Context, msg) (R, error) { runs++; return result, nil })
	first, err1 := h.HandleResult(f.Context(), msg(key))
	isError(f, err1, nil)
	replay, err = h.HandleResult(f.Context(), msg(key))
	time.Sleep(2 * lease)
	isError(f, h.Handle(f.Context(), msg(key)), nil) // done, with or without a result
	is(f, "runs", runs, 1)
	is(f, "state", f.record(key).State, store.StateSucceeded)
	return first, replay, err
}

func same[R any](f *fixture, opt *secondrun.Options, result R) {
	f.Helper()
	first, replay, err := roundTrip(f, opt, result)
	isError(f, err, nil)
	a, b := fmt.Sprintf("%#v", result), fmt.Sprintf("%#v", replay)
	if a != b || fmt.Sprintf("%#v", first) != a {
		f.Errorf("%s came back as %s, first %#v", a, b, first)
	}
}

type invoice struct {
	ID    string
	Lines []string
}

func TestK14_ResultsReplayAsTheyAre(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		raw := &secondrun.Options{Codec: secondrun.Raw}
		same(f, nil, 0)
		same(f, nil, 42)
		same(f, nil, "")
		same(f, nil, "secondrun: key has failed")
		same[*int](f, nil, nil)
		same[any](f, nil, nil)
		same(f, nil, []string(nil))
		same(f, nil, []string{})
		same(f, nil, invoice{ID: "i", Lines: []string{"a"}})
		same(f, nil, struct{}{})
		same(f, raw, []byte(nil))
		same(f, raw, []byte{})
		same(f, raw, []byte{0})
		same(f, raw, "")
		same(f, raw, "text")
	})
}

func TestK08_U14_ResultThatIsTooLarge(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		for size, kept := range map[int]bool{100: true, 101: false, 3 << 20: false} {
			before := f.events.count(secondrun.EventResultOmitted)
			opt := &secondrun.Options{MaxResult: 101, Codec: secondrun.Raw} // one byte is the codec's
			first, replay, err := roundTrip(f, opt, bytes.Repeat([]byte{'x'}, size))
			is(f, "first", len(first), size)
			if kept {
				isError(f, err, nil)
				is(f, "replay", len(replay), size)
			} else {
				isError(f, err, secondrun.ErrResultUnavailable)
				is(f, "undecodable", errors.Is(err, secondrun.ErrResultUndecodable), false)
				is(f, "replay", len(replay), 0)
				is(f, "omitted", f.events.count(secondrun.EventResultOmitted)-before, 1)
			}
		}
	})
}

func TestK09_U14_ResultThatCannotBeEncoded(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		_, _, err := roundTrip(f, nil, math.NaN())
		isError(f, err, secondrun.ErrResultUnavailable)
		_, _, err = roundTrip(f, nil, make(chan int))
		isError(f, err, secondrun.ErrResultUnavailable)
		_, _, err = roundTrip(f, &secondrun.Options{Codec: panicking{encode: true}}, 1)
		isError(f, err, secondrun.ErrResultUnavailable)
		_, _, err = roundTrip(f, &secondrun.Options{Codec: secondrun.Raw}, 1)
		isError(f, err, secondrun.ErrResultUnavailable)
		is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 4)
	})
}

func TestDroppedResults(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		_, _, err := roundTrip(f, &secondrun.Options{DropResults: true}, 1)
		isError(f, err, secondrun.ErrResultUnavailable)
		is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 0)
	})
}

func TestK10_ResultThatCannotBeDecodedIsStillDone(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		write := secondrun.WrapResult(f.g, body, func(context.Context, msg) (invoice, error) {
			return invoice{ID: "i", Lines: []string{"a"}}, nil
		})
		if _, err := write.HandleResult(f.Context(), "a"); err != nil {
			f.Fatal(err)
		}
		never := func(context.Context, msg) (int, error) { f.Error("ran again"); return 0, nil }
		for name, g := range map[string]*secondrun.Guard{
			"another type":    f.g,
			"another codec":   f.guard(&secondrun.Options{Codec: named("xml")}),
			"panicking codec": f.guard(&secondrun.Options{Codec: panicking{}}),
		} {
			n, err := secondrun.WrapResult(g, body, never).HandleResult(f.Context(), "a")
			if n != 0 || !errors.Is(err, secondrun.ErrResultUndecodable) || !errors.Is(err, secondrun.ErrResultUnavailable) {
				f.Errorf("%s: %v, %v", name, n, err)
			}
			d := secondrun.WrapResult(g, body, never).Processor().Process(f.Context(), delivery("a"))
			decided(f, d, secondrun.Ack, false, nil)
		}
	})
}

func TestHalfADecodedResultIsNotHandedOut(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		type wider struct {
			ID    string
			Lines []int
		}
		_, err := secondrun.Do(f.Context(), f.g, "a", func(context.Context) (invoice, error) {
			return invoice{ID: "i", Lines: []string{"a"}}, nil
		})
		isError(f, err, nil)
		w, err := secondrun.Do(f.Context(), f.g, "a", func(context.Context) (wider, error) { panic("ran") })
		isError(f, err, secondrun.ErrResultUndecodable)
		is(f, "ID", w.ID, "")
	})
}

func TestReplayOfAHandlerThatHadNoResult(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		isError(f, secondrun.DoFunc(f.Context(), f.g, "a", func(context.Context) error { return nil }), nil)
		_, err := secondrun.Do(f.Context(), f.g, "a", func(context.Context) (int, error) { panic("ran") })
		isError(f, err, secondrun.ErrResultUnavailable)
		if !strings.Contains(err.Error(), "without a result") {
			f.Error(err)
		}
	})
}

func TestK07_U13_SameKeyAnotherContent(t *testing.T) {
	type batch struct {
		Batch, Records int
		SentAt         string
	}
	text := func(b batch) msg { s, _ := json.Marshal(b); return msg(s) }
	for name, opt := range map[string]*secondrun.Options{"plain": nil, "keyed": {FingerprintKey: []byte("k")}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, opt, func(f *fixture) {
				a, a2 := batch{1, 100, "10:00"}, batch{1, 100, "10:01"}
				b := batch{2, 100, "10:05"}
				runs := 0
				h := secondrun.WrapResult(f.g, keyOf("shard-7"), func(_ context.Context, m msg) (string, error) {
					runs++
					if strings.Contains(string(m), "slow") {
						time.Sleep(time.Second)
					}
					return string(m), nil
				}).WithFingerprint(1, fieldsOf[batch](func(b batch) string { return fmt.Sprint(b.Batch, b.Records) }))
				got, err := h.HandleResult(f.Context(), text(a))
				isError(f, err, nil)
				again, err := h.HandleResult(f.Context(), text(a2))
				isError(f, err, nil)
				is(f, "replay", again, got)
				other, err := h.HandleResult(f.Context(), text(b))
				isError(f, err, secondrun.ErrConflict)
				is(f, "result of a conflict", other, "")
				d := h.Processor().Process(f.Context(), secondrun.Delivery{Message: text(b)})
				decided(f, d, secondrun.DeadLetter, false, secondrun.ErrConflict)
				is(f, "payload of a conflict", len(d.Result), 0)
				is(f, "runs", runs, 1)
				// Another version is not compared.
				newer := h.WithFingerprint(2, keyOf("other"))
				_, err = newer.HandleResult(f.Context(), text(b))
				isError(f, err, nil)
			})
		})
	}
}

func TestU13_ConflictWhileTheOtherRuns(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		h := secondrun.Wrap(f.g, keyOf("shard-7"), func(context.Context, msg) error { time.Sleep(time.Second); return nil }).
			WithFingerprint(1, body)
		first := start(f.Context(), h.Processor(), delivery("a"))
		time.Sleep(time.Millisecond)
		decided(f, h.Processor().Process(f.Context(), delivery("b")), secondrun.DeadLetter, false, secondrun.ErrConflict)
		decided(f, h.Processor().Process(f.Context(), delivery("a")), secondrun.Retry, false, secondrun.ErrBusy)
		decided(f, <-first, secondrun.Ack, true, nil)
	})
}

func TestFingerprintThatFailsIsAKeyError(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		h := secondrun.Wrap(f.g, body, nothing).WithFingerprint(0, func(msgOf) (string, error) { return "", errCut })
		decided(f, h.Processor().Process(f.Context(), delivery("a")), secondrun.DeadLetter, false, secondrun.ErrKey)
	})
}
