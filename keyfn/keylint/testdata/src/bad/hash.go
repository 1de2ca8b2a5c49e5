package bad

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"strconv"

	"github.com/secondrun/secondrun/keyfn"
)

var (
	_ = keyfn.Hash(keyfn.Everything())      // want `hash: a hash of the whole payload`
	_ = keyfn.HMAC(nil, keyfn.Everything()) // want `hash: a hash of the whole payload`
	_ = keyfn.Func(func(m keyfn.Message) (string, error) {
		sum := sha256.Sum256(m.Body()) // want `hash: a hash of the whole payload`
		return hex.EncodeToString(sum[:]), nil
	})
	_ = keyfn.Func(func(m keyfn.Message) (string, error) {
		body := m.Body()
		h := sha256.New()
		h.Write(body) // want `hash: a hash of the whole payload`
		return hex.EncodeToString(h.Sum(nil)), nil
	})
	_ = keyfn.From(func(o map[string]any) (string, error) {
		b, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		return strconv.Itoa(int(crc32.ChecksumIEEE(b))), nil // want `hash: a hash of the whole payload`
	})
)
