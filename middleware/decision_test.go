package secondrun_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store"
)

// canned answers every claim and every settlement in the same way.
type canned struct {
	claim  store.Claim
	settle store.Status
}

func (c canned) Claim(_ context.Context, qs []store.ClaimRequest) ([]store.Claim, error) {
	return repeat(c.claim, len(qs)), nil
}

func (c canned) Renew(_ context.Context, ls []store.Lease, _ time.Duration) ([]store.Status, error) {
	return repeat(store.Status{Code: store.OK}, len(ls)), nil
}

func (c canned) Settle(_ context.Context, ss []store.Settlement) ([]store.Status, error) {
	return repeat(c.settle, len(ss)), nil
}

func repeat[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// The decision table, every verdict and every answer to a settlement.
func TestDecisionTable(t *testing.T) {
	granted := store.Claim{Verdict: store.Granted, Fence: 1, Starts: 1, Remaining: lease}
	settled := func(c store.Code) store.Status { return store.Status{Code: c} }
	already := func(s store.State, f store.Failure) store.Status {
		return store.Status{Code: store.Already, State: s, Failure: f}
	}
	failed := func(v store.Verdict, f store.Failure) store.Claim { return store.Claim{Verdict: v, Failure: f} }
	transient, terminal := secondrun.Transient(errMail), secondrun.Terminal(errBad)
	type want struct {
		action secondrun.Action
		ran    bool
		failed bool
		err    error
		after  [2]time.Duration
	}
	long := [2]time.Duration{lease, 2 * lease}
	for _, test := range []struct {
		claim  store.Claim
		result error
		settle store.Status
		want   want
	}{
		// Verdicts without a run.
		{claim: store.Claim{Verdict: store.Done}, want: want{action: secondrun.Ack}},
		{claim: store.Claim{Verdict: store.Busy, Remaining: lease}, want: want{secondrun.Retry, false, false, secondrun.ErrBusy, long}},
		{claim: store.Claim{Verdict: store.Busy, Remaining: -lease}, want: want{secondrun.Retry, false, false, secondrun.ErrBusy, [2]time.Duration{1, time.Second}}},
		{claim: failed(store.Failed, store.FailedTerminal), want: want{action: secondrun.DeadLetter, err: secondrun.ErrFailed}},
		{claim: failed(store.Failed, store.FailedParked), want: want{action: secondrun.DeadLetter, err: secondrun.ErrParked}},
		{claim: failed(store.Failed, store.FailedExhausted), want: want{action: secondrun.DeadLetter, err: secondrun.ErrExhausted}},
		{claim: failed(store.Exhausted, store.FailedExhausted), want: want{action: secondrun.DeadLetter, err: secondrun.ErrExhausted}},
		{claim: store.Claim{Verdict: store.Conflict}, want: want{action: secondrun.DeadLetter, err: secondrun.ErrConflict}},
		{claim: store.Claim{Verdict: store.Refused}, want: want{secondrun.Retry, false, false, secondrun.ErrBusy, [2]time.Duration{1, time.Minute}}},
		{claim: store.Claim{Verdict: 99}, want: want{secondrun.Retry, false, false, secondrun.ErrBusy, [2]time.Duration{1, time.Minute}}},
		{claim: store.Claim{Err: errCut}, want: want{secondrun.Retry, false, false, secondrun.ErrStore, [2]time.Duration{1, lease}}},
		// Runs that succeed.
		{claim: granted, settle: settled(store.OK), want: want{action: secondrun.Ack, ran: true}},
		{claim: granted, settle: settled(store.Absent), want: want{action: secondrun.Ack, ran: true}},
		{claim: granted, settle: already(store.StateSucceeded, 0), want: want{action: secondrun.Ack, ran: true}},
		{claim: granted, settle: settled(store.Lost), want: want{secondrun.Retry, true, false, secondrun.ErrLeaseLost, [2]time.Duration{1, 2 * time.Second}}},
		{claim: granted, settle: store.Status{Err: errCut}, want: want{action: secondrun.Leave, ran: true, err: secondrun.ErrUnrecorded}},
		{claim: granted, settle: already(store.StateFailed, store.FailedTerminal), want: want{action: secondrun.DeadLetter, ran: true, failed: true}},
		// Runs that fail and may be repeated.
		{claim: granted, result: transient, settle: settled(store.OK), want: want{secondrun.Retry, true, true, errMail, [2]time.Duration{1, time.Second}}},
		{claim: granted, result: transient, settle: settled(store.Absent), want: want{secondrun.Retry, true, true, errMail, [2]time.Duration{1, time.Second}}},
		{claim: granted, result: transient, settle: already(store.StateFailed, store.FailedTransient), want: want{secondrun.Retry, true, true, errMail, [2]time.Duration{1, time.Second}}},
		{claim: granted, result: transient, settle: already(store.StateSucceeded, 0), want: want{action: secondrun.Ack, ran: true}},
		{claim: granted, result: transient, settle: already(store.StateFailed, store.FailedParked), want: want{action: secondrun.DeadLetter, ran: true, failed: true, err: errMail}},
		{claim: granted, result: transient, settle: settled(store.Lost), want: want{secondrun.Retry, true, false, secondrun.ErrLeaseLost, [2]time.Duration{1, 2 * time.Second}}},
		{claim: granted, result: transient, settle: store.Status{Err: errCut}, want: want{action: secondrun.Leave, ran: true, err: secondrun.ErrUnrecorded}},
		// Runs that fail for good.
		{claim: granted, result: terminal, settle: settled(store.OK), want: want{action: secondrun.DeadLetter, ran: true, failed: true, err: errBad}},
		{claim: granted, result: terminal, settle: already(store.StateFailed, store.FailedTerminal), want: want{action: secondrun.DeadLetter, ran: true, failed: true, err: errBad}},
		{claim: granted, result: terminal, settle: settled(store.Lost), want: want{secondrun.Retry, true, false, secondrun.ErrLeaseLost, [2]time.Duration{1, 2 * time.Second}}},
		{claim: granted, result: terminal, settle: store.Status{Err: errCut}, want: want{action: secondrun.Leave, ran: true, err: secondrun.ErrUnrecorded}},
		// Runs that are given back.
		{claim: granted, result: secondrun.ErrBusy, settle: settled(store.OK), want: want{action: secondrun.Retry, ran: true, err: secondrun.ErrBusy}},
		{claim: granted, result: secondrun.ErrBusy, settle: already(store.StateReleased, 0), want: want{action: secondrun.Retry, ran: true, err: secondrun.ErrBusy}},
		{claim: granted, result: secondrun.ErrBusy, settle: store.Status{Err: errCut}, want: want{secondrun.Retry, true, false, secondrun.ErrBusy, long}},
	} {
		name := fmt.Sprintf("%v %v returns %v, settled %v %v %v", test.claim.Verdict, test.claim.Failure, test.result,
			test.settle.Code, test.settle.State, test.settle.Err)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := secondrun.New("test", canned{test.claim, test.settle}, nil)
				isError(t, err, nil)
				d := process(g, func(context.Context, msg) error { return test.result }).Process(t.Context(), delivery("a"))
				decided(t, d, test.want.action, test.want.ran, test.want.err)
				is(t, "failed", d.Failed, test.want.failed)
				if d.After < test.want.after[0] || d.After > test.want.after[1] {
					t.Errorf("after %v, want %v", d.After, test.want.after)
				}
				is(t, "key", d.ID.Key, "a")
				if d.Action == secondrun.Ack && d.Err != nil {
					t.Error(d.Err)
				}
			})
		})
	}
}
