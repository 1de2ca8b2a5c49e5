package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/secondrun/secondrun/store"
)

// look returns the record of id as the store shows it, nil when it is absent or
// the store cannot show it.
func (e *env) look(id store.ID) *store.Record {
	e.Helper()
	i, ok := e.st.(store.Inspector)
	if !ok {
		return nil
	}
	rec, ok, err := i.Get(e.ctx, id)
	if err != nil {
		e.Fatalf("Get: %v", err)
	}
	if !ok {
		return nil
	}
	return &rec
}

// shown compares a record with what it must be, times excepted. It does nothing
// where the store cannot show its records.
func (e *env) shown(got *store.Record, want store.Record) {
	e.Helper()
	if _, ok := e.st.(store.Inspector); !ok {
		return
	}
	if got == nil {
		e.Fatalf("Get: absent, want %+v", want)
	}
	g := *got
	g.LeaseUntil, g.NotBefore, g.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	same := bytes.Equal(g.Payload, want.Payload)
	g.Payload, want.Payload = nil, nil
	g.ID, want.ID = store.DecodeID(g.ID.Encode()), store.DecodeID(want.ID.Encode())
	if a, b := fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", want); a != b || !same {
		e.Errorf("Get:\n got %s payload %.40q\nwant %s (payloads equal: %t)", a, got.Payload, b, same)
	}
}
