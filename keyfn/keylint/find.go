package keylint

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

// keyArg is the key that a call of Do is given, or the name of an effect.
type keyArg struct {
	expr  ast.Expr
	body  ast.Node   // of the function around it
	loops []ast.Node // around it within that function
}

// maxDepth is how many calls within the package are followed from a key
// function.
const maxDepth = 3

// find collects key functions and handlers.
func (p *pkg) find() {
	p.decls = map[any]*ast.FuncDecl{}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Body != nil {
				p.decls[p.TypesInfo.Defs[fd.Name]] = fd
				if isKeyFunc(p.TypesInfo.Defs[fd.Name].Type()) {
					p.addKey(fd.Body)
				}
			}
		}
	}
	p.in.WithStack([]ast.Node{(*ast.FuncLit)(nil), (*ast.CallExpr)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
		if !push {
			return true
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			if isKeyFunc(p.TypesInfo.TypeOf(n)) {
				p.addKey(n.Body)
			}
		case *ast.CallExpr:
			p.findInCall(n, stack)
		}
		return true
	})
	p.direct = slices.Clone(p.keys)
	for _, body := range p.direct {
		p.follow(body, maxDepth)
	}
}

// isKeyFunc reports whether a type is func(keyfn.Message) (string, error).
func isKeyFunc(t types.Type) bool {
	sig, ok := t.(*types.Signature)
	if !ok || sig.Params().Len() != 1 || sig.Results().Len() != 2 {
		return false
	}
	named, ok := types.Unalias(sig.Params().At(0).Type()).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != keyfnPath || named.Obj().Name() != "Message" {
		return false
	}
	basic, ok := sig.Results().At(0).Type().(*types.Basic)
	return ok && basic.Kind() == types.String && sig.Results().At(1).Type().String() == "error"
}

// keyArgTakers are functions of the middleware that take a key, or the name of an
// effect, as text.
var keyArgTakers = map[string]bool{"Do": true, "DoResult": true, "Once": true, "OnceFunc": true, "EffectKey": true}

// keyTakers are functions of keyfn whose function argument makes a key.
var keyTakers = map[string]bool{"From": true, "Map": true, "Part": true}

// handlerTakers are functions of the middleware whose function argument is a
// handler or an effect.
var handlerTakers = map[string]bool{
	"Wrap": true, "WrapResult": true, "WrapJSON": true, "Once": true, "OnceFunc": true, "Do": true, "DoResult": true,
}

func (p *pkg) findInCall(call *ast.CallExpr, stack []ast.Node) {
	fn := p.callee(call)
	if fn == nil || fn.Pkg() == nil {
		return
	}
	switch path := fn.Pkg().Path(); {
	case path == keyfnPath && keyTakers[fn.Name()]:
		for _, a := range call.Args {
			if body := p.bodyOf(a); body != nil {
				p.addKey(body)
			}
		}
	case path == middlewarePath:
		if keyArgTakers[fn.Name()] {
			p.addKeyArgs(call, stack)
		}
		if !handlerTakers[fn.Name()] {
			return
		}
		for _, a := range call.Args {
			body := p.bodyOf(a)
			if body != nil && !slices.Contains(p.keys, body) && !isKeyFunc(p.TypesInfo.TypeOf(a)) {
				p.handlers = append(p.handlers, body)
			}
		}
	}
}

// addKeyArgs notes the string arguments of a call, which are keys.
func (p *pkg) addKeyArgs(call *ast.CallExpr, stack []ast.Node) {
	for _, a := range call.Args {
		basic, ok := p.TypesInfo.TypeOf(a).Underlying().(*types.Basic)
		if !ok || basic.Info()&types.IsString == 0 {
			continue
		}
		k := keyArg{expr: a}
		for _, n := range stack {
			switch n := n.(type) {
			case *ast.FuncDecl:
				k.body, k.loops = n.Body, nil
			case *ast.FuncLit:
				k.body, k.loops = n.Body, nil
			case *ast.RangeStmt, *ast.ForStmt:
				k.loops = append(k.loops, n)
			}
		}
		p.keyArgs = append(p.keyArgs, k)
	}
}

func (p *pkg) addKey(body ast.Node) {
	if !slices.Contains(p.keys, body) {
		p.keys = append(p.keys, body)
	}
}

// follow adds the functions of this package that a body calls.
func (p *pkg) follow(body ast.Node, depth int) {
	if depth == 0 {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if fd := p.decls[p.callee(call)]; fd != nil && !slices.Contains(p.keys, ast.Node(fd.Body)) {
			p.keys = append(p.keys, fd.Body)
			p.follow(fd.Body, depth-1)
		}
		return true
	})
}

// callee returns the function or method that is called, if that is known; of
// an instance its generic function.
func (p *pkg) callee(call *ast.CallExpr) *types.Func {
	fn, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func)
	if !ok {
		return nil
	}
	return fn.Origin()
}

// bodyOf returns the body of a function literal, or of a function of this
// package that is named.
func (p *pkg) bodyOf(e ast.Expr) ast.Node {
	switch e := ast.Unparen(e).(type) {
	case *ast.FuncLit:
		return e.Body
	case *ast.Ident:
		if fd := p.decls[p.TypesInfo.Uses[e]]; fd != nil {
			return fd.Body
		}
	case *ast.SelectorExpr:
		if fd := p.decls[p.TypesInfo.Uses[e.Sel]]; fd != nil {
			return fd.Body
		}
	}
	return nil
}

// constantString returns the value of a constant string.
func (p *pkg) constantString(e ast.Expr) (string, bool) {
	v := p.TypesInfo.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

// calls calls f for every call in a node.
func calls(n ast.Node, f func(*ast.CallExpr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			f(call)
		}
		return true
	})
}

// allFuncs calls f for the body of every function that is declared.
func (p *pkg) allFuncs(f func(*ast.FuncDecl)) {
	for _, file := range p.Files {
		for _, d := range file.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Body != nil {
				f(fd)
			}
		}
	}
}
