package cases

import (
	"strconv"
	"strings"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	"github.com/secondrun/secondrun/keyfn/cdckey"
	"github.com/secondrun/secondrun/keyfn/cekey"
)

// U01: JSON inside a JSON string.
func envelopes() []Case {
	const order = `{"event":"order.paid","orderId":"ord-88213","amount":4200}`
	wrap := func(message string) string {
		return `{"Type":"Notification","MessageId":"5b1c9f0e-2d0a-5c11-9a7e-c1f0aa7712d4","TopicArn":"arn:aws:sns:eu-west-1:111122223333:orders","Message":` +
			strconv.Quote(message) + `,"Timestamp":"2026-09-14T10:15:00.606Z","SignatureVersion":"1","Signature":"AAAA==","SigningCertURL":"https://sns.example/cert.pem","UnsubscribeURL":"https://sns.example/unsub","MessageAttributes":{"event_id":{"Type":"String","Value":"ev-70001"}}}`
	}
	a := body(wrap(order))
	a2 := body(strings.NewReplacer("5b1c9f0e", "6c2d0a1f", "00.606Z", "07.100Z", "AAAA==", "BBBB==").Replace(wrap(order)))
	b := body(order, "event_id", "ev-70001")
	d := body(`{"Type":"Notification","Message":"hello","orderId":"ord-1","event":"x"}`)
	e, f := body(wrap("plain text")), body(wrap(""))
	s3 := body(wrap(s3Event))
	return []Case{
		{"U01", "fields of the body", keyfn.In(awskey.SNS, keyfn.Template("{event}:{orderId}")), []Message{
			event("A wrapped", "1", a).is("order.paid:ord-88213"),
			event("A2 published again", "1", a2),
			event("B raw", "1", b),
			event("D looks like an envelope", "2", d).is("x:ord-1"),
			noKey("E plain text", keyfn.ErrMalformed, e),
			noKey("F empty", keyfn.ErrMissing, f),
		}},
		{"U01", "attribute", keyfn.In(awskey.SNS, keyfn.Header("event_id")), []Message{
			event("A wrapped", "1", a).is("ev-70001"),
			event("A2 published again", "1", a2),
			event("B raw", "1", b),
			noKey("D has no attributes", keyfn.ErrMissing, d),
		}},
		{"U01", "hash", keyfn.In(awskey.SNS, keyfn.Hash(keyfn.Strip("sentAt"))), []Message{
			event("A wrapped", "1", a),
			event("A2 published again", "1", a2),
			event("B raw", "1", b),
			noKey("E plain text", keyfn.ErrMalformed, e),
			noKey("F empty", keyfn.ErrMissing, f),
		}},
		{"U01", "S3 behind SNS", keyfn.In(awskey.SNS, awskey.S3()), []Message{
			event("C wrapped", "1", s3).is("inbox:red flower.jpg:ObjectCreated:version:v-1"),
			event("C raw", "1", body(s3Event)),
		}},
	}
}

const s3Event = `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"eu-west-1","eventTime":"2026-09-14T10:15:00.000Z","eventName":"ObjectCreated:Put","userIdentity":{"principalId":"AWS:X"},"requestParameters":{"sourceIPAddress":"192.0.2.7"},"responseElements":{"x-amz-request-id":"R1","x-amz-id-2":"H1"},"s3":{"s3SchemaVersion":"1.0","configurationId":"cfg","bucket":{"name":"inbox","ownerIdentity":{"principalId":"O"},"arn":"arn:aws:s3:::inbox"},"object":{"key":"red+flower.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e","versionId":"v-1","sequencer":"0055AED6DCD90281E5"}}}]}`

