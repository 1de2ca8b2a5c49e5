// Package secondrun makes a message handler safe to deliver to twice.
//
// A broker that delivers at least once will deliver some messages again: after
// a crash, a lost acknowledgement, an expired visibility timeout, a producer
// that sent twice, a replay by hand. A [Guard] wraps a handler. For every
// delivery it derives a domain key from the message, claims the key in a store
// with a lease, runs the handler while a heartbeat keeps the lease and the
// broker's own hold alive, records the outcome, and only then lets the message
// be acknowledged. A later delivery of the same key is answered with the
// recorded outcome and does not run.
//
//	g, err := secondrun.New("billing", st, nil)
//	h := secondrun.Wrap(g, keyfn.Template("invoice:{id}:capture"), handle)
//
// The directory is called middleware; the package is called secondrun.
//
// # Guarantee
//
// Per key, as long as the store does not lose writes that it acknowledged, and
// until retention ends: at most one success is ever recorded, it is never
// overwritten, and every later delivery is answered with it without a run. A
// claim is taken over only after its lease ended by the store's clock, or after
// its owner gave it up; from then on the earlier owner is refused. A message is
// acknowledged only after an outcome is recorded or a hand-over is confirmed.
//
// It is not promised that an effect outside the store happens exactly once: a
// process that dies between the effect and the record leaves an effect that
// nobody knows of, and the next delivery repeats it. [Once], [EffectKey] and
// [Takeover] narrow that gap; a transaction in the same database closes it
// (package pgstore).
package secondrun
