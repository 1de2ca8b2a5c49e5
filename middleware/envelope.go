package secondrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/secondrun/secondrun/store"
)

// A payload is what the store keeps of an outcome:
//
//	byte 0    version of this format, 1
//	byte 1    kind: what follows
//	kind 1    nothing: a success of a handler without a result
//	kind 2    uvarint n, n bytes codec name, the encoded result
//	kind 3    a success whose result was not kept: why, as text
//	kind 4    class byte, description of a failure as text
//
// Readers must refuse a version or a kind they do not know; what a refusal
// means is decided by the caller: a success stays a success.
const envelopeVersion = 1

const (
	kindBare    = 1
	kindResult  = 2
	kindOmitted = 3
	kindFailure = 4
)

const maxErrorText = 4 << 10

var (
	errEnvelope    = errors.New("unknown payload format")
	errNoResult    = errors.New("the success was recorded without a result")
	errOtherCodec  = errors.New("stored by another codec")
	bareEnvelope   = []byte{envelopeVersion, kindBare}
	omittedDropped = "results are not kept"
)

// resultEnvelope encodes a result. It never fails: a result that cannot be
// kept is replaced by the reason, which is returned too.
func resultEnvelope(c Codec, limit int, v any) (payload []byte, omitted string) {
	data, err := encodeResult(c, v)
	switch {
	case err != nil:
		omitted = fmt.Sprintf("not encodable (%T)", err) // the text could carry the result
	case len(data) > limit:
		omitted = fmt.Sprintf("%d bytes, limit %d", len(data), limit)
	default:
		b := make([]byte, 2, 2+binary.MaxVarintLen16+len(c.Name())+len(data))
		b[0], b[1] = envelopeVersion, kindResult
		b = binary.AppendUvarint(b, uint64(len(c.Name())))
		b = append(b, c.Name()...)
		return append(b, data...), ""
	}
	return omittedEnvelope(omitted), omitted
}

func omittedEnvelope(reason string) []byte {
	return append([]byte{envelopeVersion, kindOmitted}, reason...)
}

func failureEnvelope(c Class, text string) []byte {
	return append([]byte{envelopeVersion, kindFailure, byte(c)}, cut(text, maxErrorText)...)
}

// decodeResult decodes a success into the value that into points to. A nil
// into accepts any success.
func decodeResult(c Codec, payload []byte, into any) (err error) {
	if into == nil {
		return nil
	}
	if len(payload) < 2 || len(payload) > store.MaxPayload || payload[0] != envelopeVersion {
		return &ResultError{Err: errEnvelope}
	}
	body := payload[2:]
	switch payload[1] {
	case kindBare:
		return &ResultError{Reason: errNoResult.Error()}
	case kindOmitted:
		return &ResultError{Reason: string(body)}
	case kindResult:
		n, size := binary.Uvarint(body)
		if size <= 0 || n > uint64(len(body)-size) {
			return &ResultError{Err: errEnvelope}
		}
		name, data := body[size:size+int(n)], body[size+int(n):] //nolint:gosec // checked against len
		if string(name) != c.Name() {
			return &ResultError{Err: errOtherCodec}
		}
		if err := decodeSafely(c, data, into); err != nil {
			return &ResultError{Err: err}
		}
		return nil
	}
	return &ResultError{Err: errEnvelope}
}

// failureText returns the description in a failure payload, empty when it is
// not one.
func failureText(payload []byte) string {
	if len(payload) < 3 || payload[0] != envelopeVersion || payload[1] != kindFailure {
		return ""
	}
	return string(payload[3:])
}

// The handler has returned, or returned long ago: a codec that panics must not
// look like a handler that panicked.
func encodeResult(c Codec, v any) (data []byte, err error) {
	defer recovered(&err)
	return c.Encode(v)
}

func decodeSafely(c Codec, data []byte, into any) (err error) {
	defer recovered(&err)
	return c.Decode(data, into)
}

func recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("codec panicked (%T)", v)
	}
}

// cut shortens text to at most n bytes of valid UTF-8.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	text = text[:n]
	for len(text) > 0 {
		if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}
