package secondrun

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/secondrun/secondrun/store"
)

// Bounds of the histograms. A third of the hold is where sizing becomes wrong,
// so there is a bound at it.
var (
	runSeconds   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	holdRatios   = []float64{.01, .025, .05, .1, .2, .33, .5, .75, 1, 2, 5, 10, 50}
	storeSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	batchItems   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}
)

// instruments are the metrics of one guard. The options of every label are made
// beforehand, so that a measurement allocates nothing of ours.
type instruments struct {
	meter metric.Meter
	scope []metric.ObserveOption // of the gauges

	claims                                                   counter[claimLabel]
	suppressed                                               counter[suppressedLabel]
	runs, omitted, renewals, lost, releases, dead            counter[string]
	takeovers, unrecorded                                    counter[bool] // of an effect
	holdsLost, late, recreated, keyErrors, skipped, failOpen counter[none]
	duration, ratio                                          histogram[string]
	storeDuration                                            histogram[storeLabel]
	storeBatch                                               counts
	breaker, active                                          metric.Int64ObservableGauge
}

type (
	none       struct{}
	claimLabel struct {
		verdict store.Verdict // zero: unavailable
		effect  bool
	}
	suppressedLabel struct {
		verdict  store.Verdict
		observed bool
	}
	storeLabel struct {
		op     string
		failed bool
	}
)

// Values of labels.
const (
	outcomeSucceeded  = "succeeded"
	outcomeFailed     = "failed"
	outcomeTransient  = "transient"
	outcomeReleased   = "released"
	outcomeLost       = "lost"
	outcomeUnrecorded = "unrecorded"

	renewalOK, renewalFailed, renewalLost             = "ok", "failed", "lost"
	causeExpired, causeRuntime                        = "lease", "max-runtime"
	releasedByRun, releasedUnstarted, releasedUnknown = "run", "unstarted", "unknown"
	omittedTooLarge, omittedEncoding                  = "too-large", "not-encodable"
	deadFailed, deadBefore, deadExhausted, deadParked = "failed", "failed-before", "exhausted", "parked"
	deadConflict, deadKey, deadReentrant              = "conflict", "key-error", "re-entrant"
	holdLease, holdBroker                             = "lease", "broker"
	verdictUnavailable                                = "unavailable"
)

func newInstruments(m metric.Meter, label string) *instruments {
	b := builder{m, attribute.String(labelScope, label)}
	i := &instruments{
		meter: m,
		scope: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(b.scope))},

		duration:      newHistogram(b, metricRunDuration, "s", "How long handlers ran", runSeconds, labelled(labelOutcome, outcomes...)),
		ratio:         newHistogram(b, metricHoldRatio, "1", "Duration of the run divided by what holds it: a third is where a stalled renewal becomes a second run", holdRatios, labelled(labelHold, holdLease, holdBroker)),
		storeDuration: newHistogram(b, metricStoreDuration, "s", "How long calls of the store took", storeSeconds, storeLabels()),
		storeBatch:    newCounts(b),
	}
	b.counters(i)
	var err error
	if i.breaker, err = m.Int64ObservableGauge(metricBreaker, metric.WithDescription("1 while the store is taken to be away and nothing is received")); err != nil {
		otel.Handle(err)
	}
	if i.active, err = m.Int64ObservableGauge(metricActive, metric.WithUnit("{lease}"), metric.WithDescription("Leases that this process renews")); err != nil {
		otel.Handle(err)
	}
	return i
}

var outcomes = []string{outcomeSucceeded, outcomeFailed, outcomeTransient, outcomeReleased, outcomeLost, outcomeUnrecorded}

