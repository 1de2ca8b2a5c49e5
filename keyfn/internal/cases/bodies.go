package cases

import (
	"strings"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/unicodekey"
	"github.com/secondrun/secondrun/keyfn/webhookkey"
)

// U02: equal JSON in different bytes, and different JSON that parses alike.
func bodies() []Case {
	return []Case{
		{"U02", "whole body", keyfn.Hash(keyfn.Everything()), []Message{ //keylint:ignore the case is about whole bodies
			event("plain", "1", body(`{"id":"x","n":7,"tags":["a","b"]}`)),
			event("order", "1", body(`{"tags":["a","b"],"n":7,"id":"x"}`)),
			event("spaces", "1", body("{ \"id\":\t\"x\",\r\n\"n\":7,\"tags\":[\"a\",\"b\"]}\n")),
			event("mark of byte order", "1", body("\xef\xbb\xbf"+`{"id":"x","n":7,"tags":["a","b"]}`)),
			event("escape", "1", body(`{"id":"\u0078","n":7,"tags":["a","b"]}`)),
			event("7.0", "1", body(`{"id":"x","n":7.0,"tags":["a","b"]}`)),
			event("7e0", "1", body(`{"id":"x","n":7e0,"tags":["a","b"]}`)),
			event("text 7", "2", body(`{"id":"x","n":"7","tags":["a","b"]}`)),
			event("order of an array", "3", body(`{"id":"x","n":7,"tags":["b","a"]}`)),
			event("a<b", "4", body(`{"t":"a<b/"}`)),
			event("a<b escaped", "4", body(`{"t":"a\u003cb\/"}`)),
			event("escaped backslash", "5", body(`{"t":"a\\u003cb/"}`)),
			event("big", "6", body(`{"id":9007199254740993}`)),
			event("big - 1", "7", body(`{"id":9007199254740992}`)),
			event("null", "8", body(`{"id":"x","n":null}`)),
			event("absent", "9", body(`{"id":"x"}`)),
			event("NFC", "10", body("{\"id\":\"caf\xc3\xa9\"}")),
			event("NFD", "11", body("{\"id\":\"cafe\xcc\x81\"}")),
			noKey("duplicate", keyfn.ErrAmbiguous, body(`{"id":"ev_1","id":"ev_2"}`)),
			event("other case is another name", "12", body(`{"id":"ev_1","ID":"ev_2"}`)),
			noKey("two documents", keyfn.ErrMalformed, body(`{"id":"x"}{"id":"x"}`)),
			noKey("junk", keyfn.ErrMalformed, body(`{"id":"x"}]`)),
			noKey("1e400", keyfn.ErrMalformed, body(`{"n":1e400}`)),
			noKey("surrogate", keyfn.ErrMalformed, body(`{"id":"A\ud800"}`)),
			noKey("another surrogate", keyfn.ErrMalformed, body(`{"id":"A\udfff"}`)),
			noKey("invalid UTF-8", keyfn.ErrMalformed, body("{\"id\":\"A\xff\"}")),
		}},
		{"U02", "coerced", keyfn.JSONText("n"), []Message{
			event("7", "1", body(`{"n":7}`)).is("7"), event("text 7", "1", body(`{"n":"7"}`)),
		}},
		{"U02", "not coerced", keyfn.JSON("n"), []Message{
			event("7", "1", body(`{"n":7}`)).is("#7"), event("text 7", "2", body(`{"n":"7"}`)).is("7"),
		}},
		{"U02", "typed, any case", keyfn.From(func(v struct{ ID string }) (string, error) { return v.ID, nil }), []Message{
			event("one", "1", body(`{"id":"ev_1"}`)).is("ev_1"),
			noKey("two cases", keyfn.ErrAmbiguous, body(`{"id":"ev_1","ID":"ev_2"}`)),
		}},
		{"U02", "normalised", unicodekey.NFC(keyfn.JSON("id")), []Message{
			event("NFC", "1", body("{\"id\":\"caf\xc3\xa9\"}")), event("NFD", "1", body("{\"id\":\"cafe\xcc\x81\"}")),
		}},
	}
}

