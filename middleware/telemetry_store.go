package secondrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/secondrun/secondrun/store"
)

// ObserveOptions are the optional settings of [Guard.ObserveStore]. Nil and the
// zero value mean the defaults.
type ObserveOptions struct {
	// Every is the shortest time between two counts: in between, a collection
	// gets the last one. Zero means 1 minute.
	Every time.Duration
	// Timeout limits one count, which a collection waits for. Zero means 5 s.
	Timeout time.Duration
}

// ObserveStore registers gauges about the records of the guard's scope:
// secondrun.store.records by state, secondrun.store.expired (past their
// retention, not removed), and secondrun.store.claim.overdue (how long the
// oldest claim has been nobody's, in seconds). They are labelled with the whole
// scope.
//
// They are never registered without being asked for, since they cost: the store
// looks at every record of the scope each time. A million records
// cost 0.5 s in PostgreSQL, 1.4 s in SQLite, 3 s in Redis, which walks all keys of
// the database, and 0.2 s in memory. One process that asks is enough for all. See
// [store.Counter] and the stores' own documentation.
//
// It is an error when the store does not implement [store.Counter], or when
// telemetry is off. stop ends the gauges.
func (g *Guard) ObserveStore(opt *ObserveOptions) (stop func(), err error) {
	c, ok := g.store.(store.Counter)
	switch {
	case !ok:
		return nil, errors.New("secondrun: the store does not count its records")
	case g.tel == nil:
		return nil, errors.New("secondrun: telemetry is off")
	}
	o := &observer{count: c, scope: g.scope}
	if opt != nil {
		o.ObserveOptions = *opt
	}
	o.Every, o.Timeout = or(o.Every, time.Minute), or(o.Timeout, 5*time.Second)
	reg, err := o.register(g.tel.meter)
	if err != nil {
		return nil, fmt.Errorf("secondrun: gauges of the store: %w", err)
	}
	return func() { _ = reg.Unregister() }, nil
}

// observer counts at most every so often.
type observer struct {
	ObserveOptions
	count store.Counter
	scope string

	mu   sync.Mutex
	at   time.Time
	last store.Stats
}

func (o *observer) register(m metric.Meter) (metric.Registration, error) {
	records, err1 := m.Int64ObservableGauge(metricRecords, metric.WithUnit("{record}"), metric.WithDescription("Records in the store by state"))
	expired, err2 := m.Int64ObservableGauge(metricExpired, metric.WithUnit("{record}"), metric.WithDescription("Records past their retention that are not removed yet"))
	overdue, err3 := m.Float64ObservableGauge(metricOverdue, metric.WithUnit("s"), metric.WithDescription("How long ago the oldest lease ended that nobody has taken over"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	scope := attribute.String(labelScope, o.scope)
	alone := metric.WithAttributeSet(attribute.NewSet(scope))
	return m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		s, err := o.stats(ctx)
		if err != nil {
			return fmt.Errorf("secondrun: the records of the store were not counted (%s)", errorType(err))
		}
		for state, n := range map[string]int64{
			"claimed": s.Claimed, "released": s.Released, "succeeded": s.Succeeded, "transient": s.Transient,
			"terminal": s.Terminal, "exhausted": s.Exhausted, "parked": s.Parked,
		} {
			to.ObserveInt64(records, n, metric.WithAttributeSet(attribute.NewSet(scope, attribute.String(labelState, state))))
		}
		to.ObserveInt64(expired, s.Expired, alone)
		to.ObserveFloat64(overdue, s.Overdue.Seconds(), alone)
		return nil
	}, records, expired, overdue)
}

func (o *observer) stats(ctx context.Context) (store.Stats, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.at.IsZero() && time.Since(o.at) < o.Every {
		return o.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	s, err := o.count.Stats(ctx, o.scope)
	if err == nil {
		o.at, o.last = time.Now(), s
	}
	return s, err
}
