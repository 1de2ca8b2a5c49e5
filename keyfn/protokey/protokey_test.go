package protokey_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/framing"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
	"github.com/secondrun/secondrun/keyfn/protokey"
)

func encode(t testing.TB, m proto.Message) keyfn.Message {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return keyfn.NewMessage(b, nil)
}

func want(t *testing.T, f keyfn.Func, m keyfn.Message, key string) {
	t.Helper()
	if got, err := f(m); got != key || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, key)
	}
}

func TestField(t *testing.T) {
	m := encode(t, &descriptorpb.DescriptorProto{
		Name: proto.String("#Order"),
		Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("id"), Number: proto.Int32(0), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()},
			{Name: proto.String(""), Number: proto.Int32(-7)},
		},
	})
	field := func(path string) keyfn.Func { return protokey.Field(&descriptorpb.DescriptorProto{}, path) }
	want(t, field("name"), m, "'#Order")
	want(t, field("field.0.name"), m, "id")
	want(t, field("field.0.number"), m, "#0") // has presence, so 0 is a value
	want(t, field("field.1.number"), m, "#-7")
	want(t, field("field.0.type"), m, "#9")
	keyfntest.Fails(t, field("field.1.name"), keyfn.ErrEmpty, m)
	keyfntest.Fails(t, field("field.1.type"), keyfn.ErrMissing, m)
	keyfntest.Fails(t, field("field.2.name"), keyfn.ErrMissing, m)
	keyfntest.Fails(t, field("options.features.enum_type"), keyfn.ErrMissing, m)
	keyfntest.Fails(t, field("name"), keyfn.ErrMalformed, keyfntest.Message("\xff\xff"))
	keyfntest.Fails(t, field("name"), keyfn.ErrMissing, keyfntest.Message(""))

	// Behind a schema registry.
	framed := keyfn.NewMessage(append([]byte("\x00\x00\x00\x00\x07\x00"), m.Body()...), nil)
	want(t, keyfn.In(framing.Protobuf, field("field.0.name")), framed, "id")

	for _, path := range []string{"", "none", "name.x", "field", "field.x", "field.-1.name", "field.0", "options", "options.map_entry", "field.0.name.x"} {
		mustPanic(t, path, func() { field(path) })
	}
	mustPanic(t, "nil", func() { protokey.Field(nil, "x") })
	mustPanic(t, "map", func() { protokey.Field(&structpb.Struct{}, "fields.a") })
	mustPanic(t, "double", func() { protokey.Field(&wrapperspb.DoubleValue{}, "value") })
}

func TestField_Kinds(t *testing.T) {
	want(t, protokey.Field(&wrapperspb.UInt64Value{}, "value"), encode(t, wrapperspb.UInt64(1<<63+1)), "#9223372036854775809")
	want(t, protokey.Field(&wrapperspb.Int64Value{}, "value"), encode(t, wrapperspb.Int64(9007199254740993)), "#9007199254740993")
	want(t, protokey.Field(&wrapperspb.BytesValue{}, "value"), encode(t, wrapperspb.Bytes([]byte{0, 0xff})), "00ff")
	want(t, protokey.Field(&wrapperspb.StringValue{}, "value"), encode(t, wrapperspb.String("7")), "7")
	want(t, protokey.Field(&typepb.Type{}, "oneofs.1"), encode(t, &typepb.Type{Oneofs: []string{"a", "b"}}), "b")
	// Without presence, 0 is as good as not sent.
	keyfntest.Fails(t, protokey.Field(&wrapperspb.Int64Value{}, "value"), keyfn.ErrMissing, encode(t, wrapperspb.Int64(0)))
	keyfntest.Fails(t, protokey.Field(&wrapperspb.StringValue{}, "value"), keyfn.ErrMalformed, keyfntest.Message("\x0a\x01\xff"))
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("%s did not panic", name)
		}
	}()
	f()
}

func FuzzField(f *testing.F) {
	f.Add(encode(f, &descriptorpb.DescriptorProto{Name: proto.String("a"), Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("b")}}}).Body())
	key := keyfn.Join(protokey.Field(&descriptorpb.DescriptorProto{}, "name"), protokey.Field(&descriptorpb.DescriptorProto{}, "field.0.name"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := keyfn.NewMessage(b, nil)
		k, err := key(m)
		if again, _ := key(m); (k == "") != (err != nil) || again != k {
			t.Fatalf("%q, %v, %q", k, err, again)
		}
	})
}
