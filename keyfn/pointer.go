package keyfn

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// pointerNames begin the two-element array that the extended clients of SQS
// send in place of a large payload.
var pointerNames = [][]byte{
	[]byte(`"software.amazon.payloadoffloading.PayloadS3Pointer"`),
	[]byte(`"com.amazon.sqs.javamessaging.MessageS3Pointer"`),
}

// isPointer reports whether a JSON text is a pointer to a payload in S3. Such a
// pointer is new on every send, so a key made of it would find no duplicate. It
// looks no further than it must: every body comes by here.
func isPointer(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return false
	}
	inner := bytes.TrimLeft(text[1:], " \t\r\n")
	switch text[0] {
	case '[':
		for _, name := range pointerNames {
			if bytes.HasPrefix(inner, name) {
				return true
			}
		}
	case '{':
		if !bytes.HasPrefix(inner, []byte(`"s3BucketName"`)) && !bytes.HasPrefix(inner, []byte(`"s3Key"`)) {
			return false
		}
		var members map[string]jsontext.Value
		if json.Unmarshal(text, &members) != nil {
			return false
		}
		_, bucket := members["s3BucketName"]
		_, key := members["s3Key"]
		return bucket && key && len(members) == 2
	}
	return false
}
