package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeCodeRuns holds every Go block of the README and of the guides
// against the code that is compiled and tested: each must stand, line for line
// but for indentation, in an Example or in an example program.
func TestReadmeCodeRuns(t *testing.T) {
	var sources []string
	for _, file := range tracked(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "examples/") && strings.HasSuffix(file, ".go") {
			text, err := os.ReadFile(filepath.Join(root, file)) //nolint:gosec // a tracked file
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, unindented(string(text)))
		}
	}
	guides, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, guide := range append(guides, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(guide) //nolint:gosec // a tracked file
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "\n```go\n")[1:] {
			code, _, _ := strings.Cut(block, "\n```")
			code = strings.TrimSuffix(strings.TrimPrefix(unindented(code), "import (\n"), "\n)")
			blocks++
			if !standsIn(sources, code) {
				t.Errorf("%s: this block is in no tested code:\n%s", filepath.Base(guide), code)
			}
		}
	}
	if blocks == 0 {
		t.Error("no Go block found")
	}
}

// standsIn reports whether one source has all lines of code together; imports,
// which a source may have among others, one by one.
func standsIn(sources []string, code string) bool {
	for _, s := range sources {
		if strings.Contains(s, code) {
			return true
		}
		if strings.HasPrefix(code, "secondrun \"") || strings.Contains(code, "\n\"github.com/secondrun/") {
			all := true
			for line := range strings.SplitSeq(code, "\n") {
				all = all && strings.Contains(s, "\n"+line+"\n")
			}
			if all {
				return true
			}
		}
	}
	return false
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}
