package bad

import "github.com/secondrun/secondrun/keyfn"

/* want `keylint:ignore without a reason` */ //keylint:ignore
var _ = keyfn.Header("MessageId")            // want `transport: the broker's message id`

//keylint:ignored is another word
var _ = keyfn.Header("MessageId") // want `transport: the broker's message id`
