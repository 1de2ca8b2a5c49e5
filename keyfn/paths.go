package keyfn

import (
	"slices"
	"strconv"
	"strings"
)

// Paths is an explicit choice of what of a JSON body is hashed: [Strip], [Keep]
// or [Everything]. The zero value is no choice and makes [Hash] panic.
//
// A path is spelled as in [JSON]. In addition the segment "*" stands for every
// element of an array and every member of an object: "lines.*.updated_at". A
// star that is a name needs a JSON Pointer, where it is nothing special.
type Paths struct {
	mode pathMode
	root *pathNode
	list []string
}

type pathMode uint8

const (
	_ pathMode = iota
	everything
	strip
	keep
)

// Strip chooses everything but the values at these paths: fields that differ
// between two sends of one event, such as "sentAt" and "meta.trace_id". A path
// that a message lacks is fine. It panics without paths; see [Everything].
func Strip(paths ...string) Paths { return newPaths("Strip", strip, paths) }

// Keep chooses the values at these paths and nothing else: fields that make the
// event what it is. A message must hold something at every path, or it has no
// key. Objects and arrays on the way are written with what is kept of them. It
// panics without paths.
func Keep(paths ...string) Paths { return newPaths("Keep", keep, paths) }

// Everything chooses the whole body. That is right only for bodies in which
// nothing changes when the event is sent again and in which two events always
// differ; a time, a trace id or an attempt number breaks the first, a heartbeat
// without id or time the second.
func Everything() Paths { return Paths{mode: everything} }

func newPaths(builder string, mode pathMode, paths []string) Paths {
	if len(paths) == 0 {
		panic("keyfn: " + builder + ": no paths")
	}
	p := Paths{mode: mode, root: &pathNode{}, list: slices.Clone(paths)}
	for i, path := range paths {
		segs := mustPath(builder, path)
		p.root.add(segs, !strings.HasPrefix(path, "/"), i)
	}
	return p
}

// String shows the choice as it is spelled in code.
func (p Paths) String() string {
	switch p.mode {
	case everything:
		return "Everything"
	case strip:
		return "Strip " + strings.Join(p.list, " ")
	case keep:
		return "Keep " + strings.Join(p.list, " ")
	}
	return "no paths"
}

// pathNode is a node of the tree of all paths of a list.
type pathNode struct {
	names map[string]*pathNode
	star  *pathNode
	ends  []int // the paths that end here
}

func (n *pathNode) add(segs []string, stars bool, path int) {
	for _, s := range segs {
		next := n.star
		if s != "*" || !stars {
			next = n.names[s]
		}
		if next == nil {
			next = &pathNode{}
			switch {
			case s == "*" && stars:
				n.star = next
			case n.names == nil:
				n.names = map[string]*pathNode{s: next}
			default:
				n.names[s] = next
			}
		}
		n = next
	}
	n.ends = append(n.ends, path)
}

// state is where in the tree a value is: several nodes where stars and names
// match alike, none where no path leads.
type state []*pathNode

func (s state) member(name []byte) state {
	var next state
	for _, n := range s {
		if c := n.names[string(name)]; c != nil {
			next = append(next, c)
		}
		if n.star != nil {
			next = append(next, n.star)
		}
	}
	return next
}

func (s state) element(i int) state {
	if len(s) == 0 {
		return nil
	}
	var buf [20]byte
	return s.member(strconv.AppendInt(buf[:0], int64(i), 10))
}

// ends reports whether a path ends here, and marks those that do.
func (s state) ends(seen []bool) bool {
	found := false
	for _, n := range s {
		for _, p := range n.ends {
			found = true
			if seen != nil {
				seen[p] = true
			}
		}
	}
	return found
}
