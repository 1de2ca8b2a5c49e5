// Package protocodec keeps results that are protocol buffer messages. It is a
// package of its own so that only its users link the protobuf runtime.
package protocodec

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
)

// Codec encodes results of type proto.Message in the binary format. The zero
// value is ready; set it as Options.Codec. A handler whose result is not a
// proto.Message has its successes recorded without the result.
type Codec struct{}

var errType = errors.New("protobuf codec takes proto.Message")

// Name returns "protobuf".
func (Codec) Name() string { return "protobuf" }

// Encode encodes a non-nil proto.Message.
func (Codec) Encode(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("%w, not %T", errType, v)
	}
	return proto.Marshal(m)
}

// Decode decodes into a pointer to a message pointer, which it allocates.
func (Codec) Decode(data []byte, into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Pointer {
		return fmt.Errorf("%w, not %T", errType, into)
	}
	fresh := reflect.New(v.Elem().Type().Elem())
	m, ok := fresh.Interface().(proto.Message)
	if !ok {
		return fmt.Errorf("%w, not %T", errType, into)
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	v.Elem().Set(fresh)
	return nil
}
