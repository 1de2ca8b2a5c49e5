package cases

import (
	"testing"

	"github.com/secondrun/secondrun/keyfn"
)

// FuzzVendors: no shape panics whatever the bytes, errors are typed, and a key
// comes out the same twice.
func FuzzVendors(f *testing.F) {
	all := All()
	for _, c := range all {
		f.Add(c.Messages[0].Body(), "1")
	}
	names := []string{
		"id", "event_id", "content-type", "ce_id", "ce_source", "ce-id", "ce-source", "tenant", "topic", "partition", "offset",
		"X-GitHub-Event", "X-GitHub-Delivery", "X-Shopify-Topic", "X-Shopify-Event-Id", "X-Shopify-Shop-Domain",
	}
	f.Fuzz(func(t *testing.T, b []byte, header string) {
		headers := map[string][]string{}
		if header != "" {
			for _, n := range names {
				headers[n] = []string{header}
			}
		}
		m := keyfn.NewMessage(b, headers)
		for _, c := range all {
			key, err := c.Key(m)
			if again, _ := c.Key(m); (key == "") != (err != nil) || again != key {
				t.Fatalf("%s %s: %q, %v, %q", c.ID, c.Name, key, err, again)
			}
			if _, ok := err.(*keyfn.Error); err != nil && !ok { //nolint:errorlint // the very type is promised
				t.Fatalf("%s %s: %T", c.ID, c.Name, err)
			}
		}
	})
}
