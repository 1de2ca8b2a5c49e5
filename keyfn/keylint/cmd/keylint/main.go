// Command keylint finds idempotency keys that cannot be right. It runs alone or
// under go vet:
//
//	keylint ./...
//	go vet -vettool=$(which keylint) ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/secondrun/secondrun/keyfn/keylint"
)

func main() { multichecker.Main(keylint.Analyzer) }
