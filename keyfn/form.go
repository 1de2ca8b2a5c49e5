package keyfn

import (
	"net/url"
)

// Form gives the value of a field of a body of type
// application/x-www-form-urlencoded, as Twilio and Slack send it. The same value
// several times is that value; different ones are [ErrAmbiguous].
func Form(name string) Func {
	if name == "" {
		panic("keyfn: Form: no name")
	}
	return Part("Form", name, func(m Message) (string, error) {
		body := m.Body()
		if len(body) > MaxBody {
			return "", because(ErrTooLong, "body")
		}
		values, err := url.ParseQuery(string(body))
		if err != nil { // its text quotes the body
			return "", because(ErrMalformed, "not a form")
		}
		return one(values[name], "", false)
	})
}
