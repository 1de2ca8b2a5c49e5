package keylint

import (
	"go/ast"
	"go/types"
	"strings"
)

const hashFix = "name the event by its fields, or use keyfn.Hash with keyfn.Strip of the volatile paths or keyfn.Keep of the stable ones"

// checkHash reports hashes of a whole payload: by keyfn with Everything, and by
// hand in a key function.
func (p *pkg) checkHash() {
	for _, f := range p.Files {
		calls(f, func(call *ast.CallExpr) {
			if fn := p.callee(call); fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == keyfnPath && fn.Name() == "Everything" {
				p.report(call, "hash", "a hash of the whole payload changes with every volatile field and is equal for two events that look alike", hashFix)
			}
		})
	}
	for _, body := range p.keys {
		payload := p.payloadVars(body)
		calls(body, func(call *ast.CallExpr) {
			if isHash(p.callee(call)) && p.readsPayload(call.Args, payload) {
				p.report(call, "hash", "a hash of the whole payload changes with every volatile field, and with the order of members", hashFix)
			}
		})
	}
}

// isHash reports whether a function takes data into a hash.
func isHash(fn *types.Func) bool {
	if fn == nil || fn.Pkg() == nil {
		return false
	}
	path, name := fn.Pkg().Path(), fn.Name()
	switch {
	case strings.HasPrefix(path, "crypto/") && strings.HasPrefix(name, "Sum"):
		return true
	case path == "hash/crc32" || path == "hash/crc64" || path == "hash/adler32":
		return strings.HasPrefix(name, "Checksum") || name == "Update"
	case path == "hash/maphash":
		return name == "Bytes" || name == "String"
	case strings.Contains(path, "xxhash") || strings.Contains(path, "murmur3") || strings.Contains(path, "blake") || strings.Contains(path, "highwayhash"):
		return strings.HasPrefix(name, "Sum")
	case name == "Write" || name == "WriteString":
		return isHashMethod(fn)
	case path == "io" && name == "WriteString":
		return true
	}
	return false
}

// isHashMethod reports whether Write is that of hash.Hash; the static type of
// what sha256.New returns.
func isHashMethod(fn *types.Func) bool {
	recv := fn.Signature().Recv()
	if recv == nil {
		return false
	}
	path := fn.Pkg().Path()
	return path == "hash" || path == "io" && recv.Type().String() == "io.Writer"
}

// payloadVars returns the variables of a body that hold the whole payload: the
// result of Body(), or of marshalling something whole.
func (p *pkg) payloadVars(body ast.Node) map[types.Object]bool {
	vars := map[types.Object]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		values, names := assigned(n)
		if len(values) == 0 || !p.readsPayload(values[:1], vars) {
			return true
		}
		if id, ok := names[0].(*ast.Ident); ok {
			vars[p.objectOf(id)] = true
		}
		return true
	})
	return vars
}

// readsPayload reports whether one of these expressions is the whole payload,
// converted perhaps.
func (p *pkg) readsPayload(exprs []ast.Expr, vars map[types.Object]bool) bool {
	for _, e := range exprs {
		switch e := ast.Unparen(e).(type) {
		case *ast.Ident:
			if vars[p.TypesInfo.Uses[e]] {
				return true
			}
		case *ast.CallExpr:
			if p.isPayload(e) || p.TypesInfo.Types[e.Fun].IsType() && p.readsPayload(e.Args, vars) {
				return true
			}
		}
	}
	return false
}

// isPayload reports whether a call returns the whole payload.
func (p *pkg) isPayload(call *ast.CallExpr) bool {
	fn := p.callee(call)
	if fn == nil {
		return false
	}
	switch fn.Name() {
	case "Body":
		return len(call.Args) == 0 && fn.Signature().Recv() != nil
	case "Marshal", "MarshalIndent":
		return fn.Pkg() != nil && strings.Contains(fn.Pkg().Path(), "json") || fn.Pkg() != nil && strings.HasSuffix(fn.Pkg().Path(), "/proto")
	}
	return false
}
