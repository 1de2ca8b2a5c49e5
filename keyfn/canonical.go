package keyfn

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the part of a JSON body that paths choose, in canonical
// form: RFC 8785 (no white space, members ordered by UTF-16 code units, one
// spelling of every string and number), except that integers are exact however
// long they are. Fractions are binary64, as in RFC 8785, unless that would turn
// one into an integer or it has more than 17 significant digits; such a one is
// exact too. Two bodies have the same canonical form only if they hold the same
// values; null and an absent member differ, and so do 7 and "7".
//
// The errors are those of [Hash]. The body is not changed.
func Canonical(body []byte, paths Paths) ([]byte, error) {
	out, err := canonical(nil, body, paths)
	if err != nil {
		return nil, asError("Canonical", paths.String(), err)
	}
	return out, nil
}

// canonical appends to dst.
func canonical(dst, body []byte, paths Paths) ([]byte, error) {
	text, err := document(body)
	if err != nil {
		return nil, err
	}
	c := canonicalizer{out: dst, mode: paths.mode}
	var root state
	if paths.root != nil {
		root = state{paths.root}
	}
	if paths.mode == keep {
		c.seen = make([]bool, len(paths.list))
	}
	c.root = root
	if err := json.Unmarshal(text, &c); err != nil {
		if c.reason != nil {
			return nil, c.reason
		}
		return nil, syntax(err)
	}
	if i := slices.Index(c.seen, false); i >= 0 {
		return nil, &Error{Builder: "Keep", Path: paths.list[i], Reason: ErrMissing}
	}
	if !c.substance {
		return nil, ErrNothingLeft
	}
	return c.out, nil
}

// canonicalizer writes one JSON text in canonical form.
type canonicalizer struct {
	out       []byte
	mode      pathMode
	root      state
	seen      []bool // which paths of Keep were found
	members   []member8785
	scratch   []byte
	substance bool // something was written besides null, empty and blank values
	reason    error
}

// member8785 is a member of an open object: where in out it stands, name
// included, and its name where that cannot be read there.
type member8785 struct {
	name         []byte // nil if the name has no escapes
	start, after int    // of the whole member, comma included
	nameAfter    int    // end of the quoted name
}

// UnmarshalJSONFrom is for package json.
func (c *canonicalizer) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return c.value(d, c.root, c.mode != keep)
}

