package keyfn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Format is a key function together with what else decides which record its
// keys meet: the scope, an explicit string that no renaming of code changes,
// and the version of the format.
//
// Versions 0 and 1 write the key as Func gives it. From version 2 on the key
// begins with the version, "v2:invoice:…", so that the record names it and a
// new format never meets a key of an old one by accident. Raise the version
// whenever Func changes what it gives for a message.
type Format struct {
	Scope   string
	Version int
	Func    Func
}

// Key is a derived key.
type Key struct {
	Scope   string
	Version int
	Text    string // with the version, as it is claimed
}

// Key derives the key of a message in this format. A key of version 0 or 1
// that looks as if it had a version is [ErrMalformed].
func (f Format) Key(m Message) (Key, error) {
	s, err := value(f.Func, m, 0)
	if err != nil {
		return Key{}, err
	}
	path := "version " + strconv.Itoa(f.Version)
	if f.Version >= 2 {
		s = versionPrefix(f.Version) + s
	} else if hasVersion(s) {
		return Key{}, &Error{Builder: "Format", Path: path, Reason: because(ErrMalformed, "key begins like one with a version")}
	}
	if len(s) > MaxKey {
		return Key{}, &Error{Builder: "Format", Path: path, Reason: ErrTooLong}
	}
	return Key{Scope: f.Scope, Version: f.Version, Text: s}, nil
}

// AsFunc is the format as a plain key function, for when no older format is in
// use any more. It panics as [Evolve] does.
func (f Format) AsFunc() Func {
	f.mustBeSound()
	return Part("Format", "version "+strconv.Itoa(f.Version), func(m Message) (string, error) {
		k, err := f.Key(m)
		return k.Text, err
	})
}

func versionPrefix(n int) string { return "v" + strconv.Itoa(n) + ":" }

// hasVersion reports whether a key begins like those of version 2 and later.
func hasVersion(s string) bool {
	head, _, ok := strings.Cut(s, ":")
	if !ok || len(head) < 2 || head[0] != 'v' {
		return false
	}
	n, err := strconv.Atoi(head[1:])
	return err == nil && n >= 2 && strconv.Itoa(n) == head[1:]
}

func (f Format) mustBeSound() {
	switch {
	case f.Scope == "":
		panic("keyfn: Format: no scope")
	case f.Version < 0:
		panic("keyfn: Format: negative version")
	case f.Func == nil:
		panic("keyfn: Format: nil function")
	}
}

// Evolution derives the keys of a message in the current format and in older
// ones, for the time of a rollout in which consumers of both run.
//
// The rule that makes old and new consumers agree: the new consumer claims all
// [Keys.Claim] in one call, in that order, and runs only if every one is
// granted. If one is busy, done or failed, it releases those that were granted
// and answers as that one says. After the run it settles all of them alike. An
// old consumer knows only its own key and meets the claim or the outcome there;
// a redelivery that reaches a new consumer meets it too, whichever consumer ran.
//
// It costs a record, a claim and a settlement more for every older format. End
// it when no old consumer has run for a whole retention and no message with
// effects is unfinished, since effects are recorded under the old key; until
// then keep the old format in the list.
type Evolution struct {
	current Format
	old     []Format
}

// Evolve returns the evolution from old formats to the current one. It panics
// if a format has no scope, no function or a negative version, or if two have
// the same scope and version.
func Evolve(current Format, old ...Format) *Evolution {
	all := append([]Format{current}, old...)
	for i, f := range all {
		f.mustBeSound()
		for _, g := range all[:i] {
			if f.Scope == g.Scope && max(f.Version, 1) == max(g.Version, 1) {
				panic("keyfn: Evolve: scope " + quote(f.Scope) + " has version " + strconv.Itoa(f.Version) + " twice")
			}
		}
	}
	return &Evolution{current: current, old: all[1:]}
}

// AsFunc gives the key in the current format, as [Format.AsFunc] does.
func (e *Evolution) AsFunc() Func { return e.current.AsFunc() }

// Keys are the keys of one message.
type Keys struct {
	Current Key   // in the current format
	Claim   []Key // all that must be granted, distinct, sorted by scope and text
}

// Keys derives the keys of a message. It fails if the current format does. An
// older format that has no key for the message is left out: a consumer of that
// format cannot have run it.
func (e *Evolution) Keys(m Message) (Keys, error) {
	current, err := e.current.Key(m)
	if err != nil {
		return Keys{}, err
	}
	claim := []Key{current}
	for _, f := range e.old {
		if k, err := f.Key(m); err == nil {
			claim = append(claim, k)
		}
	}
	slices.SortStableFunc(claim, func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Text, b.Text))
	})
	claim = slices.CompactFunc(claim, func(a, b Key) bool { return a.Scope == b.Scope && a.Text == b.Text })
	return Keys{Current: current, Claim: claim}, nil
}

// Version gives what key gives, for messages whose payload is of a version that
// the code knows: version reads a whole number that is at most newest. For a
// newer one it is an error that [errors.Is] [ErrNewer]: a rollout is under way
// and the message is to be given back for later, not dead-lettered. [Watch]
// reports versions that stay too new. A version that is not a whole number is
// [ErrMalformed]; for payloads without one use
//
//	keyfn.First(keyfn.JSON("v"), keyfn.Literal("1"))
func Version(version Func, newest int, key Func) Func {
	mustParts("Version", []Func{version, key})
	return Part("Version", "at most "+strconv.Itoa(newest), func(m Message) (string, error) {
		s, err := value(version, m, 0)
		if err != nil {
			return "", err
		}
		n, err := strconv.Atoi(strings.TrimPrefix(s, "#"))
		switch {
		case errors.Is(err, strconv.ErrRange) && !strings.Contains(s, "-"):
			return "", &NewerError{Version: -1, Newest: newest}
		case err != nil:
			return "", because(ErrMalformed, "version is no whole number")
		case n > newest:
			return "", &NewerError{Version: n, Newest: newest}
		}
		return value(key, m, 1)
	})
}

// NewerError is the [ErrNewer] of one message.
type NewerError struct {
	Version int // of the payload; -1 if it does not fit an int
	Newest  int // that the code knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%v: %d, newest known %d", ErrNewer, e.Version, e.Newest)
}

// Is makes a NewerError an [ErrNewer].
func (e *NewerError) Is(target error) bool { return target == ErrNewer }
