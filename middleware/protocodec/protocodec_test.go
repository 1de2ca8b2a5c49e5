package protocodec_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/secondrun/secondrun/internal/leaktest"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/middleware/protocodec"
	"github.com/secondrun/secondrun/store/memstore"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func guard(t testing.TB, opt *secondrun.Options) *secondrun.Guard {
	t.Helper()
	g, err := secondrun.New("test", memstore.New(nil), opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestResultsReplay(t *testing.T) {
	g := guard(t, &secondrun.Options{Codec: protocodec.Codec{}})
	for name, want := range map[string]*durationpb.Duration{"some": durationpb.New(time.Minute), "empty": {}} {
		for range 2 {
			got, err := secondrun.Do(t.Context(), g, name, func(context.Context) (*durationpb.Duration, error) { return want, nil })
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
}

func TestNilAndOtherTypesAreNotKept(t *testing.T) {
	g := guard(t, &secondrun.Options{Codec: protocodec.Codec{}})
	first := true
	for range 2 {
		_, err := secondrun.Do(t.Context(), g, "nil", func(context.Context) (*durationpb.Duration, error) { return nil, nil })
		_, err2 := secondrun.Do(t.Context(), g, "int", func(context.Context) (int, error) { return 1, nil })
		if first && errors.Join(err, err2) != nil {
			t.Error(err, err2)
		}
		if !first && (!errors.Is(err, secondrun.ErrResultUnavailable) || !errors.Is(err2, secondrun.ErrResultUnavailable)) {
			t.Error(err, err2)
		}
		first = false
	}
}

func TestDecodeRefuses(t *testing.T) {
	data, err := protocodec.Codec{}.Encode(wrapperspb.String("text"))
	if err != nil {
		t.Fatal(err)
	}
	var value durationpb.Duration
	var number *int
	var message proto.Message
	for name, into := range map[string]any{
		"nil": nil, "message": &value, "no pointer": 1, "another pointer": &number, "interface": &message,
		"nil pointer": (**durationpb.Duration)(nil),
	} {
		if err := (protocodec.Codec{}).Decode(data, into); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var text *wrapperspb.StringValue
	if err := (protocodec.Codec{}).Decode(data, &text); err != nil || text.GetValue() != "text" {
		t.Error(text, err)
	}
	if err := (protocodec.Codec{}).Decode([]byte{0xff}, &text); err == nil || text.GetValue() != "text" {
		t.Errorf("garbage: %v, %v", text, err)
	}
}

func FuzzDecode(f *testing.F) {
	data, err := protocodec.Codec{}.Encode(durationpb.New(time.Minute))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var d *durationpb.Duration
		if err := (protocodec.Codec{}).Decode(data, &d); err == nil && d == nil {
			t.Error("nil without an error")
		}
	})
}

func ExampleCodec() {
	g, err := secondrun.New("render", memstore.New(nil), &secondrun.Options{Codec: protocodec.Codec{}})
	if err != nil {
		panic(err)
	}
	for range 2 {
		took, err := secondrun.Do(context.Background(), g, "video:7", func(context.Context) (*durationpb.Duration, error) {
			fmt.Println("rendering")
			return durationpb.New(90 * time.Second), nil
		})
		fmt.Println(took.AsDuration(), err)
	}
	// Output:
	// rendering
	// 1m30s <nil>
	// 1m30s <nil>
}
