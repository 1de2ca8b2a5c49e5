package sqstest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in README.md is code that runs: each block is a part of a test
// file, up to indentation.
func TestReadme_CodeIsTested(t *testing.T) {
	flat := func(s string) string {
		return strings.TrimSpace(regexp.MustCompile(`\n\s*`).ReplaceAllString(s, "\n"))
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(flat(string(b)) + "\n")
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("README.md has no Go code")
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), flat(b[1])) {
			t.Errorf("no test contains\n%s", b[1])
		}
	}
}
