package sqstest

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum, not a safeguard
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
)

// attribute is a message attribute on the wire.
type attribute struct {
	DataType    string  `json:"DataType"`
	StringValue *string `json:"StringValue,omitempty"`
	BinaryValue []byte  `json:"BinaryValue,omitempty"`
}

func (a attribute) size() int {
	n := len(a.DataType) + len(a.BinaryValue)
	if a.StringValue != nil {
		n += len(*a.StringValue)
	}
	return n
}

func digestBody(body string) string {
	sum := md5.Sum([]byte(body)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// digestAttributes is the checksum documented for message attributes: in the
// order of names, name, data type and value, each with its length as four
// bytes, the value preceded by its kind. No attributes have no checksum.
func digestAttributes(attrs map[string]attribute) string {
	if len(attrs) == 0 {
		return ""
	}
	h := md5.New() //nolint:gosec // see above
	for _, name := range sortedKeys(attrs) {
		a := attrs[name]
		writeSized(h, []byte(name))
		writeSized(h, []byte(a.DataType))
		if strings.HasPrefix(a.DataType, "Binary") {
			h.Write([]byte{2})
			writeSized(h, a.BinaryValue)
			continue
		}
		h.Write([]byte{1})
		var v string
		if a.StringValue != nil {
			v = *a.StringValue
		}
		writeSized(h, []byte(v))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeSized(h hash.Hash, b []byte) {
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(b))) //nolint:gosec // bounded by the size of a request
	h.Write(n[:])
	h.Write(b)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
