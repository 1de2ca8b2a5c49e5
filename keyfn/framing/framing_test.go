package framing_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/framing"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
)

func TestPayload(t *testing.T) {
	f := keyfn.In(framing.Payload, keyfn.JSON("orderId"))
	keyfntest.Same(t, f,
		keyfntest.Message("\x00\x00\x00\x00\x07"+`{"orderId":"1"}`),
		keyfntest.Message("\x00\x00\x00\x01\x00"+`{"orderId":"1","added":true}`)) // a newer schema
	keyfntest.Fails(t, f, keyfn.ErrMalformed,
		keyfntest.Message(`{"orderId":"1"}`), keyfntest.Message("\x00\x00\x00\x00"), keyfntest.Message("\x01\x00\x00\x00\x07{}"))
	keyfntest.Fails(t, f, keyfn.ErrSkip, keyfntest.Message(""))
	keyfntest.Fails(t, f, keyfn.ErrMissing, keyfntest.Message("\x00\x00\x00\x00\x07"))
}

func TestIndexes(t *testing.T) {
	for in, want := range map[string]struct {
		indexes []int
		message string
	}{
		"\x00ab":         {[]int{0}, "ab"},
		"\x02\x02ab":     {[]int{1}, "ab"},
		"\x04\x00\x06ab": {[]int{0, 3}, "ab"},
		"\x00":           {[]int{0}, ""},
	} {
		indexes, message, err := framing.Indexes([]byte(in))
		if !reflect.DeepEqual(indexes, want.indexes) || string(message) != want.message || err != nil {
			t.Errorf("%q: %v %q %v", in, indexes, message, err)
		}
	}
	for _, in := range []string{"", "\xca\x01" + strings.Repeat("\x00", 200), "\x01", "\x04\x00", "\x02\x01", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\xfe\xff\x7f"} {
		if _, _, err := framing.Indexes([]byte(in)); !errors.Is(err, keyfn.ErrMalformed) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x07\x04\x00\x06ab"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []keyfn.View{framing.Payload, framing.Protobuf} {
			m, err := v(keyfn.NewMessage(b, nil))
			if (m == nil) == (err == nil) {
				t.Fatalf("%v, %v", m, err)
			}
		}
	})
}
