package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

// call is one script on its way to one record. A nil cmd was never sent.
type call struct {
	cmd *redis.Cmd
	key string
	err error
}

// batchOf runs one script for many records.
type batchOf struct {
	store  *Store
	script script
	calls  []call
}

func (s *Store) newBatch(sc script, n int) *batchOf {
	return &batchOf{store: s, script: sc, calls: make([]call, 0, n)}
}

func (b *batchOf) refuse(err error) { b.calls = append(b.calls, call{err: err}) }

// add appends a call. The name of an effect, and its parent's token where the
// script wants one, follow args.
func (b *batchOf) add(ctx context.Context, id store.ID, parent store.Token, args ...any) {
	record, effect := b.store.keys(id)
	all := make([]any, 0, 7+len(args))
	all = append(all, "evalsha", b.script.sha, 1, record)
	if effect != "" {
		all = withEffects(all)
	}
	all = append(all, args...)
	if effect != "" {
		all = append(all, effect)
		if !parent.IsZero() {
			all = append(all, parent[:])
		}
	}
	b.calls = append(b.calls, call{cmd: newCmd(ctx, all), key: record})
}

// withEffects makes a command with one key name the effects too.
func withEffects(args []any) []any {
	args[2] = 2
	return slices.Insert(args, 4, any(args[3].(string)+effectsSuffix)) //nolint:forcetypeassert // of add
}

func newCmd(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// passes is how often run sends a call at most: as it is, with the text of the
// script, and with the key of the effects.
const passes = 3

// run sends all calls in one pipeline, then those again whose server did not
// know the script, or which need a second key.
func (b *batchOf) run(ctx context.Context, wait bool) error {
	pending := make([]*call, 0, len(b.calls))
	for i := range b.calls {
		if b.calls[i].cmd != nil {
			pending = append(pending, &b.calls[i])
		}
	}
	for range passes {
		if err := b.send(ctx, pending, wait); err != nil {
			return err
		}
		again := pending[:0]
		for _, c := range pending {
			if b.amend(ctx, c) {
				again = append(again, c)
			}
		}
		pending = again
	}
	return nil
}

// amend prepares c to be sent again, if it must be.
func (b *batchOf) amend(ctx context.Context, c *call) bool {
	args := c.cmd.Args()
	switch reply, _ := c.cmd.Val().([]any); {
	case redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT"):
		args[0], args[1] = "eval", b.script.text
	case len(reply) > 0 && reply[0] == int64(codeNeedEffects) && args[2] == 1:
		args = withEffects(args)
	default:
		return false
	}
	c.cmd, c.err = newCmd(ctx, args), nil
	return true
}

func (b *batchOf) send(ctx context.Context, calls []*call, wait bool) error {
	switch {
	case len(calls) == 0:
		return nil
	case wait:
		return b.sendAndWait(ctx, calls)
	case len(calls) == 1:
		_ = b.store.client.Process(ctx, calls[0].cmd)
	default:
		pipeline(ctx, b.store.client, calls)
	}
	return nil
}

func pipeline(ctx context.Context, c redis.UniversalClient, calls []*call) {
	pipe := c.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.cmd)
	}
	_, err := pipe.Exec(ctx)
	unanswered(calls, err)
}

