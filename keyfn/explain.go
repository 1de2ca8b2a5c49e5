package keyfn

import (
	"fmt"
	"strings"
)

// Explanation shows how a key came about, for a sample message on a
// developer's screen. It holds text of the message: keep it out of logs.
type Explanation struct {
	Key   string // the key; empty if there is none
	Err   error  // why there is none
	Parts []Step // in the order in which they were asked
}

// Step is what one part did. The parts that it asked follow it, one deeper.
type Step struct {
	Builder string // as it is spelled in code
	Path    string // where it looked; may be empty
	Depth   int    // 0 for the outermost part
	Text    string // what it gave; empty if it gave an error
	Err     error
}

// Explain derives the key of a sample message and reports which parts gave
// which bytes. Plain functions of the caller do not show; see [Part].
func Explain(f Func, sample Message) Explanation {
	t := &trace{}
	key, err := f(traced{sample, t})
	return Explanation{Key: key, Err: err, Parts: t.steps}
}

// String lays the explanation out as one line per part, with quoted text.
func (e Explanation) String() string {
	var b strings.Builder
	if e.Err != nil {
		fmt.Fprintf(&b, "no key: %v\n", e.Err)
	} else {
		fmt.Fprintf(&b, "key %q (%d bytes)\n", e.Key, len(e.Key))
	}
	for _, p := range e.Parts {
		fmt.Fprintf(&b, "%s%s", strings.Repeat("  ", p.Depth+1), p.Builder)
		if p.Path != "" {
			fmt.Fprintf(&b, " %s", quote(p.Path))
		}
		if p.Err != nil {
			fmt.Fprintf(&b, " → %v\n", p.Err)
		} else {
			fmt.Fprintf(&b, " → %q\n", p.Text)
		}
	}
	return b.String()
}

// trace records steps. A nil trace records nothing.
type trace struct {
	steps []Step
	depth int
}

// enter opens the step of a part and returns its number.
func (t *trace) enter() int {
	if t == nil {
		return 0
	}
	t.steps = append(t.steps, Step{Depth: t.depth})
	t.depth++
	return len(t.steps) - 1
}

func (t *trace) leave(step int, builder, path, text string, err error) {
	if t == nil {
		return
	}
	t.depth--
	s := &t.steps[step]
	s.Builder, s.Path, s.Text, s.Err = builder, path, text, err
}

// traced is a message whose parts are recorded.
type traced struct {
	Message
	trace *trace
}

func tracing(m Message) *trace {
	if t, ok := m.(traced); ok {
		return t.trace
	}
	return nil
}