// U04: no id.
func missing() []Case {
	return []Case{{"U04", "id and sequence", keyfn.Join(keyfn.JSON("data.id"), keyfn.JSON("data.seq")), []Message{
		event("1", "1", body(`{"data":{"id":"m-1","seq":0}}`)).is("m-1:#0"),
		noKey("2", keyfn.ErrMissing, body(`{"data":{"seq":0}}`)),
		noKey("3", keyfn.ErrNull, body(`{"data":{"id":null,"seq":1}}`)),
		noKey("4", keyfn.ErrEmpty, body(`{"data":{"id":"","seq":2}}`)),
		noKey("5", keyfn.ErrEmpty, body(`{"data":{"id":"  ","seq":3}}`)),
		noKey("6", keyfn.ErrType, body(`{"data":[]}`)),
		noKey("7", keyfn.ErrMissing, body(`{}`)),
		noKey("8", keyfn.ErrMissing, body(``)),
		noKey("9", keyfn.ErrType, body(`{"data":{"id":false,"seq":0}}`)),
		event("10", "10", body(`{"data":{"id":0,"seq":0}}`)).is("#0:#0"),
		noKey("2 with another body", keyfn.ErrMissing, body(`{"data":{"seq":0},"text":"other"}`)),
	}}}
}

// U05: keys that are too coarse.
func coarse() []Case {
	stripe := func(id, typ, object, state string) keyfn.Message {
		return body(`{"id":"` + id + `","object":"event","pending_webhooks":2,"type":"` + typ + `","request":{"id":"req_9"},"data":{"object":{"id":"` + object + `","status":"` + state + `"}}}`)
	}
	shopify := body(`{"id":1}`, "X-Shopify-Event-Id", "E1", "X-Shopify-Topic", "orders/updated", "X-Shopify-Shop-Domain", "example.myshopify.com", "X-Shopify-Webhook-Id", "w-1")
	scoped := func(scope string) keyfn.Func {
		return keyfn.Format{Scope: scope, Func: webhookkey.Shopify()}.AsFunc()
	}
	return []Case{
		{"U05", "a Twilio", webhookkey.Twilio(), []Message{
			event("sent", "sent", body(`MessageSid=SM01&MessageStatus=sent`)).is("SM01:sent"),
			event("delivered", "delivered", body(`MessageSid=SM01&MessageStatus=delivered`)),
			event("delivered again", "delivered", body(`MessageSid=SM01&MessageStatus=delivered`)),
		}},
		{"U05", "b Stripe, one request", webhookkey.Stripe(), []Message{
			event("A", "A", stripe("evt_A", "customer.subscription.created", "sub_1", "active")).is("evt_A"),
			event("B", "B", stripe("evt_B", "customer.updated", "cus_1", "active")),
		}},
		{"U05", "c Stripe, by event", webhookkey.Stripe(), []Message{
			event("C", "C", stripe("evt_C", "invoice.paid", "in_1", "paid")),
			event("D", "D", stripe("evt_D", "invoice.paid", "in_1", "paid")),
		}},
		{"U05", "c Stripe, by object", webhookkey.StripeObject("status"), []Message{
			event("C", "1", stripe("evt_C", "invoice.paid", "in_1", "paid")).is("platform:invoice.paid:in_1:paid"),
			event("D", "1", stripe("evt_D", "invoice.paid", "in_1", "paid")),
			event("another state", "2", stripe("evt_E", "invoice.paid", "in_1", "open")),
		}},
		// The scope makes two records of one key: two cases, one run in each.
		{"U05", "d Shopify in invoice", scoped("invoice"), []Message{event("E1", "1", shopify), event("E1 again", "1", shopify)}},
		{"U05", "d Shopify in crm", scoped("crm"), []Message{event("E1", "1", shopify)}},
		{"U05", "e positions", keyfn.Template("{header:topic}/{header:partition}@{header:offset}"), []Message{
			event("0@41", "0", body("", "topic", "orders", "partition", "0", "offset", "41")).is("orders/0@41"),
			event("1@41", "1", body("", "topic", "orders", "partition", "1", "offset", "41")),
			event("slash in a topic", "2", body("", "topic", "orders/1", "partition", "0", "offset", "41")).is("orders%2F1/0@41"),
		}},
		{"U05", "f tenants", keyfn.Template("{header:tenant}:order:{orderId}"), []Message{
			event("t-1", "1", body(`{"orderId":"1001"}`, "tenant", "t-1")), event("t-2", "2", body(`{"orderId":"1001"}`, "tenant", "t-2")),
			noKey("no tenant", keyfn.ErrMissing, body(`{"orderId":"1001"}`)),
		}},
		{"U05", "g recipients", keyfn.Join(keyfn.JSON("to"), keyfn.JSON("dedupe")), []Message{
			event("wf-1", "1", body(`{"to":"wf-1","dedupe":"d"}`)), event("wf-2", "2", body(`{"to":"wf-2","dedupe":"d"}`)),
			event("a colon", "3", body(`{"to":"wf-1:d","dedupe":"e"}`)), event("a colon elsewhere", "4", body(`{"to":"wf-1","dedupe":"d:e"}`)),
		}},
	}
}

