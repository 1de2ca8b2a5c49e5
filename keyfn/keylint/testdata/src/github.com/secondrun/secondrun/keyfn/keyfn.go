// Package keyfn stands for the real one.
package keyfn

type Message interface {
	Body() []byte
	Header(name string) []string
}

type Func func(Message) (string, error)

type Paths struct{}

func From[T any](f func(T) (string, error)) Func             { return nil }
func JSON(path string) Func                                  { return nil }
func JSONText(path string) Func                              { return nil }
func Header(name string) Func                                { return nil }
func AnyHeader(names ...string) Func                         { return nil }
func Form(name string) Func                                  { return nil }
func Template(text string) Func                              { return nil }
func Literal(s string) Func                                  { return nil }
func Join(parts ...Func) Func                                { return nil }
func Map(f Func, fn func(string) (string, error)) Func       { return nil }
func Part(b, p string, f func(Message) (string, error)) Func { return nil }
func Hash(p Paths) Func                                      { return nil }
func HMAC(secret []byte, p Paths) Func                       { return nil }
func Everything() Paths                                      { return Paths{} }
func Strip(paths ...string) Paths                            { return Paths{} }
func Keep(paths ...string) Paths                             { return Paths{} }
func Time(f Func) Func                                       { return nil }
