package good

import "github.com/secondrun/secondrun/keyfn"

var _ = keyfn.Header("MessageId") // test files are not looked at
