package cases

import (
	"strings"

	"github.com/secondrun/secondrun/keyfn"
	"github.com/secondrun/secondrun/keyfn/awskey"
	"github.com/secondrun/secondrun/keyfn/taskkey"
	"github.com/secondrun/secondrun/keyfn/webhookkey"
)

// fixtures are P01 to P14.
func fixtures() []Case {
	return append(awsFixtures(), otherFixtures()...)
}

func awsFixtures() []Case {
	const p01 = `{"MessageId":"0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b","ReceiptHandle":"rh-1","MD5OfBody":"00000000000000000000000000000000","Body":"{\"event\":\"order.paid\",\"orderId\":\"ord-88213\",\"amount\":4200}","Attributes":{"ApproximateReceiveCount":"2","SentTimestamp":"1789380900606","ApproximateFirstReceiveTimestamp":"1789380901000","MessageGroupId":"g-1","SequenceNumber":"18849496460467696128"},"MessageAttributes":{"event_id":{"DataType":"String","StringValue":"ev-70001"},"retry":{"DataType":"Number","StringValue":"3"}}}`
	const p02 = `{"messageId":"0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b","receiptHandle":"rh-1","body":"{\"orderId\":\"ord-88213\"}","attributes":{"ApproximateReceiveCount":"1"},"messageAttributes":{"event_id":{"stringValue":"ev-70001","dataType":"String"}},"eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:eu-west-1:111122223333:orders"}`
	p01Again := strings.NewReplacer("0a1b2c3d", "1b2c3d4e", "rh-1", "rh-2", `Count":"2"`, `Count":"3"`).Replace(p01)
	s3 := func(old, replacement string) keyfn.Message {
		return body(strings.Replace(s3Event, old, replacement, 1))
	}
	const noVersion = `"versionId":"v-1",`
	bridge := `{"version":"0","id":"6f3a0b1c-0000-9bba-4f8a-5f1f2d3c4b5a","detail-type":"PurchaseApproved","source":"com.example.purchases","account":"111122223333","time":"2026-09-14T10:15:00Z","region":"eu-west-1","resources":[],"detail":{"purchaseId":"p-1","amount":1999}}`
	return []Case{
		{"P01", "body", keyfn.In(awskey.SQS, keyfn.JSON("orderId")), []Message{
			event("P01", "1", body(p01)).is("ord-88213"), event("producer sent again", "1", body(p01Again)), event("P02", "1", body(p02)),
			noKey("no record", keyfn.ErrMalformed, body(`{"orderId":"ord-88213"}`)),
		}},
		{"P02", "attribute", keyfn.In(awskey.SQS, keyfn.Header("event_id")), []Message{
			event("P01", "1", body(p01)).is("ev-70001"), event("P02", "1", body(p02)),
		}},
		{"P01", "number in text stays text", keyfn.JSON("Attributes.SequenceNumber"), []Message{
			event("P01", "1", body(p01)).is("18849496460467696128"),
		}},
		{"P03", "S3", awskey.S3(), []Message{
			event("P03", "1", body(s3Event)).is("inbox:red flower.jpg:ObjectCreated:version:v-1"),
			event("sent again", "1", s3("R1", "R2")),
			event("another version", "2", s3("v-1", "v-2")),
			event("another family", "3", s3("ObjectCreated:Put", "ObjectRemoved:Delete")),
			event("another way to create", "1", s3("ObjectCreated:Put", "ObjectCreated:CompleteMultipartUpload")),
			event("without versions", "4", s3(noVersion, "")).is("inbox:red flower.jpg:ObjectCreated:sequencer:d41d8cd98f00b204e9800998ecf8427e:0055AED6DCD90281E5"),
			event("null version", "4", s3(`"v-1"`, `"null"`)),
			event("written again", "5", s3(noVersion+`"sequencer":"0055AED6DCD90281E5"`, `"sequencer":"0055AED6DCD90281E6"`)),
			noKey("two records", keyfn.ErrBatch, body(`{"Records":[`+s3Event[len(`{"Records":[`):len(s3Event)-2]+`,{}]}`)),
			noKey("test event", keyfn.ErrSkip, body(`{"Service":"Amazon S3","Event":"s3:TestEvent"}`)),
			noKey("no key", keyfn.ErrMissing, s3(`"key"`, `"yek"`)),
			noKey("bad escape", keyfn.ErrMalformed, s3("red+", "%zz")),
		}},
		{"U23", "EventBridge", keyfn.In(awskey.EventBridge, keyfn.Template("{header:source}:purchase:{purchaseId}")), []Message{
			event("m1", "p-1", body(bridge)).is("com.example.purchases:purchase:p-1"),
			event("m4 producer sent again", "p-1", body(strings.Replace(bridge, "6f3a0b1c", "7a4b1c2d", 1))),
			event("m2", "p-2", body(strings.Replace(bridge, "p-1", "p-2", 1))),
			noKey("no event", keyfn.ErrMalformed, body(`{"purchaseId":"p-1"}`)),
		}},
	}
}

