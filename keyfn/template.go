package keyfn

import (
	"errors"
	"fmt"
	"strings"
)

// Template gives text with values in it: "invoice:{id}:capture". A value is
//
//	{data.id}         as of JSON("data.id")
//	{text:data.id}    as of JSONText("data.id"): 7 and "7" are one
//	{time:data.at}    as of Time(JSON("data.at")): the instant, however spelled
//	{header:event_id} as of Header("event_id")
//
// A JSON Pointer reaches members whose names hold a colon or a dot:
// "{/text:odd/name}", "{text:/odd:name}". Elsewhere a colon is an error, so that
// "{headers:id}" is not the path of a member that no message has. Text outside braces is kept as it is; "{{" and "}}"
// stand for braces.
//
// Different values never give the same key. In a value '%', ':', braces,
// control characters and the first byte of whatever follows a value in the
// template are written as '%' and two hexadecimal digits. For that every value
// must be followed by the end or by an ASCII character that is neither a
// letter nor a digit.
//
// Template panics if the template is malformed; [ParseTemplate] returns the
// error.
func Template(text string) Func {
	f, err := ParseTemplate(text)
	if err != nil {
		panic(err.Error())
	}
	return f
}

// ParseTemplate is [Template] for text that is not a constant of the program.
// Its error quotes the template.
func ParseTemplate(text string) (Func, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("keyfn: template %s: %w", quote(text), err)
	}
	return Part("Template", text, t.key), nil
}

// template alternates text and values: lits[0], parts[0], lits[1], …
type template struct {
	lits  []string
	parts []Func
	// separators are the bytes that end a value in this template.
	separators string
}

func (t *template) key(m Message) (string, error) {
	key := make([]byte, 0, 64)
	for i, p := range t.parts {
		key = append(key, t.lits[i]...)
		s, err := value(p, m, i)
		if err != nil {
			return "", err
		}
		key = escape(key, s, t.separators)
		if len(key) > MaxKey {
			return "", ErrTooLong
		}
	}
	key = append(key, t.lits[len(t.parts)]...)
	return string(key), nil
}

func parseTemplate(text string) (*template, error) {
	if len(text) > MaxKey {
		return nil, ErrTooLong
	}
	t := &template{}
	for {
		lit, name, rest, err := nextValue(text)
		if err != nil {
			return nil, err
		}
		t.lits = append(t.lits, lit)
		if name == "" {
			break
		}
		p, err := parseValue(name)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
		text = rest
	}
	return t, t.separate()
}

// nextValue splits off the text up to a value, and the name of that value; the
// name is empty at the end.
func nextValue(text string) (lit, name, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c != '{' && c != '}':
			b.WriteByte(c)
		case i+1 < len(text) && text[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '}':
			return "", "", "", errors.New("closing brace without an opening one")
		default:
			name, rest, ok := strings.Cut(text[i+1:], "}")
			if !ok {
				return "", "", "", errors.New("opening brace without a closing one")
			}
			if name == "" {
				return "", "", "", errors.New("empty braces")
			}
			return b.String(), name, rest, nil
		}
	}
	return b.String(), "", "", nil
}

func parseValue(name string) (Func, error) {
	if strings.ContainsAny(name, "{ \t\r\n") && !strings.HasPrefix(name, "/") {
		return nil, errors.New("brace or white space in the name of a value")
	}
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		if header == "" {
			return nil, errors.New("header without a name")
		}
		return Header(header), nil
	}
	build, prefix := JSON, ""
	if path, ok := strings.CutPrefix(name, "text:"); ok {
		build, name, prefix = JSONText, path, "text:"
	} else if path, ok := strings.CutPrefix(name, "time:"); ok {
		build, name, prefix = func(p string) Func { return Time(JSON(p)) }, path, "time:"
	}
	if unknown, _, ok := strings.Cut(name, ":"); ok && !strings.HasPrefix(name, "/") {
		return nil, fmt.Errorf("unknown prefix %s: there are header:, text: and time:, and a member with a colon in its name is written as a JSON Pointer, %s",
			quote(unknown+":"), quote("{"+prefix+asPointer(name)+"}"))
	}
	if _, err := parsePath(name); err != nil {
		return nil, err
	}
	return build(name), nil
}

// asPointer spells a dotted path as a JSON Pointer.
func asPointer(path string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1", ".", "/").Replace(path)
}

// separate collects the separators and checks that there is one after every
// value.
func (t *template) separate() error {
	if len(t.parts) == 0 {
		return errors.New("no value in it: all messages would share one key")
	}
	for i, lit := range t.lits[1:] {
		if lit == "" {
			if i < len(t.parts)-1 {
				return errors.New("two values without text between them")
			}
			continue
		}
		if c := lit[0]; c >= 0x80 || c == '%' || isASCIILetterOrDigit(c) {
			return errors.New("the text after a value must begin with an ASCII separator such as ':'")
		}
		if !special(lit[0]) && strings.IndexByte(t.separators, lit[0]) < 0 {
			t.separators += lit[:1]
		}
	}
	return nil
}
