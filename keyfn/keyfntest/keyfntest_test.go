package keyfntest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

// recorder is a test that keeps its failures.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(f string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(f, args...))
}
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...) }
func (r *recorder) Fatal(args ...any)            { r.failed = append(r.failed, fmt.Sprint(args...)) }

func TestGolden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "keys.golden")
	samples := []keyfntest.Sample{
		{Name: "plain", Key: keyfn.JSON("id"), Message: keyfntest.Message(`{"id":"é\n"}`)},
		{Name: "none", Key: keyfn.JSON("id"), Message: keyfntest.Message(`{}`)},
	}
	t.Setenv(keyfntest.UpdateVariable, "1")
	keyfntest.Golden(t, file, samples...)
	t.Setenv(keyfntest.UpdateVariable, "")
	keyfntest.Golden(t, file, samples...)
	data, err := os.ReadFile(file)
	if want := "\"plain\"\t\"\\u00e9\\n\"\n\"none\"\terror \"keyfn: JSON \\\"id\\\": missing\"\n"; err != nil || string(data) != want {
		t.Errorf("got %q, %v\nwant %q", data, err, want)
	}

	for name, change := range map[string]func() []keyfntest.Sample{
		"changed": func() []keyfntest.Sample {
			return []keyfntest.Sample{{Name: "plain", Key: keyfn.Literal("x"), Message: samples[0].Message}, samples[1]}
		},
		"is new": func() []keyfntest.Sample {
			return append(samples, keyfntest.Sample{Name: "3", Key: keyfn.Literal("x")})
		},
		"no sample any more": func() []keyfntest.Sample { return samples[:1] },
		"twice":              func() []keyfntest.Sample { return append(samples, samples[0]) },
	} {
		r := &recorder{}
		keyfntest.Golden(r, file, change()...)
		if len(r.failed) == 0 || !strings.Contains(r.failed[0], name) {
			t.Errorf("%s: %q", name, r.failed)
		}
	}
	r := &recorder{}
	keyfntest.Golden(r, file+".none", samples...)
	if len(r.failed) == 0 {
		t.Error("passes without a file")
	}
}

func TestSameAndDifferent(t *testing.T) {
	a, b, none := keyfntest.Message(`{"id":"1"}`), keyfntest.Message(`{"id":"2"}`), keyfntest.Message(`{}`)
	f := keyfn.JSON("id")
	keyfntest.Same(t, f, a, a)
	keyfntest.Different(t, f, a, b)
	keyfntest.Fails(t, f, keyfn.ErrMissing, none)
	for i, fail := range []func(testing.TB){
		func(t testing.TB) { keyfntest.Same(t, f, a, b) },
		func(t testing.TB) { keyfntest.Same(t, f, a, none) },
		func(t testing.TB) { keyfntest.Different(t, f, a, b, a) },
		func(t testing.TB) { keyfntest.Different(t, f, a, none) },
		func(t testing.TB) { keyfntest.Fails(t, f, keyfn.ErrMissing, a) },
		func(t testing.TB) { keyfntest.Fails(t, f, keyfn.ErrNull, none) },
	} {
		r := &recorder{}
		if fail(r); len(r.failed) != 1 {
			t.Errorf("%d: %q", i, r.failed)
		}
	}
}
