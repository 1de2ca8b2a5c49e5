// Package keyfn builds functions that derive a domain key from a message.
//
// A key names the business event ("invoice:inv_8841:capture"). It is the same
// on every delivery, every restart, every replay and every resend by the
// producer, so it comes from the domain and never from the transport: there is
// deliberately no builder for the broker's message id.
//
// A tenant belongs in the key, and is taken from something that the producer
// cannot choose: a queue for each tenant, a header that an authenticating
// gateway or relay sets, when it alone may send; never from the body. Whoever may
// choose a key may use it up before its owner does.
//
// Parts are small and compose: [JSON], [Header], [Form] and [From] read,
// [Join], [Template] and [First] combine, [Map], [Time] and [JSONText]
// normalise, [Hash] digests what was named on purpose, [Every], [Daily] and
// [Weekly] name an interval, and [In] looks into an envelope. Sub-packages hold
// the shapes of vendors, built from the same parts.
//
// # Rules of every part
//
// A value that is missing, null, empty or only white space is an error, and so
// is one that is ambiguous: a duplicate JSON name, junk after the value, two
// different values of one header. The exception is [From], whose function sees
// the zero value of a field that is missing. No part invents a constant or a random value.
// Errors are of type [Error]; they name the part, the path and the reason and
// never hold text of the message.
//
// Text is compared byte by byte: upper and lower case, Unicode normal forms and
// spellings of a time stay different unless a part says otherwise. A JSON
// number is written exactly and with a leading '#', so that 7 gives "#7" and
// "7" gives "7"; [JSONText] makes them one.
//
// Compositions are injective: different lists of parts never give the same
// text. Separators inside a value are escaped as '%' and two hexadecimal
// digits.
//
// Key functions are safe for concurrent use, as long as the functions that are
// given to them are. None of them changes a message.
//
// # Mistakes of the programmer
//
// A builder panics, like [regexp.MustCompile], when its own arguments cannot
// work: an empty path, a malformed template, a nil part. Build key functions
// when the program starts. [ParseTemplate] returns an error instead.
//
// # Limits
//
// A key has at most [MaxKey] bytes and a body that is parsed at most [MaxBody];
// JSON nests at most 10,000 deep. Beyond that the message has no key.
package keyfn
