// Package protokey reads fields of protobuf messages.
package protokey

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/secondrun/secondrun/keyfn"
)

// Field gives the value of a field of the protobuf message in the body:
//
//	protokey.Field(&orderpb.OrderPaid{}, "order.id")
//
// The path names fields as the .proto file does; elements of a repeated field
// are counted from 0. Behind a schema registry use
// keyfn.In(framing.Protobuf, protokey.Field(…)).
//
// A string is taken as it is (a leading '#' or apostrophe gets an apostrophe
// before it, as in [keyfn.JSON]); integers, and the number of an enum, have a
// leading '#'; bytes are hexadecimal. A field without presence that is 0 or
// empty cannot be told from one that was not sent, so it is [keyfn.ErrMissing];
// where 0 is a value, make the field optional. Data that is no such message is
// [keyfn.ErrMalformed].
//
// Field panics if the path leads to no field, or to one of another kind: a
// message, a map, a boolean, a floating-point number.
func Field(message proto.Message, path string) keyfn.Func {
	if message == nil {
		panic("protokey: Field: nil message")
	}
	typ := message.ProtoReflect().Type()
	steps, err := parsePath(typ.Descriptor(), path)
	if err != nil {
		panic(fmt.Sprintf("protokey: Field %q: %v", path, err))
	}
	return keyfn.Part("Protobuf", path, func(m keyfn.Message) (string, error) {
		body := m.Body()
		if len(body) > keyfn.MaxBody {
			return "", keyfn.ErrTooLong
		}
		msg := typ.New()
		if err := proto.Unmarshal(body, msg.Interface()); err != nil { // its text may quote the message
			return "", keyfn.ErrMalformed
		}
		return read(msg, steps)
	})
}

// step is a field on the way, and the element if it is repeated.
type step struct {
	field protoreflect.FieldDescriptor
	index int
}

func parsePath(d protoreflect.MessageDescriptor, path string) ([]step, error) {
	segs := strings.Split(path, ".")
	var steps []step
	for len(segs) > 0 {
		if d == nil {
			return nil, errors.New("goes on below a field that is no message")
		}
		s := step{field: d.Fields().ByName(protoreflect.Name(segs[0])), index: -1}
		segs = segs[1:]
		switch {
		case s.field == nil:
			return nil, errors.New("no such field in " + string(d.FullName()))
		case s.field.IsMap():
			return nil, errors.New("field is a map")
		case s.field.IsList():
			if len(segs) == 0 {
				return nil, errors.New("field is repeated and needs the number of an element")
			}
			i, err := strconv.Atoi(segs[0])
			if err != nil || i < 0 {
				return nil, errors.New("not the number of an element")
			}
			s.index, segs = i, segs[1:]
		}
		steps = append(steps, s)
		d = s.field.Message() // nil for scalars
	}
	switch steps[len(steps)-1].field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind, protoreflect.BoolKind, protoreflect.FloatKind, protoreflect.DoubleKind:
		return nil, errors.New("field is of a kind that makes no key")
	}
	return steps, nil
}

func read(msg protoreflect.Message, steps []step) (string, error) {
	for i, s := range steps {
		v := msg.Get(s.field)
		if s.index >= 0 {
			list := v.List()
			if s.index >= list.Len() {
				return "", keyfn.ErrMissing
			}
			v = list.Get(s.index)
		} else if !msg.Has(s.field) {
			return "", keyfn.ErrMissing
		}
		if i == len(steps)-1 {
			return text(s.field.Kind(), v), nil
		}
		msg = v.Message()
	}
	return "", keyfn.ErrMissing // no steps: not reached
}

func text(kind protoreflect.Kind, v protoreflect.Value) string {
	switch kind {
	case protoreflect.StringKind:
		s := v.String()
		if strings.HasPrefix(s, "#") || strings.HasPrefix(s, "'") {
			s = "'" + s
		}
		return s
	case protoreflect.BytesKind:
		return hex.EncodeToString(v.Bytes())
	case protoreflect.EnumKind:
		return "#" + strconv.Itoa(int(v.Enum()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return "#" + strconv.FormatUint(v.Uint(), 10)
	}
	return "#" + strconv.FormatInt(v.Int(), 10)
}
