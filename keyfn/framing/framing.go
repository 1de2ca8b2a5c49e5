// Package framing takes the frame of a schema registry off a message: a zero
// byte, the id of the schema in four bytes, and for protobuf the place of the
// message type in its file.
//
// The id of the schema is not part of any key: it changes with the schema while
// the event stays the same.
package framing

import (
	"encoding/binary"

	"github.com/secondrun/secondrun/keyfn"
)

const headerSize = 5

// Split returns the id of the schema and what follows it. Data without a frame
// is [keyfn.ErrMalformed]. An empty body, a tombstone, is [keyfn.ErrSkip].
func Split(data []byte) (schema uint32, payload []byte, err error) {
	switch {
	case len(data) == 0:
		return 0, nil, failed(keyfn.ErrSkip)
	case len(data) < headerSize || data[0] != 0:
		return 0, nil, failed(keyfn.ErrMalformed)
	}
	return binary.BigEndian.Uint32(data[1:]), data[headerSize:], nil
}

func failed(reason error) error { return &keyfn.Error{Builder: "framing", Reason: reason} }

// Payload is the view of what follows the id of the schema: a JSON document, or
// Avro in binary form.
//
//	keyfn.In(framing.Payload, keyfn.JSON("orderId"))
func Payload(m keyfn.Message) (keyfn.Message, error) {
	_, payload, err := Split(m.Body())
	if err != nil {
		return nil, err
	}
	return keyfn.WithBody(m, payload), nil
}

// Protobuf is the view of the protobuf message that follows the id of the
// schema and the indexes of its type.
func Protobuf(m keyfn.Message) (keyfn.Message, error) {
	_, payload, err := Split(m.Body())
	if err != nil {
		return nil, err
	}
	_, message, err := Indexes(payload)
	if err != nil {
		return nil, err
	}
	return keyfn.WithBody(m, message), nil
}

// maxIndexes is deeper than anybody nests message types.
const maxIndexes = 100

// Indexes splits the payload of a framed protobuf message into the indexes that
// lead to its type in the file of the schema, and the message. The single byte
// 0 stands for the first type of the file.
func Indexes(payload []byte) (indexes []int, message []byte, err error) {
	n, size := binary.Varint(payload)
	if size <= 0 || n < 0 || n > maxIndexes {
		return nil, nil, failed(keyfn.ErrMalformed)
	}
	payload = payload[size:]
	if n == 0 {
		return []int{0}, payload, nil
	}
	for range n {
		i, size := binary.Varint(payload)
		if size <= 0 || i < 0 || i > 1<<20 {
			return nil, nil, failed(keyfn.ErrMalformed)
		}
		indexes, payload = append(indexes, int(i)), payload[size:]
	}
	return indexes, payload, nil
}
