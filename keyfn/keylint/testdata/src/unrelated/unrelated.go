// Package unrelated does not use secondrun.
package unrelated

import "github.com/google/uuid"

type params struct{ IdempotencyKey string }

func loop() {
	for {
		_ = params{IdempotencyKey: uuid.NewString()}
	}
}
