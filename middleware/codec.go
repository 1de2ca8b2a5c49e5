package secondrun

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codec turns results into bytes and back. Implementations must be safe for
// concurrent use. A codec may encrypt: what it returns is stored as it is.
type Codec interface {
	// Name is stored beside every result; at most 64 bytes. A result stored
	// under another name is not decoded ([ErrResultUndecodable]).
	Name() string
	Encode(v any) ([]byte, error)
	// Decode decodes data into the value that into points to. It must not change
	// data, which is shared.
	Decode(data []byte, into any) error
}

const maxCodecName = 64

// JSON encodes results with encoding/json.
var JSON Codec = jsonCodec{}

// Raw stores results of type []byte and string as they are. A nil slice comes
// back as nil, an empty one as empty.
var Raw Codec = rawCodec{}

type jsonCodec struct{}

func (jsonCodec) Name() string                       { return "json" }
func (jsonCodec) Encode(v any) ([]byte, error)       { return json.Marshal(v) }
func (jsonCodec) Decode(data []byte, into any) error { return json.Unmarshal(data, into) }

type rawCodec struct{}

var errRaw = errors.New("raw codec takes []byte and string")

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		if v == nil {
			return []byte{0}, nil
		}
		return append([]byte{1}, v...), nil
	case string:
		return append([]byte{1}, v...), nil
	}
	return nil, fmt.Errorf("%w, not %T", errRaw, v)
}

func (rawCodec) Decode(data []byte, into any) error {
	if len(data) == 0 || data[0] > 1 || data[0] == 0 && len(data) > 1 {
		return errors.New("not written by the raw codec")
	}
	switch into := into.(type) {
	case *[]byte:
		*into = nil
		if data[0] == 1 {
			*into = append([]byte{}, data[1:]...)
		}
		return nil
	case *string:
		*into = string(data[1:])
		return nil
	}
	return fmt.Errorf("%w, not %T", errRaw, into)
}