func otherFixtures() []Case {
	const p04 = `{"id":"evt_1Qz0A1","object":"event","api_version":"2026-03-25","created":1789380000,"livemode":true,"pending_webhooks":2,"type":"checkout.session.completed","request":{"id":"req_9","idempotency_key":null},"data":{"object":{"id":"cs_live_a1","object":"checkout.session","payment_status":"paid","amount_total":2000,"metadata":{"workspace":"ws-17"}}}}`
	const p05 = `{"action":"synchronize","number":12,"pull_request":{"id":279147437,"head":{"sha":"ec26c3e57ca3a959ca5aad62de7213c562f8c821"}},"repository":{"id":135493233}}`
	const p06 = `{"id":5726128734520,"updated_at":"2026-09-14T10:15:00-04:00","financial_status":"paid","total_price":"42.00"}`
	shopify := func(id, topic string) keyfn.Message {
		return body(p06, "X-Shopify-Topic", topic, "X-Shopify-Webhook-Id", "w-"+id, "X-Shopify-Event-Id", id, "X-Shopify-Shop-Domain", "example.myshopify.com")
	}
	const p07 = `{"message":{"attributes":{"event_id":"ev-70001"},"data":"eyJvcmRlcklkIjoib3JkLTU1MTIiLCJ2IjozfQ==","messageId":"50932420203550","message_id":"50932420203550","publishTime":"2026-09-14T10:15:00.606Z","publish_time":"2026-09-14T10:15:00.606Z"},"subscription":"projects/p/subscriptions/s"}`
	const p08 = `{"token":"x","team_id":"T1","api_app_id":"A1","type":"event_callback","event_id":"Ev0PV52K21","event_time":1789380900,"event":{"type":"message","channel":"C1","user":"U1","ts":"1789380900.000200","text":"deploy"}}`
	const p11 = `{"body":"W1sib3JkLTg4MjEzIiwgNDIwMF0sIHt9LCB7ImNhbGxiYWNrcyI6IG51bGwsICJlcnJiYWNrcyI6IG51bGwsICJjaGFpbiI6IG51bGwsICJjaG9yZCI6IG51bGx9XQ==","content-encoding":"utf-8","content-type":"application/json","headers":{"lang":"py","task":"billing.remind","id":"7774f2c5-0000-4ebe-9985-22de48ee8c4f","eta":"2026-09-14T19:40:17+00:00","retries":0,"argsrepr":"('ord-88213', 4200)"},"properties":{"correlation_id":"7774f2c5-0000-4ebe-9985-22de48ee8c4f","delivery_tag":"d-1"}}`
	p11Copy := strings.Replace(p11, "d-1", "d-2", 1)
	replaced := func(text, old, replacement string) keyfn.Message {
		return body(strings.Replace(text, old, replacement, 1))
	}
	return []Case{
		{"P04", "Stripe", webhookkey.Stripe(), []Message{
			event("P04", "1", body(p04)).is("evt_1Qz0A1"), event("delivered again", "1", replaced(p04, `webhooks":2`, `webhooks":1`)),
			event("newer version of the API", "2", body(`{"id":"evt_test_65R","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered"}`)),
			noKey("no event", keyfn.ErrMalformed, replaced(p04, `"event"`, `"charge"`)),
			noKey("no id", keyfn.ErrMissing, replaced(p04, `"id"`, `"di"`)),
		}},
		{"P04", "Stripe Connect", webhookkey.StripeObject("payment_status"), []Message{
			event("own", "1", body(p04)).is("platform:checkout.session.completed:cs_live_a1:paid"),
			event("connected", "2", replaced(p04, `{`, `{"account":"acct_1",`)).is("acct_1:checkout.session.completed:cs_live_a1:paid"),
		}},
		{"P05", "GitHub", webhookkey.GitHubEvent("action", "pull_request.id", "pull_request.head.sha"), []Message{
			event("P05", "1", body(p05, "X-GitHub-Event", "pull_request", "X-GitHub-Delivery", "a")),
			event("lower case", "1", body(p05, "x-github-event", "pull_request", "x-github-delivery", "b")),
			event("canonical", "1", body(p05, "X-Github-Event", "pull_request")),
			event("another push", "2", body(strings.Replace(p05, "ec26", "fd37", 1), "X-GitHub-Event", "pull_request")),
			noKey("no event", keyfn.ErrMissing, body(p05)),
		}},
		{"P06", "Shopify", webhookkey.Shopify(), []Message{
			event("P06", "1", shopify("E1", "orders/updated")).is("example.myshopify.com:orders/updated:E1"),
			event("another topic of the change", "2", shopify("E1", "orders/paid")),
			event("another change", "3", shopify("E2", "orders/updated")),
			event("other delivery", "1", body(p06, "x-shopify-topic", "orders/updated", "x-shopify-event-id", "E1", "x-shopify-shop-domain", "example.myshopify.com", "x-shopify-webhook-id", "other")),
		}},
		{"P07", "Pub/Sub data", keyfn.In(taskkey.PubSub, keyfn.JSON("orderId")), []Message{
			event("P07", "1", body(p07)).is("ord-5512"), event("published again", "1", body(strings.NewReplacer("50932420203550", "50932420203999", "00.606", "09.606").Replace(p07))),
			noKey("no push", keyfn.ErrMalformed, body(`{"orderId":"1"}`)),
			noKey("not base64", keyfn.ErrMalformed, replaced(p07, `"eyJv`, `"!`)),
			noKey("no data", keyfn.ErrMissing, replaced(p07, `"data"`, `"atad"`)),
		}},
		{"P07", "Pub/Sub attribute", keyfn.In(taskkey.PubSub, keyfn.Header("event_id")), []Message{
			event("P07", "1", body(p07)).is("ev-70001"),
		}},
		{"P08", "Slack", webhookkey.Slack(), []Message{
			event("P08", "1", body(p08)).is("Ev0PV52K21"), event("retry", "1", body(p08, "X-Slack-Retry-Num", "1", "X-Slack-Retry-Reason", "http_timeout")),
			noKey("check of the URL", keyfn.ErrSkip, body(`{"type":"url_verification","challenge":"c"}`)),
			noKey("another type", keyfn.ErrMalformed, body(`{"type":"x"}`)),
		}},
		{"P08", "Slack time stays text", keyfn.JSON("event.ts"), []Message{event("P08", "1", body(p08)).is("1789380900.000200")}},
		{"P11", "Celery", taskkey.Celery(), []Message{
			event("P11", "1", body(p11)).is("billing.remind:7774f2c5-0000-4ebe-9985-22de48ee8c4f"), event("copy", "1", body(p11Copy)),
		}},
		{"U08", "Celery arguments", keyfn.In(taskkey.CeleryArguments, keyfn.Template("{header:task}:{0.0}:{0.1}")), []Message{
			event("P11", "1", body(p11)).is("billing.remind:ord-88213:#4200"), event("copy", "1", body(p11Copy)),
			event("plain by its encoding", "1", body(`{"body":"[[\"ord-88213\",4200],{},{}]","headers":{"task":"billing.remind"},"properties":{"body_encoding":"utf-8"}}`)),
			noKey("plain that decodes as base64", keyfn.ErrMalformed, body(`{"body":"cGFy","headers":{"task":"billing.remind"},"properties":{"body_encoding":"utf-8"}}`)),
			noKey("not base64", keyfn.ErrMalformed, body(`{"body":"[[1]]","headers":{"task":"billing.remind"}}`)),
		}},
		{"P13", "Asynq", keyfn.Template("email:welcome:{user_id}:{template}"), []Message{
			event("P13", "1", body(`{"user_id":42,"template":"w1"}`)).is("email:welcome:#42:w1"), event("enqueued again", "1", body(`{"template":"w1","user_id":42}`)),
		}},
		{"P14", "Temporal", taskkey.Temporal(), []Message{
			event("P14", "1", body(`{"namespace":"n","workflowId":"wf-1","runId":"r-1","activityId":"5","attempt":2}`)).is("n:wf-1:5"),
			event("next attempt after a reset", "1", body(`{"namespace":"n","workflowId":"wf-1","runId":"r-2","activityId":"5","attempt":3}`)),
		}},
	}
}