func (b builder) counters(i *instruments) {
	i.claims = newCounter(b, metricClaims, "{claim}", "Answers of the store to claims", claimLabels())
	i.suppressed = newCounter(b, metricSuppressed, "{delivery}", "Deliveries that did not run since an outcome is known", suppressedLabels())
	i.runs = newCounter(b, metricRuns, "{run}", "Runs of handlers by what became of them", labelled(labelOutcome, outcomes...))
	i.renewals = newCounter(b, metricRenewals, "{renewal}", "Renewals of leases", labelled(labelResult, renewalOK, renewalFailed, renewalLost))
	i.lost = newCounter(b, metricLeasesLost, "{lease}", "Runs that were cancelled since their lease was over", labelled(labelCause, causeExpired, causeRuntime))
	i.releases = newCounter(b, metricReleases, "{claim}", "Claims given back without an outcome", labelled(labelReason, releasedByRun, releasedUnstarted, releasedUnknown))
	i.omitted = newCounter(b, metricOmitted, "{result}", "Successes recorded without their result", labelled(labelReason, omittedTooLarge, omittedEncoding))
	i.dead = newCounter(b, metricDead, "{delivery}", "Deliveries sent the way of the dead letters", labelled(labelReason,
		deadFailed, deadBefore, deadExhausted, deadParked, deadConflict, deadKey, deadReentrant))
	byRecord := map[bool][]attribute.KeyValue{
		false: {attribute.String(labelRecord, "key")}, true: {attribute.String(labelRecord, "effect")},
	}
	i.takeovers = newCounter(b, metricTakeovers, "{claim}", "Grants over an expired lease", byRecord)
	i.unrecorded = newCounter(b, metricUnrecorded, "{outcome}", "Runs that returned and whose outcome could not be recorded", byRecord)
	alone := map[none][]attribute.KeyValue{{}: nil}
	i.holdsLost = newCounter(b, metricHoldsLost, "{hold}", "Runs whose delivery the broker no longer holds for them", alone)
	i.late = newCounter(b, metricLate, "{outcome}", "Outcomes recorded after the lease had ended", alone)
	i.recreated = newCounter(b, metricRecreated, "{record}", "Successes recorded although their record had vanished", alone)
	i.keyErrors = newCounter(b, metricKeyErrors, "{delivery}", "Deliveries without a key", alone)
	i.skipped = newCounter(b, metricSkipped, "{delivery}", "Deliveries in which there was nothing to handle", alone)
	i.failOpen = newCounter(b, metricFailOpen, "{run}", "Runs without a claim since the store was away", alone)
}

// zero makes all counters known.
func (i *instruments) zero(ctx context.Context) {
	i.claims.zero(ctx)
	i.suppressed.zero(ctx)
	for _, c := range []*counter[string]{&i.runs, &i.omitted, &i.renewals, &i.lost, &i.releases, &i.dead} {
		c.zero(ctx)
	}
	for _, c := range []*counter[bool]{&i.takeovers, &i.unrecorded} {
		c.zero(ctx)
	}
	for _, c := range []*counter[none]{&i.holdsLost, &i.late, &i.recreated, &i.keyErrors, &i.skipped, &i.failOpen} {
		c.zero(ctx)
	}
}

func claimLabels() map[claimLabel][]attribute.KeyValue {
	all := map[claimLabel][]attribute.KeyValue{}
	for v := store.Verdict(0); v <= store.Refused; v++ {
		name := v.String()
		if v == 0 {
			name = verdictUnavailable
		}
		for record, effect := range map[string]bool{"key": false, "effect": true} {
			all[claimLabel{v, effect}] = []attribute.KeyValue{attribute.String(labelVerdict, name), attribute.String(labelRecord, record)}
		}
	}
	return all
}

func suppressedLabels() map[suppressedLabel][]attribute.KeyValue {
	all := map[suppressedLabel][]attribute.KeyValue{}
	for _, v := range []store.Verdict{store.Done, store.Failed, store.Exhausted, store.Conflict} {
		for mode, observed := range map[string]bool{"enforce": false, "observe": true} {
			all[suppressedLabel{v, observed}] = []attribute.KeyValue{attribute.String(labelVerdict, v.String()), attribute.String(labelMode, mode)}
		}
	}
	return all
}

func storeLabels() map[storeLabel][]attribute.KeyValue {
	all := map[storeLabel][]attribute.KeyValue{}
	for _, op := range []string{"claim", "renew", "settle", "ping"} {
		for result, failed := range map[string]bool{"ok": false, "error": true} {
			all[storeLabel{op, failed}] = []attribute.KeyValue{attribute.String(labelOp, op), attribute.String(labelResult, result)}
		}
	}
	return all
}

func labelled(name string, values ...string) map[string][]attribute.KeyValue {
	all := make(map[string][]attribute.KeyValue, len(values))
	for _, v := range values {
		all[v] = []attribute.KeyValue{attribute.String(name, v)}
	}
	return all
}

