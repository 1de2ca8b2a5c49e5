package unicodekey_test

import (
	"testing"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/keyfntest"
	"github.com/secondrun/secondrun/keyfn/unicodekey"
)

func TestU02_NormalForms(t *testing.T) {
	id := keyfn.Header("id")
	nfc, nfd := keyfntest.Message("", "id", "caf\u00e9"), keyfntest.Message("", "id", "cafe\u0301")
	ligature, letters := keyfntest.Message("", "id", "\ufb01"), keyfntest.Message("", "id", "fi")
	keyfntest.Different(t, id, nfc, nfd, ligature, letters)
	keyfntest.Same(t, unicodekey.NFC(id), nfc, nfd)
	keyfntest.Different(t, unicodekey.NFC(id), nfc, ligature, letters)
	keyfntest.Same(t, unicodekey.NFKC(id), ligature, letters)
	keyfntest.Fails(t, unicodekey.NFC(id), keyfn.ErrMalformed, keyfntest.Message("", "id", "caf\xe9"))
	keyfntest.Fails(t, unicodekey.NFC(id), keyfn.ErrMissing, keyfntest.Message(""))
}
