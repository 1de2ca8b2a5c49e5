// Package uuid stands for the real one.
package uuid

type UUID [16]byte

func New() UUID                         { return UUID{} }
func NewString() string                 { return "" }
func NewV7() (UUID, error)              { return UUID{}, nil }
func NewSHA1(space UUID, b []byte) UUID { return UUID{} }
func MustParse(s string) UUID           { return UUID{} }
func (UUID) String() string             { return "" }
