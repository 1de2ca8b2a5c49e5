package keylint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProject runs the tool under go vet on the project itself: its packages
// and its examples must be free of findings, and a package with a finding must
// fail.
func TestProject(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole project")
	}
	tool := filepath.Join(t.TempDir(), "keylint")
	run(t, ".", true, "go", "build", "-o", tool, "./cmd/keylint")

	root := filepath.Join("..", "..")
	run(t, root, true, "go", "vet", "-vettool="+tool, "./...")

	// The tool must be able to fail: with test files, which show the traps.
	run(t, root, false, "go", "vet", "-vettool="+tool, "-keylint.tests", "./keyfn")
}

func run(t *testing.T, dir string, pass bool, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...) //nolint:gosec // constant but for a temporary path
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if (err == nil) != pass {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}
