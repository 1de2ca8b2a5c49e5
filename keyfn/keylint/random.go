package keylint

import (
	"go/ast"
	"go/types"
	"strings"
)

// source returns what makes the result of a call another one every time, "" if
// nothing does.
func source(fn *types.Func) string {
	if fn == nil || fn.Pkg() == nil {
		return ""
	}
	name, path := fn.Name(), fn.Pkg().Path()
	switch path {
	case "time":
		if name == "Now" || name == "Since" || name == "Until" {
			return "time." + name
		}
	case "math/rand", "math/rand/v2", "crypto/rand":
		if !strings.HasPrefix(name, "New") { // a generator is only its seed
			return "rand." + name
		}
	case "os":
		if name == "Getpid" || name == "Hostname" {
			return "os." + name
		}
	}
	if strings.HasPrefix(path, module) {
		return ""
	}
	return idSource(fn.Pkg().Name(), name)
}

// idSource knows the libraries that make ids.
func idSource(pkgName, name string) string {
	switch pkgName {
	case "uuid":
		// Versions 3 and 5 are made from a name and are always the same.
		if strings.HasPrefix(name, "New") && !strings.Contains(name, "SHA1") && !strings.Contains(name, "MD5") && name != "NewV3" && name != "NewV5" && name != "NewHash" {
			return "uuid." + name
		}
	case "ulid", "xid", "ksuid", "nanoid", "shortuuid", "cuid", "cuid2", "gonanoid":
		if strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Make") || strings.HasPrefix(name, "Must") || name == "Generate" {
			return pkgName + "." + name
		}
	}
	return ""
}

// checkRandom reports sources of ever new values in key functions and keys.
func (p *pkg) checkRandom() {
	for _, body := range p.keys {
		calls(body, func(call *ast.CallExpr) { p.reportRandom(call) })
	}
	for _, k := range p.keyArgs {
		calls(k.expr, func(call *ast.CallExpr) { p.reportRandom(call) })
		if call := p.randomVar(k.expr, k.body); call != nil {
			p.reportRandom(call)
		}
	}
}

func (p *pkg) reportRandom(call *ast.CallExpr) {
	what := source(p.callee(call))
	switch {
	case what == "":
	case strings.HasPrefix(what, "time."):
		p.report(call, "random", what+" in a key gives every delivery another key",
			"take the scheduled time from the payload: keyfn.Every, keyfn.Daily")
	default:
		p.report(call, "random", what+" in a key gives every delivery another key, so nothing is ever a duplicate",
			"name the business event by fields of the payload")
	}
}

// randomVar returns the call that a variable in an expression got its value
// from, if that makes ever new values. It looks at the definitions within scope.
func (p *pkg) randomVar(e ast.Expr, scope ast.Node) *ast.CallExpr {
	if scope == nil {
		return nil
	}
	used := map[types.Object]bool{}
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if v, ok := p.TypesInfo.Uses[id].(*types.Var); ok && !v.IsField() {
				used[v] = true
			}
		}
		return true
	})
	var found *ast.CallExpr
	ast.Inspect(scope, func(n ast.Node) bool {
		values, names := assigned(n)
		for i, name := range names {
			id, ok := name.(*ast.Ident)
			if !ok || !used[p.objectOf(id)] {
				continue
			}
			value := values[min(i, len(values)-1)]
			calls(value, func(call *ast.CallExpr) {
				if found == nil && source(p.callee(call)) != "" {
					found = call
				}
			})
		}
		return true
	})
	return found
}

func (p *pkg) objectOf(id *ast.Ident) types.Object {
	if o := p.TypesInfo.Defs[id]; o != nil {
		return o
	}
	return p.TypesInfo.Uses[id]
}

// assigned returns both sides of an assignment or declaration with values.
func assigned(n ast.Node) (values, names []ast.Expr) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Rhs, n.Lhs
	case *ast.ValueSpec:
		if len(n.Values) == 0 {
			return nil, nil
		}
		for _, id := range n.Names {
			names = append(names, id)
		}
		return n.Values, names
	}
	return nil, nil
}
