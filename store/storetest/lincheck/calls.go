package lincheck

import (
	"context"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/secondrun/secondrun/store"
)

// call sends ops in one call and records them with their answers.
func (h *history) call(ctx context.Context, client int, ops []*op) {
	h.quota.Add(-int64(len(ops)))
	began := time.Since(h.began)
	from := time.Now()
	err := h.send(ctx, ops)
	to := time.Now()
	ended := time.Since(h.began)
	if err != nil {
		h.fail(fmt.Errorf("%s: %w", ops[0], err))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range ops {
		o.from, o.to, o.base, o.drift = from, to, h.began, maxDrift
		if o.kind == opClaim && o.claim.Verdict == store.Granted {
			h.owner[place{o.key, o.slot}] = o.req
		}
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: o, Call: int64(began), Output: o, Return: int64(ended)})
	}
}

// send does the call. All items of a call are of one kind.
func (h *history) send(ctx context.Context, ops []*op) (err error) {
	o := ops[0]
	id := h.id(place{o.key, o.slot})
	switch o.kind {
	case opClaim:
		return h.sendClaims(ctx, ops)
	case opRenew, opSettle:
		return h.sendStatus(ctx, ops)
	case opGet:
		o.rec, o.ok, err = h.st.(store.Inspector).Get(ctx, id) //nolint:forcetypeassert // planned for
	case opReopen:
		o.ok, err = h.st.(store.Admin).Reopen(ctx, id, "lincheck") //nolint:forcetypeassert // planned for
	case opForget:
		o.ok, err = h.st.(store.Admin).Forget(ctx, id, "lincheck") //nolint:forcetypeassert // planned for
	case opForceRelease:
		o.ok, err = h.st.(store.Admin).ForceRelease(ctx, id, "lincheck") //nolint:forcetypeassert // planned for
	}
	return err
}

func (h *history) sendClaims(ctx context.Context, ops []*op) error {
	reqs := make([]store.ClaimRequest, len(ops))
	for i, o := range ops {
		reqs[i] = o.req
	}
	out, err := h.st.Claim(ctx, reqs)
	if err != nil {
		return err
	}
	if len(out) != len(ops) {
		return fmt.Errorf("%d answers to %d claims", len(out), len(ops))
	}
	for i, o := range ops {
		o.claim = out[i]
	}
	return nil
}

func (h *history) sendStatus(ctx context.Context, ops []*op) (err error) {
	var out []store.Status
	if ops[0].kind == opRenew {
		leases := make([]store.Lease, len(ops))
		for i, o := range ops {
			leases[i] = o.lease
		}
		out, err = h.st.Renew(ctx, leases, ops[0].d)
	} else {
		settlements := make([]store.Settlement, len(ops))
		for i, o := range ops {
			settlements[i] = o.settlement
		}
		out, err = h.st.Settle(ctx, settlements)
	}
	if err != nil {
		return err
	}
	if len(out) != len(ops) {
		return fmt.Errorf("%d answers to %d items", len(out), len(ops))
	}
	for i, o := range ops {
		o.status = out[i]
	}
	return nil
}