// U13: what a fingerprint is made of.
func fingerprints() []Case {
	return []Case{{"U13", "fingerprint", keyfn.Hash(keyfn.Strip("sentAt")), []Message{
		event("A", "A", body(`{"batch":1,"records":100,"sentAt":"10:00:00Z"}`)),
		event("A2", "A", body(`{"batch":1,"records":100,"sentAt":"10:07:00Z"}`)),
		event("B", "B", body(`{"batch":2,"records":100,"sentAt":"10:05:00Z"}`)),
	}}, {"U13", "fingerprint of named fields", keyfn.Hash(keyfn.Keep("batch", "records")), []Message{
		event("A", "A", body(`{"batch":1,"records":100,"sentAt":"10:00:00Z"}`)),
		event("A2", "A", body(`{"batch":1,"records":100,"sentAt":"10:07:00Z"}`)),
		event("B", "B", body(`{"batch":2,"records":100,"sentAt":"10:05:00Z"}`)),
	}}}
}

// U19 and U20: slots and windows.
func slots() []Case {
	slot := func(s string) keyfn.Message { return body(`{"fixed":"true","slot":"2026-09-14T` + s + `Z"}`) }
	send := func(who, at string) keyfn.Message {
		return body(`{"notify":"` + who + `","subject":"task-9","at":"2026-09-14T` + at + `Z"}`)
	}
	return []Case{
		{"U19", "report every 15 minutes", keyfn.Join(keyfn.Literal("report:digest"), keyfn.Every(15*time.Minute, keyfn.JSON("slot"))), []Message{
			event("replica A", "12:15", slot("12:15:00")), event("replica B", "12:15", slot("12:15:00.000")), event("replica C, late", "12:15", slot("12:15:00.7")),
			event("next slot", "12:30", slot("12:30:00")), event("catching up", "12:45", slot("12:45:00")),
		}},
		{"U20", "collapse", keyfn.Collapse(10*time.Minute, keyfn.JSON("at"), keyfn.JSON("notify"), keyfn.JSON("subject")), []Message{
			event("n-1", "1", send("u-5", "10:00:00")), event("n-2", "1", send("u-5", "10:04:00")), event("n-3", "1", send("u-5", "10:09:59")),
			event("n-4 on the border", "2", send("u-5", "10:10:00")), event("n-5", "3", send("u-5", "10:21:40")),
			event("n-2 redelivered late", "1", send("u-5", "10:04:00")), event("another recipient", "4", send("u-6", "10:04:00")),
		}},
	}
}

