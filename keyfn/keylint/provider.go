package keylint

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

var providerName = regexp.MustCompile(`(?i)idempot|client_?token|dedup(e|lication)?_?(id|key|token)`)

// checkProvider reports provider keys that are made anew for every try: within
// a retry loop anywhere, and anywhere within a handler, whose every run is a
// try.
func (p *pkg) checkProvider() {
	for _, body := range p.handlers {
		p.providerSinks(body, body, "a run that is repeated")
	}
	p.allFuncs(func(fd *ast.FuncDecl) {
		ast.Inspect(fd.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt:
				p.providerSinks(n.Body, n.Body, "every try of the loop")
			case *ast.RangeStmt:
				if p.countsTries(n) {
					p.providerSinks(n.Body, n.Body, "every try of the loop")
				}
			case *ast.CallExpr:
				if body := p.retried(n); body != nil {
					p.providerSinks(body, body, "every try")
				}
			}
			return true
		})
	})
}

// countsTries reports whether a range counts, as "range 3" does; a range over
// items is one try for each.
func (p *pkg) countsTries(r *ast.RangeStmt) bool {
	basic, ok := p.TypesInfo.TypeOf(r.X).Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0
}

// retried returns the body of a function that is given to something that
// retries it.
func (p *pkg) retried(call *ast.CallExpr) ast.Node {
	fn := p.callee(call)
	if fn == nil {
		return nil
	}
	name := fn.Name()
	if fn.Pkg() != nil {
		name = fn.Pkg().Name() + "." + name
	}
	name = strings.ToLower(name)
	if !strings.Contains(name, "retry") && !strings.Contains(name, "backoff") {
		return nil
	}
	for _, a := range call.Args {
		if body := p.bodyOf(a); body != nil {
			return body
		}
	}
	return nil
}

// providerSinks reports every place in n where an idempotency key gets a value
// that is made within scope and new every time.
func (p *pkg) providerSinks(n, scope ast.Node, when string) {
	check := func(name string, value ast.Expr) {
		if !providerName.MatchString(name) {
			return
		}
		if call := p.freshIn(value, scope); call != nil {
			p.report(call, "provider", source(p.callee(call))+" makes a new provider key for "+when+", so the provider cannot see the repetition",
				"use secondrun.EffectKey, or make the key once, before the first try, from the business event")
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			check(p.nameOf(n.Key), n.Value)
		case *ast.CallExpr:
			p.callSink(n, check)
		case *ast.AssignStmt, *ast.ValueSpec:
			values, names := assigned(n)
			for i, name := range names {
				check(p.nameOf(name), values[min(i, len(values)-1)])
			}
		}
		return true
	})
}

// callSink checks SetIdempotencyKey(v) and Set("Idempotency-Key", v), where a
// name or a constant argument says what the others are.
func (p *pkg) callSink(call *ast.CallExpr, check func(string, ast.Expr)) {
	if fn := p.callee(call); fn != nil && providerName.MatchString(fn.Name()) {
		for _, a := range call.Args {
			check(fn.Name(), a)
		}
		return
	}
	for i, a := range call.Args {
		if s, ok := p.constantString(a); ok && providerName.MatchString(s) {
			for _, v := range call.Args[i+1:] {
				check(s, v)
			}
		}
	}
}

// nameOf returns what a variable, field or map entry is called.
func (p *pkg) nameOf(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return p.nameOf(e.Index)
	case *ast.StarExpr:
		return p.nameOf(e.X)
	}
	s, _ := p.constantString(e)
	return s
}

// freshIn returns the call that makes a value new every time, in the value
// itself or in scope where a variable of it is set.
func (p *pkg) freshIn(value ast.Expr, scope ast.Node) *ast.CallExpr {
	var found *ast.CallExpr
	calls(value, func(call *ast.CallExpr) {
		if found == nil && source(p.callee(call)) != "" && !slices.Contains(harmless, source(p.callee(call))) {
			found = call
		}
	})
	if found != nil {
		return found
	}
	return p.randomVar(value, scope)
}

// harmless are sources that are no part of a key by themselves.
var harmless = []string{"time.Since", "time.Until"}