// value writes the next value. whole says that all of it is chosen unless
// stripped; otherwise only what a path of Keep leads to is.
func (c *canonicalizer) value(d *jsontext.Decoder, at state, whole bool) error {
	switch d.PeekKind() {
	case '{':
		return c.object(d, at, whole)
	case '[':
		return c.array(d, at, whole)
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if !whole {
		c.out = append(c.out, "null"...) // a path of Keep goes on below a scalar
		return nil
	}
	return c.scalar(raw)
}

// enter decides about a member or element at a place of the tree: whether it is
// written, and whether with all that is in it.
func (c *canonicalizer) enter(at state, whole bool) (write, all bool) {
	switch {
	case c.mode == strip:
		return !at.ends(nil), true
	case whole:
		return true, true
	case at.ends(c.seen):
		return true, true
	}
	return len(at) > 0, false
}

func (c *canonicalizer) object(d *jsontext.Decoder, at state, whole bool) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.out = append(c.out, '{')
	first, base := len(c.out), len(c.members)
	for d.PeekKind() != '}' {
		raw, err := d.ReadValue()
		if err != nil {
			return err
		}
		start := len(c.out)
		name, err := c.text(raw)
		if err != nil {
			return err
		}
		named := len(c.out)
		inner := at.member(name)
		write, all := c.enter(inner, whole)
		if !write {
			c.out = c.out[:start]
			if _, err := d.ReadValue(); err != nil {
				return err
			}
			continue
		}
		c.out = append(c.out, ':')
		if err := c.value(d, inner, all); err != nil {
			return err
		}
		c.out = append(c.out, ',')
		c.remember(member8785{start: start, after: len(c.out), nameAfter: named}, name)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.sort(first, base)
	c.close('}')
	return nil
}

// text writes a string, or the name of a member, and returns its text. The text
// of one without escapes lies in the decoder's buffer, which is the body.
func (c *canonicalizer) text(raw jsontext.Value) ([]byte, error) {
	if raw.Kind() == '"' && bytes.IndexByte(raw, '\\') < 0 {
		c.out = append(c.out, raw...)
		return raw[1 : len(raw)-1], nil
	}
	name, err := jsontext.AppendUnquote(nil, []byte(raw))
	if err != nil {
		return nil, err
	}
	c.out, err = jsontext.AppendQuote(c.out, name)
	return name, err
}

// remember notes a member that was written.
func (c *canonicalizer) remember(m member8785, name []byte) {
	if bytes.IndexByte(c.out[m.start:m.nameAfter], '\\') >= 0 {
		m.name = bytes.Clone(name)
	}
	c.members = append(c.members, m)
}

// sort orders the members of an object, which follow first in out and base in
// members, and forgets them.
func (c *canonicalizer) sort(first, base int) {
	members := c.members[base:]
	c.members = c.members[:base]
	byName := func(a, b member8785) int { return compareUTF16(c.nameOf(a), c.nameOf(b)) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortFunc(members, byName)
	c.scratch = append(c.scratch[:0], c.out[first:]...)
	c.out = c.out[:first]
	for _, m := range members {
		c.out = append(c.out, c.scratch[m.start-first:m.after-first]...)
	}
}

func (c *canonicalizer) nameOf(m member8785) []byte {
	if m.name != nil {
		return m.name
	}
	return c.out[m.start+1 : m.nameAfter-1]
}

func (c *canonicalizer) array(d *jsontext.Decoder, at state, whole bool) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.out = append(c.out, '[')
	for i := 0; d.PeekKind() != ']'; i++ {
		inner := at.element(i)
		write, all := c.enter(inner, whole)
		if !write {
			if _, err := d.ReadValue(); err != nil {
				return err
			}
			continue
		}
		if err := c.value(d, inner, all); err != nil {
			return err
		}
		c.out = append(c.out, ',')
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.close(']')
	return nil
}

// close ends an object or array, whose members each end with a comma.
func (c *canonicalizer) close(bracket byte) {
	if last := len(c.out) - 1; c.out[last] == ',' {
		c.out[last] = bracket
		return
	}
	c.out = append(c.out, bracket)
}

func (c *canonicalizer) scalar(raw jsontext.Value) error {
	switch raw.Kind() {
	case '0':
		if isShortInteger(raw) {
			c.substance = true
			c.out = append(c.out, raw...)
			return nil
		}
		var digits [32]byte
		n, err := parseNumber(raw, digits[:0])
		if err != nil {
			c.reason = err
			return err
		}
		c.substance = true
		c.out = n.appendCanonical(c.out)
	case '"':
		text, err := c.text(raw)
		if err != nil {
			return err
		}
		c.substance = c.substance || !blank(string(text))
	case 'n':
		c.out = append(c.out, raw...)
	default:
		c.substance = true
		c.out = append(c.out, raw...)
	}
	return nil
}

// compareUTF16 orders UTF-8 text by its UTF-16 code units, which differs from
// the order of bytes where one has a character beyond U+FFFF.
func compareUTF16(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n-- // both share the bytes before n, so this is the start of both characters
	}
	if n == len(a) || n == len(b) {
		return cmp.Compare(len(a), len(b))
	}
	ra, _ := utf8.DecodeRune(a[n:])
	rb, _ := utf8.DecodeRune(b[n:])
	if c := cmp.Compare(firstUnit(ra), firstUnit(rb)); c != 0 {
		return c
	}
	return cmp.Compare(ra, rb) // both are surrogate pairs with the same first half
}

// firstUnit returns the first UTF-16 code unit of a character.
func firstUnit(r rune) rune {
	if r < 0x10000 {
		return r
	}
	high, _ := utf16.EncodeRune(r)
	return high
}
