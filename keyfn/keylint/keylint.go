// Package keylint finds keys that cannot be right, in the key functions and
// handlers of programs that use secondrun.
//
// It reports, each with a reason and a fix:
//
//   - transport: the id of a message, a delivery or an attempt as key
//   - random: uuid.New, time.Now or a random number in a key function
//   - provider: a provider's idempotency key that is made anew for every try
//   - hash: the hash of a payload without a list of what to strip or keep
//   - guard: exists-then-insert around an effect that is claimed already
//
// A finding that is right after all is silenced by a comment with the reason, on
// its line or the line before:
//
//	//keylint:ignore the body has no volatile fields, see the schema
//
// Test files are not looked at unless the flag -keylint.tests is set. The analysis
// follows calls within a package and guesses from names what a value is; that
// it finds nothing is no proof.
package keylint

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Paths of the packages whose use is checked.
const (
	module         = "github.com/secondrun/secondrun"
	keyfnPath      = module + "/keyfn"
	middlewarePath = module + "/middleware"
)

// Analyzer is the check, for go vet and other drivers.
var Analyzer = newAnalyzer()

func newAnalyzer() *analysis.Analyzer {
	c := &checker{}
	a := &analysis.Analyzer{
		Name:     "keylint",
		Doc:      "find idempotency keys that cannot be right: transport ids, random values, bare payload hashes",
		URL:      "https://pkg.go.dev/" + module + "/keyfn/keylint",
		Requires: []*analysis.Analyzer{inspect.Analyzer},
		Run:      c.run,
	}
	a.Flags.BoolVar(&c.tests, "tests", false, "look at test files too")
	return a
}

// checker holds the flags.
type checker struct {
	tests bool
}

func (c *checker) run(pass *analysis.Pass) (any, error) {
	if !concerns(pass) {
		return nil, nil
	}
	p := &pkg{
		Pass:     pass,
		tests:    c.tests,
		in:       pass.ResultOf[inspect.Analyzer].(*inspector.Inspector), //nolint:forcetypeassert // as required above
		ignored:  map[string]map[int]bool{},
		reported: map[token.Pos]bool{},
	}
	p.readIgnores()
	p.find()
	p.checkTransport()
	p.checkRandom()
	p.checkProvider()
	p.checkHash()
	p.checkGuard()
	return nil, nil
}

// concerns reports whether a package uses secondrun at all.
func concerns(pass *analysis.Pass) bool {
	for _, imp := range pass.Pkg.Imports() {
		if imp.Path() == module || strings.HasPrefix(imp.Path(), module+"/") {
			return true
		}
	}
	return false
}

// pkg is one package under check.
type pkg struct {
	*analysis.Pass
	tests    bool
	in       *inspector.Inspector
	ignored  map[string]map[int]bool // file → lines
	reported map[token.Pos]bool

	decls    map[any]*ast.FuncDecl // *types.Func → its declaration
	keys     []ast.Node            // bodies of key functions, helpers included
	direct   []ast.Node            // bodies of key functions themselves
	handlers []ast.Node            // bodies of handlers and effects
	keyArgs  []keyArg              // key arguments of Do
}

const ignorePrefix = "//keylint:ignore"

// readIgnores notes the lines that a comment silences: its own and the next.
func (p *pkg) readIgnores() {
	for _, f := range p.Files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				reason, ok := strings.CutPrefix(c.Text, ignorePrefix)
				if !ok || reason != "" && reason[0] != ' ' && reason[0] != '\t' {
					continue
				}
				pos := p.Fset.Position(c.Pos())
				if strings.TrimSpace(reason) == "" {
					p.Reportf(c.Pos(), "keylint:ignore without a reason silences nothing; fix: say why the finding is right here")
					continue
				}
				if p.ignored[pos.Filename] == nil {
					p.ignored[pos.Filename] = map[int]bool{}
				}
				p.ignored[pos.Filename][pos.Line] = true
				p.ignored[pos.Filename][pos.Line+1] = true
			}
		}
	}
}

// skip reports whether a place is in a file that is not looked at.
func (p *pkg) skip(pos token.Pos) bool {
	return !p.tests && strings.HasSuffix(p.Fset.Position(pos).Filename, "_test.go")
}

// report reports a finding once for every place.
func (p *pkg) report(at ast.Node, rule, why, fix string) {
	pos := at.Pos()
	where := p.Fset.Position(pos)
	if p.reported[pos] || p.skip(pos) || p.ignored[where.Filename][where.Line] {
		return
	}
	p.reported[pos] = true
	p.Report(analysis.Diagnostic{
		Pos: pos, End: at.End(), Category: rule,
		Message: rule + ": " + why + "; fix: " + fix,
	})
}
