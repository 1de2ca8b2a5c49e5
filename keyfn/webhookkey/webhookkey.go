// Package webhookkey has the keys of webhooks that a relay has put on a queue:
// Stripe, GitHub, Shopify, Slack and Twilio.
//
// A vendor's id of the event is a good key where the vendor keeps it over its
// retries. Ids of a delivery (webhook-id in some relays, X-Shopify-Webhook-Id)
// are not; build the key of such a webhook from its content.
//
// Verify signatures before a message reaches the queue: a key is only as
// trustworthy as the fields it is made of.
package webhookkey

import (
	"strings"

	"github.com/secondrun/secondrun/keyfn"
)

// Stripe gives the id of a Stripe event, "evt_1Qz0A1". It is the same on every
// retry. The request id is not: one request makes several events. A body that
// is no event, of either version of the API, is [keyfn.ErrMalformed].
//
// Stripe now and then makes two events of one change; then this is two keys.
// [StripeObject] is one.
func Stripe() keyfn.Func {
	return keyfn.Part("Stripe", "id", func(m keyfn.Message) (string, error) {
		if err := stripeEvent(m); err != nil {
			return "", err
		}
		return keyfn.JSON("id")(m)
	})
}

// StripeObject gives what a Stripe event says, for handlers to which two events
// of one change are one: the account ("platform" for one's own), the type, the
// id of the object and the values at these paths of the object, which should be
// those that the handler acts on:
//
//	webhookkey.StripeObject("payment_status")
//
// is "platform:checkout.session.completed:cs_live_a1:paid". An object that
// returns to an earlier state has that state's key again and is not handled.
func StripeObject(paths ...string) keyfn.Func {
	parts := []keyfn.Func{
		keyfn.First(keyfn.JSON("account"), keyfn.Literal("platform")),
		keyfn.JSON("type"), keyfn.JSON("data.object.id"),
	}
	for _, p := range paths {
		parts = append(parts, keyfn.JSON("data.object."+p))
	}
	key := keyfn.Join(parts...)
	return keyfn.Part("StripeObject", strings.Join(paths, ","), func(m keyfn.Message) (string, error) {
		if err := stripeEvent(m); err != nil {
			return "", err
		}
		return key(m)
	})
}

func stripeEvent(m keyfn.Message) error {
	v, err := keyfn.Fields(m.Body(), "object")
	if err == nil && v[0].Text() != "event" && v[0].Text() != "v2.core.event" {
		err = &keyfn.Error{Builder: "Stripe", Path: "object", Reason: keyfn.ErrMalformed}
	}
	return err
}

// header reads a header that relays spell as sent, in lower case, or in Go's
// canonical form.
func header(name, goName string) keyfn.Func {
	return keyfn.AnyHeader(name, strings.ToLower(name), goName)
}

// GitHub gives the X-GitHub-Delivery of a webhook, a GUID that a redelivery,
// automatic or by hand, keeps. The same event through a second webhook has
// another one; see [GitHubEvent].
func GitHub() keyfn.Func { return header("X-GitHub-Delivery", "X-Github-Delivery") }

// GitHubEvent gives what a webhook says, whichever webhook it came through: the
// event of the X-GitHub-Event header, the id of the repository and the values
// at these paths:
//
//	webhookkey.GitHubEvent("action", "comment.id")
//
// is "issue_comment:#135493233:created:#991". Name enough to tell two events
// apart; a pull request is synchronized many times, each with another
// pull_request.head.sha. It panics without paths.
func GitHubEvent(paths ...string) keyfn.Func {
	if len(paths) == 0 {
		panic("webhookkey: GitHubEvent: no paths")
	}
	parts := []keyfn.Func{header("X-GitHub-Event", "X-Github-Event"), keyfn.JSON("repository.id")}
	for _, p := range paths {
		parts = append(parts, keyfn.JSON(p))
	}
	return keyfn.Join(parts...)
}

// Shopify gives shop, topic and X-Shopify-Event-Id of a webhook. The event id
// is one for each change and shared by all topics and subscriptions it causes;
// handlers of several subscriptions need a scope each. X-Shopify-Webhook-Id is
// one for each target and is not read.
func Shopify() keyfn.Func {
	const p = "X-Shopify-"
	return keyfn.Join(
		header(p+"Shop-Domain", p+"Shop-Domain"),
		header(p+"Topic", p+"Topic"),
		header(p+"Event-Id", p+"Event-Id"))
}

// Slack gives the event_id of an Events API callback, which Slack keeps over
// retries. The check of a new URL is [keyfn.ErrSkip]; any other type of body is
// [keyfn.ErrMalformed].
func Slack() keyfn.Func {
	return keyfn.Part("Slack", "event_id", func(m keyfn.Message) (string, error) {
		v, err := keyfn.Fields(m.Body(), "type")
		if err != nil {
			return "", err
		}
		switch v[0].Text() {
		case "event_callback":
			return keyfn.JSON("event_id")(m)
		case "url_verification":
			return "", keyfn.ErrSkip
		}
		return "", &keyfn.Error{Builder: "Slack", Path: "type", Reason: keyfn.ErrMalformed}
	})
}

// Twilio gives MessageSid and MessageStatus of a status callback, a form body:
// the sid alone names the message, whose every status is an event.
func Twilio() keyfn.Func {
	return keyfn.Join(keyfn.Form("MessageSid"), keyfn.Form("MessageStatus"))
}
