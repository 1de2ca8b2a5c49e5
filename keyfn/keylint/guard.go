package keylint

import (
	"go/ast"
	"regexp"
	"slices"
)

var (
	asksName    = regexp.MustCompile(`(?i)^(is|has|was|already|check(if)?)*(exists?|seen|processed|handled|duplicate|done|known)`)
	insertsName = regexp.MustCompile(`(?i)^(insert|mark|remember|record|save|store|add)[A-Za-z]*$`)
	asksSQL     = regexp.MustCompile(`(?is)\bselect\b.*\b(exists|count\s*\(|1)\b|\bselect\b.*\bwhere\b`)
	insertsSQL  = regexp.MustCompile(`(?is)\binsert\s+into\b`)
	conflictSQL = regexp.MustCompile(`(?is)\bon\s+(conflict|duplicate\s+key)\b|\binsert\s+(ignore|or\s+ignore)\b`)
)

// checkGuard reports handlers that ask whether something exists and insert it
// themselves. Two deliveries can both be told "no".
func (p *pkg) checkGuard() {
	for _, body := range p.handlers {
		p.guardIn(body)
	}
	p.allFuncs(func(fd *ast.FuncDecl) { // functions that wrap an effect
		wraps := false
		calls(fd.Body, func(call *ast.CallExpr) {
			fn := p.callee(call)
			wraps = wraps || fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == middlewarePath && (fn.Name() == "Once" || fn.Name() == "OnceFunc")
		})
		if wraps && !slices.Contains(p.handlers, ast.Node(fd.Body)) {
			p.guardIn(fd.Body)
		}
	})
}

// guardIn looks for an if that depends on a question, and an insert after the
// question.
func (p *pkg) guardIn(body ast.Node) {
	var questions []*ast.CallExpr
	ast.Inspect(body, func(n ast.Node) bool {
		s, ok := n.(*ast.IfStmt)
		if !ok {
			return true
		}
		if call := p.question(s, body); call != nil {
			questions = append(questions, call)
		}
		return true
	})
	for _, q := range questions {
		inserts := false
		calls(body, func(call *ast.CallExpr) {
			inserts = inserts || call.Pos() > q.End() && p.isInsert(call)
		})
		if inserts {
			p.report(q, "guard", "exists-then-insert lets two deliveries both find nothing, and the claim guards the effect already",
				"drop the question, or insert with ON CONFLICT DO NOTHING under a unique constraint and look at the count of rows")
		}
	}
}

// question returns the call on whose answer an if depends.
func (p *pkg) question(s *ast.IfStmt, body ast.Node) *ast.CallExpr {
	var found *ast.CallExpr
	look := func(n ast.Node) {
		if n == nil {
			return
		}
		calls(n, func(call *ast.CallExpr) {
			if found == nil && p.isQuestion(call) {
				found = call
			}
		})
	}
	if s.Init != nil {
		look(s.Init)
	}
	look(s.Cond)
	if found != nil {
		return found
	}
	return p.questionBefore(s, body)
}

// questionBefore returns the call that set a variable of the condition of an
// if.
func (p *pkg) questionBefore(s *ast.IfStmt, body ast.Node) (found *ast.CallExpr) {
	used := map[any]bool{}
	ast.Inspect(s.Cond, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if o := p.TypesInfo.Uses[id]; o != nil && o.Type() != nil && o.Type().String() != "error" {
				used[o] = true
			}
		}
		return true
	})
	look := func(n ast.Node) {
		calls(n, func(call *ast.CallExpr) {
			if found == nil && p.isQuestion(call) {
				found = call
			}
		})
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil || n.Pos() > s.Pos() {
			return true
		}
		values, names := assigned(n)
		for i, name := range names {
			if id, ok := name.(*ast.Ident); ok && used[p.objectOf(id)] {
				look(values[min(i, len(values)-1)])
			}
		}
		if call, ok := n.(*ast.CallExpr); ok && p.scansInto(call, used) {
			look(call)
		}
		return true
	})
	return found
}

// scansInto reports whether a call is given the address of one of the
// variables, as Scan(&exists) is.
func (p *pkg) scansInto(call *ast.CallExpr, used map[any]bool) bool {
	for _, a := range call.Args {
		u, ok := a.(*ast.UnaryExpr)
		if !ok {
			continue
		}
		if id, ok := u.X.(*ast.Ident); ok && used[p.TypesInfo.Uses[id]] {
			return true
		}
	}
	return false
}

func (p *pkg) isQuestion(call *ast.CallExpr) bool {
	if fn := p.callee(call); fn != nil && asksName.MatchString(fn.Name()) {
		return true
	}
	sql, ok := p.sqlOf(call)
	return ok && asksSQL.MatchString(sql) && !insertsSQL.MatchString(sql)
}

func (p *pkg) isInsert(call *ast.CallExpr) bool {
	if sql, ok := p.sqlOf(call); ok && (insertsSQL.MatchString(sql) || conflictSQL.MatchString(sql)) {
		return !conflictSQL.MatchString(sql)
	}
	fn := p.callee(call)
	return fn != nil && insertsName.MatchString(fn.Name())
}

// sqlOf returns the constant argument of a call that looks like SQL.
func (p *pkg) sqlOf(call *ast.CallExpr) (string, bool) {
	for _, a := range call.Args {
		if s, ok := p.constantString(a); ok && (asksSQL.MatchString(s) || insertsSQL.MatchString(s) || conflictSQL.MatchString(s)) {
			return s, true
		}
	}
	return "", false
}
