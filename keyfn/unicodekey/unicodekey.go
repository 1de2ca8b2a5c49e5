// Package unicodekey makes different spellings of one text equal, where the
// caller knows that they mean the same. By default keys are compared byte by
// byte.
package unicodekey

import (
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/secondrun/secondrun/keyfn"
)

// NFC gives the value of f in Unicode normal form C, so that a composed and a
// decomposed "é" are one. Object keys of S3 and file names are byte-exact: there
// the two may be different things. A value that is not UTF-8 is
// [keyfn.ErrMalformed].
func NFC(f keyfn.Func) keyfn.Func { return normalised("NFC", norm.NFC, f) }

// NFKC is [NFC] with normal form KC, which also makes compatible characters one:
// "ﬁ" and "fi", "²" and "2".
func NFKC(f keyfn.Func) keyfn.Func { return normalised("NFKC", norm.NFKC, f) }

func normalised(name string, form norm.Form, f keyfn.Func) keyfn.Func {
	if f == nil {
		panic("unicodekey: " + name + ": nil function")
	}
	return keyfn.Part(name, "", func(m keyfn.Message) (string, error) {
		s, err := f(m)
		if err != nil {
			return "", err
		}
		if !utf8.ValidString(s) {
			return "", keyfn.ErrMalformed
		}
		return form.String(s), nil
	})
}
