package keyfn

// Message is what a key function reads. Every adapter's message implements it.
type Message interface {
	// Body returns the payload. It must not be changed.
	Body() []byte
	// Header returns all values of the named header (message attribute, record
	// header), in order, or nil when there is none. Names are case-sensitive.
	Header(name string) []string
}

// Func derives the key of a message. It must return the same key for every
// delivery of one business event and different keys for different events. An
// error is terminal for the message.
type Func func(Message) (string, error)
