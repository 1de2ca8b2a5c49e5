package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is what `go list` says about a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
	Module     *struct {
		Path string
		Main bool
	}
}

func TestArrowsPointOneWay(t *testing.T) {
	for _, problem := range arrowProblems(table, list(t)) {
		t.Error(problem)
	}
}

// TestTableKeepsTheLayers guards the table itself: a row cannot allow what the
// direction of the arrows forbids.
func TestTableKeepsTheLayers(t *testing.T) {
	for _, problem := range layerProblems(table) {
		t.Error(problem)
	}
}

// TestLinkedModules shows that a user of one store or adapter links its client
// and no other.
func TestLinkedModules(t *testing.T) {
	for _, problem := range moduleProblems(table, list(t)) {
		t.Error(problem)
	}
	for name, allowed := range core {
		r, ok := declared(table, name)
		if !ok {
			t.Errorf("%s is not declared", name)
		}
		for _, m := range r.modules {
			if !slices.Contains(allowed, m) {
				t.Errorf("%s must not link %s: the core is the standard library and the OpenTelemetry API", name, m)
			}
		}
	}
}

func TestDependenciesAreExplained(t *testing.T) {
	text := read(t, "DEPENDENCIES.md")
	var modules []string
	for _, name := range tracked(t) {
		if filepath.Base(name) == "go.mod" && !strings.Contains(name, "testdata/") {
			modules = append(modules, direct(t, filepath.Dir(name))...)
		}
	}
	for _, r := range table {
		modules = append(modules, r.modules...)
	}
	slices.Sort(modules)
	for _, m := range slices.Compact(modules) {
		if !strings.Contains(text, "`"+m+"`") {
			t.Errorf("DEPENDENCIES.md does not explain %s", m)
		}
	}
}

// layerProblems finds arrows between packages that must not know each other.
// A package may always import those below its own directory's first two parts:
// adapters/kafka/franz may import adapters/kafka.
func layerProblems(table []row) []string {
	allowed := map[string][]string{
		"keyfn":      {},
		"store":      {"store", "store/rules"},
		"middleware": {"keyfn", "store"},
		"adapters":   {"middleware", "keyfn", "store"},
	}
	var problems []string
	for _, r := range table {
		layer, _, _ := strings.Cut(r.name, "/")
		for _, imported := range r.imports {
			if !slices.Contains(allowed[layer], imported) && family(imported) != family(r.name) {
				problems = append(problems, fmt.Sprintf("%s must never import %s", r.name, imported))
			}
		}
	}
	return problems
}

// family is the part of a path that packages of one store, adapter or layer
// have in common.
func family(name string) string {
	parts := strings.Split(name, "/")
	if parts[0] == "keyfn" || parts[0] == "middleware" {
		return parts[0]
	}
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// arrowProblems compares the direct imports of every package with its row.
func arrowProblems(table []row, packages []listed) []string {
	var problems []string
	seen := map[string]bool{}
	for _, p := range ours(packages) {
		name := local(p.ImportPath)
		r, ok := declared(table, name)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s is not declared; add to table_test.go, if this is what it should import:\n%s",
				p.ImportPath, suggest(p, packages)))
			continue
		}
		seen[r.name] = true
		for _, imported := range p.Imports {
			if own := local(imported); own != "" && !r.tool && !slices.Contains(r.imports, own) {
				problems = append(problems, fmt.Sprintf("%s must not import %s", name, own))
			}
		}
	}
	for _, r := range table {
		if !seen[r.name] && !strings.HasSuffix(r.name, "...") {
			problems = append(problems, fmt.Sprintf("%s is declared but does not exist", r.name))
		}
	}
	return problems
}

// moduleProblems compares the linked modules of every package with its row.
func moduleProblems(table []row, packages []listed) []string {
	var problems []string
	for _, p := range ours(packages) {
		name := local(p.ImportPath)
		r, ok := declared(table, name)
		if !ok || r.tool {
			continue
		}
		linked := linkedModules(p, packages)
		for _, m := range linked {
			if !slices.Contains(r.modules, m) {
				problems = append(problems, fmt.Sprintf("%s links %s, which is not declared", name, m))
			}
		}
		for _, m := range r.modules {
			if !slices.Contains(linked, m) {
				problems = append(problems, fmt.Sprintf("%s does not link %s, which is declared", name, m))
			}
		}
	}
	return problems
}

// suggest prints the row that fits a package as it is.
func suggest(p listed, packages []listed) string {
	var imports []string
	for _, i := range p.Imports {
		if own := local(i); own != "" {
			imports = append(imports, own)
		}
	}
	return fmt.Sprintf("\t{name: %q, imports: %#v, modules: %#v},", local(p.ImportPath), imports, linkedModules(p, packages))
}

func linkedModules(p listed, packages []listed) []string {
	moduleOf := map[string]string{}
	for _, q := range packages {
		if q.Module != nil && !q.Module.Main {
			moduleOf[q.ImportPath] = q.Module.Path
		}
	}
	var modules []string
	for _, d := range p.Deps {
		if m := moduleOf[d]; m != "" {
			modules = append(modules, m)
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

func ours(packages []listed) []listed {
	return slices.DeleteFunc(slices.Clone(packages), func(p listed) bool { return local(p.ImportPath) == "" })
}

// local cuts the module's path off; it is empty for packages of others.
func local(importPath string) string {
	name, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return name
}

// list describes every package of the module and all that they depend on,
// without tests.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps,Module", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// direct lists the modules of others that the go.mod of a directory requires
// directly, or pins as tools.
func direct(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join(root, dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []json.RawMessage
		Tool    []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace) > 0 && dir == "." {
		t.Errorf("go.mod has replace directives, which users of the module don't see")
	}
	pinned := func(module string) bool {
		for _, tool := range mod.Tool {
			if strings.HasPrefix(tool.Path, module) {
				return true
			}
		}
		return false
	}
	var modules []string
	for _, r := range mod.Require {
		if r.Path != module && (!r.Indirect || pinned(r.Path)) {
			modules = append(modules, r.Path)
		}
	}
	return modules
}

// root is the repository, seen from this package's directory.
const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(root + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