// U22: change data capture, and P09.
func rows() []Case {
	const id = "406c07f3-26f0-4eea-a50c-109940064b8f"
	const router = `{"orderId":1,"total":69.97}`
	row := `{"id":"` + id + `","aggregatetype":"order","aggregateid":"1","type":"OrderPaid","payload":"{\"orderId\":1,\"total\":69.97}"}`
	const source = `{"connector":"postgresql","db":"shop","schema":"public","table":"outbox","txId":560,"lsn":23493504,"snapshot":"false","ts_ms":1789380000100}`
	raw := `{"before":null,"after":` + row + `,"source":` + source + `,"op":"c","ts_ms":1789380000321}`
	avro := strings.NewReplacer(
		`"after":`+row, `"after":{"shop.public.outbox.Value":`+row+`}`,
		`"lsn":23493504`, `"lsn":{"long":23493504}`, `"ts_ms":1789380000321`, `"ts_ms":{"long":1789380000321}`).Replace(raw)
	snapshot := strings.NewReplacer(`"op":"c"`, `"op":"r"`, `"snapshot":"false"`, `"snapshot":"last"`, `000321`, `999999`).Replace(raw)
	deleted := `{"before":` + row + `,"after":null,"source":` + source + `,"op":"d","ts_ms":1789380000999}`
	update := func(lsn, op string) keyfn.Message {
		r := strings.Replace(source, "outbox", "orders", 1)
		r = strings.Replace(r, "23493504", lsn, 1)
		return body(`{"before":null,"after":{"id":1001,"state":"paid"},"source":` + r + `,"op":"` + op + `","ts_ms":` + lsn + `}`)
	}
	return []Case{
		{"U22", "outbox", cdckey.Outbox(), []Message{
			event("1 router", "1", body(router, "id", id)).is(id),
			event("2 raw", "1", body(raw)),
			event("3 schema and payload", "1", body(`{"schema":{"type":"struct"},"payload":`+raw+`}`)),
			event("4 Avro-JSON", "1", body(avro)),
			event("5 snapshot", "1", body(snapshot)),
			event("6 replay", "1", body(strings.Replace(raw, "000321", "000777", 1))),
			noKey("7 row cleanup", keyfn.ErrSkip, body(deleted)),
			noKey("8 tombstone", keyfn.ErrSkip, body("")),
			noKey("8 tombstone as null", keyfn.ErrSkip, body("null")),
			noKey("8 tombstone with schema", keyfn.ErrSkip, body(`{"schema":null,"payload":null}`)),
			event("9 header twice", "1", body(router, "id", id, "id", id)),
			event("flattened", "1", body(strings.Replace(row, "{", `{"__op":"c","__deleted":"false",`, 1))),
			noKey("flattened and deleted", keyfn.ErrSkip, body(strings.Replace(row, "{", `{"__deleted":"true",`, 1))),
			noKey("two ids", keyfn.ErrAmbiguous, body(router, "id", id, "id", "other")),
			noKey("row without id", keyfn.ErrMissing, body(strings.Replace(raw, `"id"`, `"di"`, 1))),
			noKey("null id", keyfn.ErrNull, body(strings.Replace(raw, `"`+id+`"`, `null`, 1))),
			event("another row", "2", body(strings.Replace(raw, "406c", "507d", 1))),
		}},
		{"U22", "any table", cdckey.Row("id"), []Message{
			event("create", "1", update("100", "c")).is("shop:public:orders:c:#1001:lsn:#100"),
			event("create again", "1", update("100", "c")),
			event("update", "2", update("200", "u")),
			event("another update", "3", update("300", "u")),
			event("delete", "4", body(deleted[:1]+`"x":1,`+deleted[1:])),
			event("avro", "5", body(avro)),
			event("raw of the same", "5", body(raw)),
			noKey("tombstone", keyfn.ErrSkip, body("")),
			noKey("no position", keyfn.ErrMissing, body(strings.Replace(raw, `"lsn"`, `"nope"`, 1))),
		}},
	}
}

// U32: CloudEvents on Kafka, and P10.
func cloudEvents() []Case {
	const data = `{"orderId":"o-1"}`
	binary := func(extra ...string) keyfn.Message {
		return body(data, append([]string{"ce_specversion", "1.0", "ce_type", "order.paid"}, extra...)...)
	}
	const structured = `{"specversion":"1.0","id":"100","source":"/shop/web","type":"order.paid","data":{"orderId":"o-1"}}`
	web := func(extra ...string) keyfn.Message {
		return binary(append([]string{"ce_id", "100", "ce_source", "/shop/web"}, extra...)...)
	}
	http := body(data, "ce-specversion", "1.0", "ce-id", "100", "ce-source", "/shop/web")
	const jsonType, ceType = "application/json", "application/cloudevents+json; charset=UTF-8"
	messages := []Message{
		event("1 binary", "web", web("content-type", jsonType)).is("/shop/web:100"),
		event("2 structured", "web", body(structured, "content-type", ceType)),
		event("3 binary without content-type", "web", web()),
		event("4 structured without content-type", "web", body(structured)),
		event("5 datacontenttype", "web", web("ce_datacontenttype", jsonType)),
		event("6 another source", "lms", binary("content-type", jsonType, "ce_id", "100", "ce_source", "/shop/lms")),
		noKey("7 no source", keyfn.ErrMissing, binary("content-type", jsonType, "ce_id", "100")),
		event("8 id twice", "web", web("ce_id", "100")),
		noKey("9 two ids", keyfn.ErrAmbiguous, web("ce_id", "101")),
		noKey("10 HTTP spelling", keyfn.ErrMissing, http),
		noKey("11 batch", keyfn.ErrBatch, body(`[`+structured+`,`+structured+`]`, "content-type", "application/cloudevents-batch+json")),
		event("12 other attributes", "web", web("content-type", jsonType, "ce_traceparent", "00-1", "ce_time", "2026-09-14T10:16:00Z")),
		event("13 Content-Type", "web", body(structured, "Content-Type", strings.ToUpper(ceType))),
		noKey("another format", keyfn.ErrMalformed, body(structured, "content-type", "application/cloudevents+avro")),
		noKey("structured without source", keyfn.ErrMissing, body(`{"specversion":"1.0","id":"100"}`, "content-type", ceType)),
		noKey("structured with a number as id", keyfn.ErrType, body(`{"specversion":"1.0","id":100,"source":"/shop/web"}`, "content-type", ceType)),
		noKey("no event", keyfn.ErrMissing, body(data)),
	}
	return []Case{
		{"U32", "source and id", cekey.Key(), messages},
		{"U32", "HTTP spelling by option", cekey.HTTPKey(), []Message{
			event("10 HTTP spelling", "web", http).is("/shop/web:100"),
			event("structured", "web", body(structured, "content-type", ceType)),
			event("encoded", "space", body(data, "ce-id", "100", "ce-source", "/a%20b")).is("/a b:100"),
			noKey("1 Kafka spelling", keyfn.ErrMissing, web()),
		}},
		{"U32", "data", keyfn.In(cekey.Event, keyfn.JSON("orderId")), []Message{
			event("1 binary", "1", web()).is("o-1"),
			event("2 structured", "1", body(structured)),
			event("base64", "1", body(`{"specversion":"1.0","id":"100","source":"/shop/web","data_base64":"eyJvcmRlcklkIjoiby0xIn0="}`)),
		}},
	}
}
