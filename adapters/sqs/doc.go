// Package sqsadapter consumes Amazon SQS queues through a secondrun handler.
//
//	c, err := sqsadapter.NewConsumer(client, queueURL, h, nil)
//	err = c.Run(ctx)
//
// A [Consumer] owns the loop. Code that has a loop of its own gives what it
// received to a [Handler]. Both do the same with every delivery: hold it from
// the receive on (the visibility timeout is extended on the heartbeat that
// renews the store's leases), claim its key (together with those of the whole
// receive; in a FIFO group when its turn comes), run the handler, record the
// outcome, and only then delete the message or make it visible again. Settings,
// sizing, dead letters, permissions and the rules with their tests are in
// docs/sqs.md.
//
// # What SQS does not tell
//
// A successful extension or delete proves nothing on a standard queue: SQS
// answers 200 to an outdated receipt handle too. So visibility only keeps other
// consumers away; who may record an outcome is decided by the store. When an
// extension is refused for good, or was not confirmed in time, the handler's
// context is cancelled with [secondrun.ErrHoldLost].
//
// # What becomes of a message
//
//	outcome recorded, now or earlier     deleted with this delivery's handle
//	busy, released, store unavailable    visible again after the wait; not a failure
//	transient failure                    visible again after the backoff
//	failed, exhausted, conflict, no key  dead-lettered, see [DeadLetter]
//	nothing to handle in it              deleted, and told by secondrun.EventSkipped
//	outcome not recorded, hold lost      left alone until the visibility timeout ends
//
// Every delivery counts towards the queue's maxReceiveCount, also one that was
// only told that its key is busy. Choose it generously (10 or more, 20 for FIFO).
//
// The directory is adapters/sqs. It needs service/sqs v1.38.8 or newer: older
// versions drop a visibility timeout of 0 from batches.
package sqsadapter