// event counts what happened. It must not keep e.
func (t *telemetry) event(ctx context.Context, e *Event) {
	if t == nil {
		return
	}
	switch e.Kind {
	case EventVerdict:
		t.claims.add(ctx, claimLabel{e.Verdict, e.ID.Effect != ""}, 1)
		if e.Takeover {
			t.takeovers.add(ctx, e.ID.Effect != "", 1)
		}
	case EventSuppressed, EventWouldSuppress: // what is only busy is no duplicate: the counter has no label for it
		t.suppressed.add(ctx, suppressedLabel{e.Verdict, e.Kind == EventWouldSuppress}, 1)
	case EventSettled:
		if e.Late {
			t.late.add(ctx, none{}, 1)
		}
		if e.Kept == store.Release && e.Code == store.OK {
			t.releases.add(ctx, releasedByRun, 1)
		}
	case EventUnrecorded:
		t.unrecorded.add(ctx, e.ID.Effect != "", 1)
	case EventRecreated:
		t.recreated.add(ctx, none{}, 1)
	case EventResultOmitted:
		t.omitted.add(ctx, omittedLabel(e.Reason), 1)
	case EventLeaseLost:
		t.lost.add(ctx, lostLabel(e.Err), 1)
	case EventHoldLost:
		t.holdsLost.add(ctx, none{}, 1)
	case EventKeyError:
		t.keyErrors.add(ctx, none{}, 1)
	case EventSkipped:
		t.skipped.add(ctx, none{}, 1)
	case EventFailOpen:
		t.failOpen.add(ctx, none{}, 1)
	case EventStoreCall:
		t.storeDuration.record(ctx, storeLabel{e.Op, e.Err != nil}, e.Duration.Seconds())
		if e.Batch > 0 {
			t.storeBatch.record(ctx, e.Op, int64(e.Batch))
		}
	}
}

func omittedLabel(reason string) string {
	if strings.HasPrefix(reason, notEncodable) {
		return omittedEncoding
	}
	return omittedTooLarge
}

const notEncodable = "not encodable"

func lostLabel(cause error) string {
	if errors.Is(cause, ErrMaxRuntime) {
		return causeRuntime
	}
	return causeExpired
}

// unanswered counts a claim that the store did not answer.
func (t *telemetry) unanswered(ctx context.Context, effect bool) {
	if t != nil {
		t.claims.add(ctx, claimLabel{effect: effect}, 1)
	}
}

// renewed counts the answers to one call of renewals.
func (t *telemetry) renewed(errs []error) {
	if t == nil {
		return
	}
	ctx := context.Background()
	var ok, failed, lost int64
	for _, err := range errs {
		switch {
		case err == nil:
			ok++
		case isGone(err):
			lost++
		default:
			failed++
		}
	}
	t.renewals.add(ctx, renewalOK, ok)
	t.renewals.add(ctx, renewalFailed, failed)
	t.renewals.add(ctx, renewalLost, lost)
}

// released counts a claim that was given back before it ran.
func (t *telemetry) released(reason string) {
	if t != nil {
		t.releases.add(context.Background(), reason, 1)
	}
}

// ran records a run that has ended.
func (t *telemetry) ran(ctx context.Context, d *Decision, took, lease time.Duration) {
	if t == nil {
		return
	}
	outcome := outcomeOf(d)
	t.runs.add(ctx, outcome, 1)
	t.duration.record(ctx, outcome, took.Seconds())
	if lease > 0 {
		t.ratio.record(ctx, holdLease, took.Seconds()/lease.Seconds())
	}
}

// outcomeOf names what became of a run.
func outcomeOf(d *Decision) string {
	switch {
	case d.Action == Ack:
		return outcomeSucceeded
	case d.Action == Leave:
		return outcomeUnrecorded
	case d.Action == DeadLetter:
		return outcomeFailed
	case d.Failed:
		return outcomeTransient
	case errors.Is(d.Err, ErrLeaseLost):
		return outcomeLost
	}
	return outcomeReleased
}

// decided counts what goes the way of the dead letters.
func (t *telemetry) decided(ctx context.Context, d *Decision) {
	if t != nil && d.Action == DeadLetter {
		t.dead.add(ctx, deadReason(d), 1)
	}
}

func deadReason(d *Decision) string {
	switch err := d.Err; {
	case d.Ran:
		return deadFailed
	case errors.Is(err, ErrExhausted):
		return deadExhausted
	case errors.Is(err, ErrParked):
		return deadParked
	case errors.Is(err, ErrConflict):
		return deadConflict
	case errors.Is(err, ErrKey):
		return deadKey
	case errors.Is(err, ErrReentrant):
		return deadReentrant
	}
	return deadBefore
}

// leases counts the leases that are renewed.
func (h *heartbeat) leases() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int64(0)
	for b := range h.beats {
		if _, ok := b.value.(*store.Lease); ok {
			n++
		}
	}
	return n
}

// unregister ends a callback with its engine.
func unregister(e *engine, reg metric.Registration) {
	runtime.AddCleanup(e, func(reg metric.Registration) { _ = reg.Unregister() }, reg)
}
