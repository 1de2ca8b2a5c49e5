package storetest

import "github.com/secondrun/secondrun/store"

func claimChecks() []check {
	return []check{
		{"absent is granted", func(e *env) {
			r := e.req("k")
			e.answered(r, store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: long})
		}},
	}
}
