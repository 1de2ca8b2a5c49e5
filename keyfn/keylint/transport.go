package keylint

import (
	"go/ast"
	"go/types"
	"regexp"
	"strings"
)

const transportFix = "name the business event by fields of the payload, such as keyfn.Template(\"order:{orderId}:fulfil\")"

// transportIDs are the names, without separators and in lower case, of what is
// new on every send, delivery or attempt.
var transportIDs = map[string]string{
	"messageid":                        "the broker's message id is new when the producer sends again or somebody replays",
	"sqsmessageid":                     "the broker's message id is new when the producer sends again or somebody replays",
	"snsmessageid":                     "the id of an SNS notification is new on every publish",
	"receipthandle":                    "a receipt handle is new on every delivery",
	"deliverytag":                      "a delivery tag is new on every delivery",
	"deliverycount":                    "a delivery count changes with every delivery",
	"deliveryattempt":                  "the number of an attempt changes with every attempt",
	"approximatereceivecount":          "a receive count changes with every delivery",
	"attempt":                          "the number of an attempt changes with every attempt",
	"attempts":                         "the number of attempts changes with every attempt",
	"attemptid":                        "the id of an attempt is new on every attempt",
	"attemptnumber":                    "the number of an attempt changes with every attempt",
	"retry":                            "the number of a retry changes with every attempt",
	"retries":                          "the number of retries changes with every attempt",
	"retrycount":                       "the number of retries changes with every attempt",
	"retrynum":                         "the number of a retry changes with every attempt",
	"slackretrynum":                    "the number of a retry changes with every attempt",
	"shopifywebhookid":                 "this id names a delivery to one target, not the event",
	"requestid":                        "the id of a request is new on every request, and one request makes several events",
	"amznrequestid":                    "the id of a request is new on every request",
	"amznrequestid2":                   "the id of a request is new on every request",
	"amzntraceid":                      "a trace id is new on every send",
	"awstraceheader":                   "a trace id is new on every send",
	"traceparent":                      "a trace id is new on every send",
	"traceid":                          "a trace id is new on every send",
	"spanid":                           "a span id is new on every send",
	"getretrycount":                    "the number of retries changes with every attempt",
	"gettaskid":                        "the id of a task is new when it is enqueued again",
	"publishtime":                      "the time of publishing is new on every publish",
	"approximatefirstreceivetimestamp": "a receive time is another one for every send",
}

// transportReason returns why a name must not be a key, "" if it may.
func transportReason(name string) string {
	name = strings.ToLower(name)
	name = strings.NewReplacer("-", "", "_", "", " ", "").Replace(name)
	if why := transportIDs[name]; why != "" {
		return why
	}
	return transportIDs[strings.TrimPrefix(name, "x")]
}

// pathReason looks at the last segment of a path, and at "request.id" and the
// like; "message.id" and "delivery.id" may well be what a business is about.
func pathReason(path string) string {
	sep := "."
	if strings.HasPrefix(path, "/") {
		sep = "/"
	}
	segs := strings.Split(path, sep)
	last := segs[len(segs)-1]
	if why := transportReason(last); why != "" {
		return why
	}
	if len(segs) < 2 || !strings.EqualFold(last, "id") {
		return ""
	}
	switch parent := strings.ToLower(segs[len(segs)-2]); parent {
	case "request", "trace", "span", "attempt":
		return transportReason(parent + "id")
	}
	return ""
}

var placeholder = regexp.MustCompile(`\{([^{}]+)\}`)

// checkTransport reports transport ids that a builder reads, anywhere, and that
// a key function reads by itself.
func (p *pkg) checkTransport() {
	for _, f := range p.Files {
		calls(f, p.transportBuilder)
	}
	for _, body := range p.keys {
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				p.transportCall(n)
			case *ast.SelectorExpr:
				p.transportField(n)
			}
			return true
		})
	}
	for _, k := range p.keyArgs {
		ast.Inspect(k.expr, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				p.transportField(s)
			}
			return true
		})
		p.checkPosition(k)
	}
}

// checkPosition reports a key that is made of the count of a loop.
func (p *pkg) checkPosition(k keyArg) {
	counters := map[types.Object]bool{}
	for _, loop := range k.loops {
		switch loop := loop.(type) {
		case *ast.RangeStmt:
			if id, ok := loop.Key.(*ast.Ident); ok && !p.isKeyed(loop.X) {
				counters[p.objectOf(id)] = true
			}
		case *ast.ForStmt:
			_, names := assigned(loop.Init)
			for _, name := range names {
				if id, ok := name.(*ast.Ident); ok {
					counters[p.objectOf(id)] = true
				}
			}
		}
	}
	ast.Inspect(k.expr, func(n ast.Node) bool {
		if _, ok := n.(*ast.IndexExpr); ok {
			return false // what is at the position is not the position
		}
		if id, ok := n.(*ast.Ident); ok && counters[p.TypesInfo.Uses[id]] {
			p.report(id, "transport", "a position in a list or the count of a loop changes when the list comes in another order or a try is repeated",
				"use the id of the element")
		}
		return true
	})
}

// isKeyed reports whether a range is over something whose keys are not
// positions: a map, a channel, a function.
func (p *pkg) isKeyed(e ast.Expr) bool {
	switch t := p.TypesInfo.TypeOf(e).Underlying().(type) {
	case *types.Slice, *types.Array, *types.Basic:
		return false
	case *types.Pointer:
		_, array := t.Elem().Underlying().(*types.Array)
		return !array
	}
	return true
}

// transportBuilder checks the names that parts of keyfn are given.
func (p *pkg) transportBuilder(call *ast.CallExpr) {
	fn := p.callee(call)
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != keyfnPath || fn.Signature().Recv() != nil {
		return
	}
	for _, a := range call.Args {
		s, ok := p.constantString(a)
		if !ok {
			continue
		}
		why := ""
		switch fn.Name() {
		case "Header", "AnyHeader", "Form":
			why = transportReason(s)
		case "JSON", "JSONText", "Keep":
			why = pathReason(s)
		case "Template", "ParseTemplate":
			why = templateReason(s)
		}
		if why != "" {
			p.report(a, "transport", why, transportFix)
		}
	}
}

func templateReason(text string) string {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if header, ok := strings.CutPrefix(name, "header:"); ok {
			if why := transportReason(header); why != "" {
				return why
			}
			continue
		}
		for _, prefix := range []string{"text:", "time:"} {
			name = strings.TrimPrefix(name, prefix)
		}
		if why := pathReason(name); why != "" {
			return why
		}
	}
	return ""
}

// transportCall checks m.Header("…") in a key function.
func (p *pkg) transportCall(call *ast.CallExpr) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Header" || len(call.Args) != 1 {
		return
	}
	if name, ok := p.constantString(call.Args[0]); ok {
		if why := transportReason(name); why != "" {
			p.report(call.Args[0], "transport", why, transportFix)
		}
	}
}

// transportField checks fields and methods of messages that a key function
// reads.
func (p *pkg) transportField(s *ast.SelectorExpr) {
	switch obj := p.TypesInfo.Uses[s.Sel].(type) {
	case *types.Var:
		if !obj.IsField() {
			return
		}
	case *types.Func:
	default:
		return
	}
	if why := transportReason(s.Sel.Name); why != "" {
		p.report(s.Sel, "transport", why, transportFix)
	}
}
