package secondrun

// Names of everything that telemetry shows, in one place: spans, attributes and
// metrics. They are part of the interface: dashboards and rules are written
// against them.
const scopeName = "github.com/secondrun/secondrun"

// Spans.
const (
	spanClaim = "secondrun.claim"
	spanRun   = "secondrun.run"
	spanStore = "secondrun.store." // and the operation

	spanEventLeaseLost = "secondrun.lease.lost"
	spanEventHoldLost  = "secondrun.hold.lost"
)

// Attributes of spans and of links.
const (
	attrScope     = "secondrun.scope"
	attrVerdict   = "secondrun.verdict"
	attrAttempt   = "secondrun.attempt"         // grants of the key so far, this one included
	attrFence     = "secondrun.fence"           // of the latest grant
	attrTakeover  = "secondrun.takeover"        // granted over an expired lease
	attrRemaining = "secondrun.lease.remaining" // seconds; with busy, of the lease or the wait in the way
	attrKeyHash   = "secondrun.key.hash"
	attrKey       = "secondrun.key" // Telemetry.ReadableKeys only
	attrEffect    = "secondrun.effect"
	attrOutcome   = "secondrun.outcome"
	attrHoldRatio = "secondrun.hold.ratio"
	attrBatch     = "secondrun.store.batch"
	attrErrorType = "error.type"

	attrLink     = "secondrun.link"
	linkMessage  = "message"  // the context that the message carries
	linkReplay   = "replay"   // the run whose outcome answers this delivery
	linkBusy     = "busy"     // the run that is at work, or that waits for its retry
	linkTakeover = "takeover" // the run whose lease ran out
)

// Labels of metrics. Each has few values; none is ever a key, an effect, a
// tenant, a token or an error's text.
const (
	labelScope   = "scope"   // the name given to New
	labelRecord  = "record"  // key, effect
	labelVerdict = "verdict" // of the store, or unavailable
	labelMode    = "mode"    // enforce, observe
	labelOutcome = "outcome"
	labelHold    = "hold" // lease, broker
	labelResult  = "result"
	labelCause   = "cause"
	labelReason  = "reason"
	labelOp      = "op"
	labelState   = "state"
)

// Metrics.
const (
	metricClaims        = "secondrun.claims"
	metricSuppressed    = "secondrun.suppressed"
	metricRuns          = "secondrun.runs"
	metricRunDuration   = "secondrun.run.duration"
	metricHoldRatio     = "secondrun.hold.ratio"
	metricRenewals      = "secondrun.renewals"
	metricLeasesLost    = "secondrun.leases.lost"
	metricHoldsLost     = "secondrun.holds.lost"
	metricTakeovers     = "secondrun.takeovers"
	metricLate          = "secondrun.late.completions"
	metricReleases      = "secondrun.releases"
	metricUnrecorded    = "secondrun.unrecorded"
	metricRecreated     = "secondrun.recreated"
	metricKeyErrors     = "secondrun.key.errors"
	metricSkipped       = "secondrun.skipped"
	metricOmitted       = "secondrun.results.omitted"
	metricDead          = "secondrun.dead.letters"
	metricFailOpen      = "secondrun.fail.open"
	metricStoreDuration = "secondrun.store.duration"
	metricStoreBatch    = "secondrun.store.batch.size"
	metricBreaker       = "secondrun.breaker.open"
	metricActive        = "secondrun.leases.active"
	metricRecords       = "secondrun.store.records"
	metricExpired       = "secondrun.store.expired"
	metricOverdue       = "secondrun.store.claim.overdue"
)
