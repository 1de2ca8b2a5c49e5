package store

import "errors"

// ErrPermanent is wrapped by errors that waiting does not mend: a missing
// schema, a missing permission, a read-only server, wrong configuration.
var ErrPermanent = errors.New("permanent store error")

// ErrIncompatible is wrapped by errors about a record or a schema that was
// written by a version this code does not know. It is permanent: it also wraps
// [ErrPermanent].
var ErrIncompatible = incompatible{}

// ErrCorrupt is wrapped by errors about a record that cannot be understood.
// It also wraps [ErrPermanent].
var ErrCorrupt = corrupt{}

type incompatible struct{}

func (incompatible) Error() string { return "incompatible store format" }
func (incompatible) Unwrap() error { return ErrPermanent }

type corrupt struct{}

func (corrupt) Error() string { return "corrupt record" }
func (corrupt) Unwrap() error { return ErrPermanent }
