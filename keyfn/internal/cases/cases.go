// Package cases holds the message shapes of real systems as tables: which
// messages are one event, which are two, and which have no key. The same tables
// test the derived keys and, with a handler in between, the number of runs.
package cases

import "github.com/secondrun/secondrun/keyfn"

// Case is one key function and the messages it meets.
type Case struct {
	ID       string // of the catalogue of cases, "U01"
	Name     string
	Key      keyfn.Func
	Messages []Message
}

// Message is one message of a case. It has either an Event or an Err.
type Message struct {
	Name string
	keyfn.Message
	// Event names the business event. Messages of one case have the same key if
	// and only if they have the same Event.
	Event string
	// Key, if set, is the key itself.
	Key string
	// Err is the reason for which there is no key.
	Err error
}

// Events returns how many events the messages of a case are: how often a handler
// runs, whatever the order and however often they are delivered.
func (c Case) Events() int {
	events := map[string]bool{}
	for _, m := range c.Messages {
		if m.Err == nil {
			events[m.Event] = true
		}
	}
	return len(events)
}

// All returns every case.
func All() []Case {
	var all []Case
	for _, f := range []func() []Case{envelopes, bodies, missing, coarse, fingerprints, rows, slots, cloudEvents, volatiles, fixtures, numbersAndTimes} {
		all = append(all, f()...)
	}
	return all
}

// event is a message that has a key.
func event(name, event string, m keyfn.Message) Message {
	return Message{Name: name, Event: event, Message: m}
}

// noKey is a message that has none.
func noKey(name string, reason error, m keyfn.Message) Message {
	return Message{Name: name, Err: reason, Message: m}
}

// is sets the key that a message must have.
func (m Message) is(key string) Message {
	m.Key = key
	return m
}

// body makes a message of a body and headers: name, value, name, value, …
func body(text string, headers ...string) keyfn.Message {
	h := map[string][]string{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = append(h[headers[i]], headers[i+1])
	}
	return keyfn.NewMessage([]byte(text), h)
}
