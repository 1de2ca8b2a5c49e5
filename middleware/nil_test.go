package secondrun_test

import (
	"context"
	"strings"
	"testing"

	secondrun "github.com/secondrun/secondrun/middleware"
)

// TestNilIsRefusedWhereItIsGiven: not at the first message.
func TestNilIsRefusedWhereItIsGiven(t *testing.T) {
	g, err := secondrun.New("s", newFaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	result := func(context.Context, msg) (int, error) { return 0, nil }
	decoded := func(context.Context, int) error { return nil }
	h, r := secondrun.Wrap(g, body, nothing), secondrun.WrapResult(g, body, result)
	for want, f := range map[string]func(){
		"Wrap: the guard is nil":              func() { secondrun.Wrap(nil, body, nothing) },
		"Wrap: the key function is nil":       func() { secondrun.Wrap(g, nil, nothing) },
		"Wrap: the handler is nil":            func() { secondrun.Wrap[msg](g, body, nil) },
		"WrapResult: the guard is nil":        func() { secondrun.WrapResult(nil, body, result) },
		"WrapResult: the key function is nil": func() { secondrun.WrapResult(g, nil, result) },
		"WrapResult: the handler is nil":      func() { secondrun.WrapResult[msg, int](g, body, nil) },
		"WrapJSON: the guard is nil":          func() { secondrun.WrapJSON(nil, body, decoded) },
		"WrapJSON: the key function is nil":   func() { secondrun.WrapJSON(g, nil, decoded) },
		"WrapJSON: the handler is nil":        func() { secondrun.WrapJSON[int](g, body, nil) },
		"Do: the guard is nil": func() {
			_, _ = secondrun.Do(t.Context(), nil, "k", func(context.Context) (int, error) { return 0, nil })
		},
		"Do: the handler is nil":      func() { _, _ = secondrun.Do[int](t.Context(), g, "k", nil) },
		"DoFunc: the guard is nil":    func() { _ = secondrun.DoFunc(t.Context(), nil, "k", ok) },
		"DoFunc: the handler is nil":  func() { _ = secondrun.DoFunc(t.Context(), g, "k", nil) },
		"WithFingerprint: the func":   func() { h.WithFingerprint(1, nil) },
		"WithFingerprint: the functi": func() { r.WithFingerprint(1, nil) },
		"WithEvolution: the evol":     func() { h.WithEvolution(nil) },
		"WithEvolution: the evolu":    func() { r.WithEvolution(nil) },
		"Processor.In: the guard":     func() { h.Processor().In(nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "secondrun: "+want) {
					t.Errorf("panics with %q, want %q", text, want)
				}
			}()
			f()
		}()
	}
}

// TestDoRunsAgainAfterAFailure as its documentation says.
func TestDoRunsAgainAfterAFailure(t *testing.T) {
	for _, keep := range []bool{false, true} {
		bubble(t, &secondrun.Options{KeepFailures: keep, MaxFailures: 1}, func(f *fixture) {
			for key, err := range map[string]error{"terminal": errBad, "budget": secondrun.Transient(errBad)} {
				runs := 0
				fail := func(context.Context) error { runs++; return err }
				isError(f, secondrun.DoFunc(f.Context(), f.g, key, fail), errBad)
				if second := secondrun.DoFunc(f.Context(), f.g, key, fail); keep {
					isError(f, second, secondrun.ErrFailed)
					is(f, "runs", runs, 1)
				} else {
					isError(f, second, errBad)
					is(f, "runs", runs, 2)
				}
			}
		})
	}
}
