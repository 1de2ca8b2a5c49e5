// Package sqstest is an SQS in memory for tests: the real AWS SDK talks to it
// in process or over HTTP, and it keeps the rules of SQS that consumers trip
// over.
//
//	srv := sqstest.NewServer(nil)
//	url, err := srv.CreateQueue("orders", nil)
//	client := srv.Client() // *sqs.Client
//
// A [Server] is the SDK's HTTP client and an [net/http.Handler] at once. In
// process there is no socket, no goroutine and no clock but [time.Now], so
// consumer, SDK and server run inside a [testing/synctest] bubble: twelve
// hours of heartbeats take a moment, and a long poll waits without hanging the
// bubble. While a bubble uses a server, all calls must come from that bubble:
// a send from outside would wake a poll inside, which the runtime forbids.
//
// # What it keeps
//
// Visibility timeouts count from the call that sets them and end 12 h after
// the receive; each receive has a new handle; what an outdated handle does on
// a standard queue is a policy ([Stale]), because AWS leaves it open, and an
// error on a FIFO queue. FIFO queues block a group behind its first message
// in flight, deduplicate for five minutes and replay a receive attempt.
// Receive counts grow across queues, the dead-letter move happens on the next
// receive, a redrive makes new messages. Limits, batch rules, checksums, error
// types and texts are those of AWS.
//
// # What it does not
//
// There is no access control, no encryption and no persistence. Numbers called
// approximate are exact. Messages of a standard queue come in order of arrival,
// completely and once, until [Options] say otherwise.
//
// [Server.Fault] makes single requests fail, [Server.Redeliver] delivers twice,
// [Server.Queue] and [Server.Calls] look inside. The command sqsd serves it to
// other processes; the command conformance holds any SQS endpoint against the
// rules kept here.
package sqstest
