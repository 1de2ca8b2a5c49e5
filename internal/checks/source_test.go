package checks

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is the limit of a production file.
const maxLines = 400

func TestSourceRules(t *testing.T) {
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range sourceProblems(name, src) {
			t.Error(problem)
		}
	}
}

// TestNoMachinePaths finds paths of the machine that a file was written on.
func TestNoMachinePaths(t *testing.T) {
	for _, name := range tracked(t) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range pathProblems(name, b) {
			t.Error(problem)
		}
	}
}

// sourceProblems finds what production code of this module does without:
// hidden work at start, and ways around the type system and the linker.
func sourceProblems(name string, src []byte) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	found := func(pos token.Pos, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: %s", fset.Position(pos), fmt.Sprintf(format, args...)))
	}
	for _, i := range file.Imports {
		if i.Path.Value == `"unsafe"` || i.Path.Value == `"C"` {
			found(i.Pos(), "imports %s", i.Path.Value)
		}
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			found(f.Pos(), "has an init function")
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				found(c.Pos(), "uses go:linkname")
			}
		}
	}
	if lines := bytes.Count(src, []byte("\n")); lines > maxLines && !ast.IsGenerated(file) {
		found(file.Package, "has %d lines, more than %d", lines, maxLines)
	}
	return problems
}

// machinePath is written in parts, or it would find itself.
var machinePath = regexp.MustCompile(`(^|[^\w.])/(home|` + `work|` + `root|` + `Users)/\w`)

func pathProblems(name string, content []byte) []string {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	var problems []string
	for i, line := range bytes.Split(content, []byte("\n")) {
		if m := machinePath.Find(line); m != nil {
			problems = append(problems, fmt.Sprintf("%s:%d: names a path of one machine: %s", name, i+1, line))
		}
	}
	return problems
}

// tracked lists the files that belong to the repository, new ones included.
func tracked(t *testing.T) []string {
	t.Helper()
	// The checkout may belong to another user, as in a container.
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git does not list the files here: %v", err)
	}
	var names []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, name)); err == nil { // not deleted in the working tree
			names = append(names, name)
		}
	}
	return names
}
