package keyfn

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// pointerNames begin the two-element array that the extended clients of SQS
// send in place of a large payload.
var pointerNames = [][]byte{
	[]byte("software.amazon.payloadoffloading.PayloadS3Pointer"),
	[]byte("com.amazon.sqs.javamessaging.MessageS3Pointer"),
}

// isPointer reports whether a JSON text is a pointer to a payload in S3. Such a
// pointer is new on every send, so a key made of it would find no duplicate.
func isPointer(text []byte) bool {
	head := text[:min(len(text), 4096)]
	if !bytes.Contains(head, []byte(`"s3BucketName"`)) {
		return false
	}
	switch jsontext.Value(text).Kind() {
	case '[':
		for _, name := range pointerNames {
			if bytes.Contains(head[:min(len(head), 128)], name) {
				return true
			}
		}
	case '{':
		var members map[string]jsontext.Value
		if json.Unmarshal(text, &members) != nil {
			return false
		}
		_, key := members["s3Key"]
		return key && len(members) == 2
	}
	return false
}
