package secondrun_test

import (
	"context"
	"errors"
	"testing"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// completes settles the claim as a transaction does.
func completes(ctx context.Context, f *fixture, result any, commit bool) {
	f.Helper()
	h := store.HeldFrom(ctx)
	h.Completing()
	s := store.Settlement{ID: h.ID, Token: h.Token, Kind: store.Succeed, Payload: h.Encode(result), Retention: h.Retention}
	if commit {
		st, err := f.faults.Store.Settle(ctx, []store.Settlement{s})
		if err != nil || st[0].Code != store.OK {
			f.Error(st, err)
		}
	}
}

func TestTransactionSettlesTheClaim(t *testing.T) {
	for name, test := range map[string]struct {
		commit bool
		err    error
		away   bool
		action secondrun.Action
		is     error
	}{
		"committed":                  {commit: true, action: secondrun.Ack},
		"committed, then fails":      {commit: true, err: errBad, action: secondrun.Ack},
		"committed, then cancelled":  {commit: true, err: context.Canceled, action: secondrun.Ack},
		"rolled back":                {err: errBad, action: secondrun.DeadLetter, is: errBad},
		"rolled back, returns nil":   {action: secondrun.Retry, is: secondrun.ErrNotCommitted},
		"committed, store away":      {commit: true, away: true, action: secondrun.Leave, is: secondrun.ErrUnrecorded},
		"committed, fails, and away": {commit: true, err: errBad, away: true, action: secondrun.Leave, is: secondrun.ErrUnrecorded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(f *fixture) {
				h := secondrun.WrapResult(f.g, body, func(ctx context.Context, _ msg) (int, error) {
					completes(ctx, f, 7, test.commit)
					if test.away {
						f.faults.on(only("settle", fault{before: errCut}))
					}
					time.Sleep(2 * lease) // no renewal any more, and no deadline
					isError(f, ctx.Err(), nil)
					if test.err != nil {
						return 0, test.err
					}
					return 7, nil
				})
				d := h.Processor().Process(f.Context(), delivery("a"))
				decided(f, d, test.action, true, test.is)
				is(f, "renewals", f.faults.count("renew"), 0)
				for _, e := range f.events.of(secondrun.EventSettled) {
					if e.Kept == store.Succeed {
						f.Error("the guard settled success by itself")
					}
				}
				if test.action == secondrun.Ack {
					n, err := h.HandleResult(f.Context(), "a")
					isError(f, err, nil)
					is(f, "replay", n, 7)
					is(f, "state", f.record("a").State, store.StateSucceeded)
				}
			})
		})
	}
}

func TestResultOfACommittedRunThatFailed(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		n, err := secondrun.Do(f.Context(), f.g, "a", func(ctx context.Context) (int, error) {
			completes(ctx, f, 7, true)
			return 0, errors.New("connection lost after the commit")
		})
		isError(f, err, nil)
		is(f, "result", n, 7)
	})
}

func TestHeldDescribesTheClaim(t *testing.T) {
	bubble(t, &secondrun.Options{MaxResult: 10, Retention: 48 * time.Hour}, func(f *fixture) {
		isError(f, secondrun.DoFunc(f.Context(), f.g, "a", func(ctx context.Context) error {
			h := store.HeldFrom(ctx)
			is(f, "ID", h.ID, store.ID{Scope: "test", Key: "a"})
			is(f, "fence", h.Fence, 1)
			is(f, "retention", h.Retention, 48*time.Hour)
			is(f, "token", h.Token.IsZero(), false)
			if b := h.Encode("longer than ten bytes"); len(b) == 0 {
				f.Error("no payload")
			}
			is(f, "omitted", f.events.count(secondrun.EventResultOmitted), 1)
			return nil
		}), nil)
	})
}