// numbersAndTimes are P15 and P16.
func numbersAndTimes() []Case {
	var numbers, texts, times []Message
	for _, n := range [][2]string{
		{`9007199254740993`, "#9007199254740993"},
		{`"9007199254740993"`, "9007199254740993"},
		{`15793596808644609`, "#15793596808644609"},
		{`-0`, "#0"},
		{`1.0`, "#1"},
		{`1e3`, "#1000"},
		{`0.1`, "#0.1"},
		{`123456789012345678901234567890`, "#123456789012345678901234567890"},
	} {
		numbers = append(numbers, event(n[0], n[0], body(`{"id":`+n[0]+`}`)).is(n[1]))
	}
	for _, at := range []string{`"2026-09-14T10:15:00Z"`, `"2026-09-14T10:15:00.000Z"`, `"2026-09-14T12:15:00+02:00"`, `1789380900`, `1789380900000`} {
		texts = append(texts, event(at, at, body(`{"at":`+at+`}`)))
		times = append(times, event(at, "1", body(`{"at":`+at+`}`)).is("20260914T101500Z"))
	}
	return []Case{
		{"P15", "numbers as ids", keyfn.JSON("id"), numbers},
		{"P16", "times as text", keyfn.JSON("at"), texts},
		{"P16", "times as instants", keyfn.Time(keyfn.JSON("at")), times},
	}
}