// U34: ids that change on every try, and hashes that match too easily.
func volatiles() []Case {
	const mail = `{"user":{"id":"u-1"},"email_data":{"token":"483920","token_hash":"h1"},"metadata":{"uuid":"6a","time":"10:00:00Z"}}`
	again := strings.NewReplacer("6a", "7b", "10:00", "10:01").Replace(mail)
	const comment = `{"action":"created","comment":{"id":991},"repository":{"id":135493233}}`
	github := func(guid string, names ...string) keyfn.Message {
		name := "X-GitHub-Delivery"
		if len(names) > 0 {
			name = names[0]
		}
		return body(comment, name, guid, "X-GitHub-Event", "issue_comment")
	}
	const guid, other = "72d3162e-0000-11e3-81ab-4c9367dc0958", "83e4273f-0000-11e3-81ab-4c9367dc0958"
	const heartbeat = `{"kind":"rotation","status":"ok"}`
	return []Case{
		{"U34", "1 mail, hash", keyfn.Hash(keyfn.Strip("metadata")), []Message{
			event("1", "1", body(mail, "webhook-id", "msg_a")), event("1r", "1", body(mail, "webhook-id", "msg_b")), event("1 with other metadata", "1", body(again)),
		}},
		{"U34", "1 mail, fields", keyfn.Join(keyfn.JSON("user.id"), keyfn.JSON("email_data.token_hash")), []Message{
			event("1", "1", body(mail, "webhook-id", "msg_a")).is("u-1:h1"), event("1r", "1", body(again, "webhook-id", "msg_b")),
		}},
		{"U34", "2 GitHub, delivery", webhookkey.GitHub(), []Message{
			event("2", "1", github(guid)).is(guid), event("2r", "1", github(guid)), event("lower case", "1", github(guid, "x-github-delivery")), event("2h another hook", "2", github(other)),
		}},
		{"U34", "2 GitHub, event", webhookkey.GitHubEvent("action", "comment.id"), []Message{
			event("2", "1", github(guid)).is("issue_comment:#135493233:created:#991"), event("2h another hook", "1", github(other)),
		}},
		{"U34", "3 pointer, hash", keyfn.Hash(keyfn.Everything()), []Message{ //keylint:ignore nothing is hashed
			noKey("3", keyfn.ErrUnresolved, body(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"big","s3Key":"b03530d9-0000-493b-a48e-3e1ea969bf1d"}]`)),
			noKey("3 older name", keyfn.ErrUnresolved, body(`["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"big","s3Key":"b03530d9"}]`)),
			noKey("3b object", keyfn.ErrUnresolved, body(`{"s3BucketName":"big","s3Key":"b03530d9"}`)),
		}},
		{"U34", "3 pointer, path", keyfn.JSON("1.s3Key"), []Message{
			noKey("3", keyfn.ErrUnresolved, body(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"big","s3Key":"b03530d9"}]`)),
		}},
		{"U34", "4 metering", keyfn.Hash(keyfn.Strip("trace_id")), []Message{
			event("4", "1", body(`{"outcome":"accepted","org":5,"qty":1,"ts":"10:00:00Z","trace_id":"t1"}`)),
			event("4 reprocessed", "1", body(`{"outcome":"accepted","org":5,"qty":1,"ts":"10:00:00Z","trace_id":"t2"}`)),
			event("another time", "2", body(`{"outcome":"accepted","org":5,"qty":1,"ts":"10:00:01Z","trace_id":"t1"}`)),
		}},
		{"U34", "5 heartbeats", keyfn.Hash(keyfn.Everything()), []Message{ //keylint:ignore the case shows the trap
			event("5", "1", body(heartbeat)), event("5 another one", "1", body(heartbeat)),
		}},
		{"U34", "strip everything", keyfn.Hash(keyfn.Strip("kind", "status")), []Message{
			noKey("5", keyfn.ErrNothingLeft, body(heartbeat)),
		}},
		{"U34", "nested arrays", keyfn.Hash(keyfn.Strip("groups.*.lines.*.updated_at")), []Message{
			event("first", "1", body(`{"groups":[{"lines":[{"id":1,"updated_at":1},{"id":2,"updated_at":1}]}]}`)),
			event("again", "1", body(`{"groups":[{"lines":[{"id":1,"updated_at":2},{"id":2,"updated_at":3}]}]}`)),
			event("another line", "2", body(`{"groups":[{"lines":[{"id":1,"updated_at":1},{"id":3,"updated_at":1}]}]}`)),
		}},
	}
}