// unanswered gives the error of a pipeline to the commands that have neither an
// answer nor an error of their own: go-redis leaves them blank when it got no
// connection at all.
func unanswered(calls []*call, err error) {
	if err == nil {
		return
	}
	for _, c := range calls {
		if c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}

// sendAndWait sends the calls of each master together with a WAIT on the same
// connection, which covers every write that the master did before.
func (b *batchOf) sendAndWait(ctx context.Context, calls []*call) error {
	nodes := map[redis.UniversalClient][]*call{}
	for _, c := range calls {
		node := b.store.client
		if b.store.cluster != nil {
			master, err := b.store.cluster.MasterForKey(ctx, c.key)
			if err != nil {
				return classify(err)
			}
			node = master
		}
		nodes[node] = append(nodes[node], c)
	}
	for node, group := range nodes {
		pipe := node.Pipeline()
		for _, c := range group {
			_ = pipe.Process(ctx, c.cmd)
		}
		wait := redis.NewIntCmd(ctx, "wait", b.store.waitReplicas, b.store.waitTimeout.Milliseconds())
		_ = pipe.Process(ctx, wait)
		_, err := pipe.Exec(ctx)
		unanswered(group, err)
		b.judge(ctx, group, wait)
	}
	return nil
}

// judge fails the calls that were answered before enough replicas had them.
func (b *batchOf) judge(ctx context.Context, group []*call, wait *redis.IntCmd) {
	n, err := wait.Result()
	for _, c := range group {
		switch {
		case redis.HasErrorPrefix(c.cmd.Err(), "MOVED") || redis.HasErrorPrefix(c.cmd.Err(), "ASK"):
			b.store.cluster.ReloadState(ctx) // the caller repeats the call
		case err != nil:
			c.err = err
		case n < int64(b.store.waitReplicas):
			c.err = fmt.Errorf("%w: %d of %d after %v", ErrTooFewReplicas, n, b.store.waitReplicas, b.store.waitTimeout)
		}
	}
}

// answer is a decoded reply of a script.
type answer struct {
	code   int64
	at     time.Time
	now    int64 // µs
	record string
	found  bool // there is a record
	extra  string
	state  int64
	err    error
}

// Codes that every script may answer.
const (
	codeFirst        = 1 // store.Granted, store.OK
	codeCorrupt      = 9
	codeIncompatible = 10
	codeNeedEffects  = 11
)

func (b *batchOf) answer(i int) answer {
	c := &b.calls[i]
	if c.cmd == nil {
		return answer{err: c.err}
	}
	a := parse(c.cmd)
	if a.err == nil && c.err != nil && !harmless(a.code, b.script.sha == b.store.scripts.claim.sha) {
		a.err = classify(c.err)
	}
	return a
}

// harmless reports whether nobody relies on what the answer says being kept.
func harmless(code int64, claim bool) bool {
	if claim {
		v := store.Verdict(code) //nolint:gosec // at most 10
		return v == store.Busy || v == store.Conflict || v == store.Refused
	}
	return store.Code(code) == store.Lost //nolint:gosec // at most 10
}

func parse(cmd *redis.Cmd) (a answer) {
	if err := cmd.Err(); err != nil {
		return answer{err: classify(err)}
	}
	if now, ok := cmd.Val().(int64); ok {
		return answer{code: codeFirst, now: now, at: instant(now)}
	}
	reply, _ := cmd.Val().([]any)
	if len(reply) < 2 {
		return answer{err: errUnknownReply}
	}
	var ok1, ok2 bool
	a.code, ok1 = reply[0].(int64)
	a.now, ok2 = reply[1].(int64)
	if !ok1 || !ok2 {
		return answer{err: errUnknownReply}
	}
	if len(reply) > 2 {
		a.record, a.found = reply[2].(string)
		a.state, _ = reply[2].(int64)
	}
	if len(reply) > 3 {
		a.extra, _ = reply[3].(string)
	}
	switch a.code {
	case codeCorrupt:
		a.err = fmt.Errorf("redisstore: %w", store.ErrCorrupt)
	case codeIncompatible:
		a.err = fmt.Errorf("redisstore: %w", store.ErrIncompatible)
	}
	a.at = instant(a.now)
	return a
}

func (a *answer) claim(req *store.ClaimRequest) (store.Claim, error) {
	c := store.Claim{Verdict: store.Verdict(a.code), At: a.at} //nolint:gosec // at most 10
	switch {
	case c.Verdict == store.Refused:
		return c, nil
	case c.Verdict == store.Granted && !a.found:
		c.Fence, c.Starts, c.Remaining = 1, 1, req.Lease
		return c, nil
	case c.Verdict == 0 || c.Verdict > store.Refused:
		return store.Claim{}, errUnknownReply
	}
	read := decode
	if c.Verdict == store.Conflict {
		read = func(v string) (record, error) { r, _, err := header(v); return r, err }
	}
	r, err := read(a.record)
	if err != nil {
		return store.Claim{}, err
	}
	c.Fence, c.Starts, c.Failures, c.Crashes = r.fence, r.starts, r.failures, r.crashes
	switch c.Verdict {
	case store.Conflict:
	case store.Granted:
		c.Takeover = r.took
		c.Remaining = time.Duration(r.until-a.now) * time.Microsecond
		var ok bool
		if c.Holder, c.Trace, ok = decodeMeta(a.extra); !ok {
			return store.Claim{}, fmt.Errorf("redisstore: %w", store.ErrCorrupt)
		}
	case store.Busy:
		c.Remaining = time.Duration(r.until-a.now) * time.Microsecond
		c.Failure, c.Holder, c.Trace = r.failure, r.holder, r.trace
	default:
		c.Failure, c.Holder, c.Trace, c.Payload = r.failure, r.holder, r.trace, r.payload
	}
	return c, nil
}

func (b *batchOf) statuses() ([]store.Status, error) {
	out := make([]store.Status, len(b.calls))
	for i := range out {
		a := b.answer(i)
		if a.err != nil {
			out[i].Err = a.err
			continue
		}
		out[i] = store.Status{Code: store.Code(a.code), At: a.at} //nolint:gosec // at most 10
		if out[i].Code == store.Already {
			st := states[a.state&7]
			out[i].State, out[i].Failure = st.state, st.failure
		}
	}
	if err := b.whole(func(i int) error { return out[i].Err }); err != nil {
		return nil, err
	}
	return out, nil
}

// whole answers the error of the call: the first one, if every item failed and
// none of them because of its own record.
func (b *batchOf) whole(err func(i int) error) error {
	if len(b.calls) == 0 {
		return nil
	}
	for i := range b.calls {
		if e := err(i); e == nil || ownRecord(e) || errors.Is(e, ErrTooFewReplicas) {
			return nil
		}
	}
	return err(0)
}
