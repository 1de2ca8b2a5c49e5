package secondrun_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// TestObserveRetriesUnknownErrors: a queue that retried before goes on to, with
// and without a claim, unless the options say what an unknown error is.
func TestObserveRetriesUnknownErrors(t *testing.T) {
	for _, test := range []struct {
		opt  secondrun.Options
		err  error
		want secondrun.Action
	}{
		{secondrun.Options{Mode: secondrun.Observe}, errBad, secondrun.Retry},
		{secondrun.Options{Mode: secondrun.Observe}, secondrun.Terminal(errBad), secondrun.DeadLetter},
		{secondrun.Options{Mode: secondrun.Observe, Unclassified: secondrun.ClassTerminal}, errBad, secondrun.DeadLetter},
		{secondrun.Options{}, errBad, secondrun.DeadLetter},
		{secondrun.Options{Unclassified: secondrun.ClassTransient}, errBad, secondrun.Retry},
	} {
		t.Run(fmt.Sprintf("%d %v %v", test.opt.Mode, test.opt.Unclassified, test.want), func(t *testing.T) {
			bubble(t, &test.opt, func(f *fixture) {
				var result error
				p := process(f.g, func(context.Context, msg) error { return result })
				result = test.err
				d := p.Process(f.Context(), delivery("a"))
				decided(f, d, test.want, true, test.err)
				is(f, "failed", d.Failed, true)

				result = nil
				decided(f, p.Process(f.Context(), delivery("b")), secondrun.Ack, true, nil)
				if test.opt.Mode == secondrun.Observe {
					result = test.err
					decided(f, p.Process(f.Context(), delivery("b")), test.want, true, test.err)
				}
				class := map[secondrun.Action]secondrun.Class{
					secondrun.Retry: secondrun.ClassTransient, secondrun.DeadLetter: secondrun.ClassTerminal,
				}[test.want]
				for _, e := range f.events.of(secondrun.EventRun) {
					if e.Err != nil {
						is(f, "class", e.Class, class)
					} else {
						is(f, "class", e.Class, 0)
					}
				}
			})
		})
	}
}

// TestEventsSayHowAKeyFailed looks at Event.Failure with and without Observe.
func TestEventsSayHowAKeyFailed(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		process(f.g, func(context.Context, msg) error { return errBad }).Process(f.Context(), delivery("a"))
		process(f.g, nothing).Process(f.Context(), delivery("a"))
		observe := f.guard(&secondrun.Options{Mode: secondrun.Observe})
		process(observe, nothing).Process(f.Context(), delivery("a"))
		for _, kind := range []secondrun.EventKind{secondrun.EventSuppressed, secondrun.EventWouldSuppress} {
			all := f.events.of(kind)
			is(f, "events", len(all), 1)
			is(f, "verdict", all[0].Verdict, store.Failed)
			is(f, "failure", all[0].Failure, store.FailedTerminal)
		}
		verdicts := f.events.of(secondrun.EventVerdict)
		is(f, "granted", verdicts[0].Failure, 0)
		is(f, "failed", verdicts[1].Failure, store.FailedTerminal)
	})
}

// TestReleasedRunHasNoClass: what was given back was no failure.
func TestReleasedRunHasNoClass(t *testing.T) {
	bubble(t, nil, func(f *fixture) {
		process(f.g, func(context.Context, msg) error { return &secondrun.BusyError{} }).Process(f.Context(), delivery("a"))
		runs := f.events.of(secondrun.EventRun)
		is(f, "class", runs[0].Class, 0)
		is(f, "busy", errors.Is(runs[0].Err, secondrun.ErrBusy), true)
	})
}
