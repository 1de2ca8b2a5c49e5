package keyfn

import (
	"errors"
	"strconv"
)

// Literal always gives s. It is a part for [Join]; alone it would be one key
// for all messages. It panics if s is empty, blank or too long.
func Literal(s string) Func {
	if err := usable(s); err != nil {
		panic("keyfn: Literal: " + err.Error())
	}
	return Part("Literal", s, func(Message) (string, error) { return s, nil })
}

// Join gives the values of all parts with ':' between them. In each value '%',
// ':', braces and control characters are written as '%' and two hexadecimal
// digits, so different lists of values never give the same key: ("a:b", "c") is
// "a%3Ab:c" and ("a", "b:c") is "a:b%3Ac". A Join inside a Join is one value.
// The error of a part is the error of the whole.
func Join(parts ...Func) Func {
	mustParts("Join", parts)
	return Part("Join", "", func(m Message) (string, error) {
		key := make([]byte, 0, 64)
		for i, p := range parts {
			s, err := value(p, m, i)
			if err != nil {
				return "", err
			}
			if i > 0 {
				key = append(key, ':')
			}
			key = escape(key, s, "")
			if len(key) > MaxKey {
				return "", ErrTooLong
			}
		}
		return string(key), nil
	})
}

// value asks a part, which may be a plain function of the caller and return
// anything.
func value(p Func, m Message, i int) (string, error) {
	s, err := p(m)
	if err == nil {
		err = usable(s)
	}
	if err != nil {
		return "", asError("part", strconv.Itoa(i), err)
	}
	return s, nil
}

// Map gives fn(value of f). An error of fn is the reason of the error. With fn
// a part can be made coarser (strings.ToLower); whether that may merge two
// events is the caller's to know. fn sees JSON numbers with their '#', see
// [JSONText].
func Map(f Func, fn func(string) (string, error)) Func {
	mustParts("Map", []Func{f})
	if fn == nil {
		panic("keyfn: Map: nil function")
	}
	return Part("Map", "", func(m Message) (string, error) {
		s, err := value(f, m, 0)
		if err != nil {
			return "", err
		}
		return fn(s)
	})
}

// First gives the value of the first part that finds one. Only a value that is
// missing ([ErrMissing]) lets the next part try; null, empty, malformed and
// ambiguous values are errors, or a broken message would quietly get a key of
// another kind.
//
// The value does not say which part gave it, so that one event in two shapes
// gets one key. If the parts name different things, mark them, or an order 7
// and an invoice 7 share a key:
//
//	keyfn.First(
//		keyfn.Join(keyfn.Literal("order"), keyfn.JSON("orderId")),
//		keyfn.Join(keyfn.Literal("invoice"), keyfn.JSON("invoiceId")))
func First(fs ...Func) Func {
	mustParts("First", fs)
	return Part("First", "", func(m Message) (string, error) {
		for i, f := range fs {
			s, err := value(f, m, i)
			if err == nil || !errors.Is(err, ErrMissing) {
				return s, err
			}
		}
		return "", ErrMissing
	})
}

// Header gives the value of the named header. Names are case-sensitive, as they
// are in Kafka; see [AnyHeader] for relays that change them. The same value
// several times is that value; different ones are [ErrAmbiguous].
func Header(name string) Func {
	if name == "" {
		panic("keyfn: Header: no name")
	}
	return Part("Header", name, func(m Message) (string, error) {
		return one(m.Header(name), "", false)
	})
}

// AnyHeader is [Header] for a header that arrives under one of several
// spellings of its name. If it arrives under several, they must agree.
func AnyHeader(names ...string) Func {
	if len(names) == 0 {
		panic("keyfn: AnyHeader: no names")
	}
	return Part("AnyHeader", names[0], func(m Message) (string, error) {
		var s string
		found := false
		for _, name := range names {
			values := m.Header(name)
			if len(values) == 0 {
				continue
			}
			var err error
			if s, err = one(values, s, found); err != nil {
				return "", err
			}
			found = true
		}
		if !found {
			return "", ErrMissing
		}
		return s, nil
	})
}

// one returns the single value among values and, if known, s.
func one(values []string, s string, known bool) (string, error) {
	if len(values) == 0 {
		return "", ErrMissing
	}
	for _, v := range values {
		if known && v != s {
			return "", because(ErrAmbiguous, "several different values")
		}
		s, known = v, true
	}
	return s, nil
}
