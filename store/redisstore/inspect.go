package redisstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

const (
	defaultPage = 100
	largestPage = 1000
	scans       = 20 // of one List call, at most
	scanCount   = 1000
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, id store.ID) (store.Record, bool, error) {
	b := s.newBatch(s.scripts.read, 1)
	b.add(ctx, id, store.Token{})
	if err := b.run(ctx, false); err != nil {
		return store.Record{}, false, err
	}
	a := b.answer(0)
	if a.err != nil || !a.found {
		return store.Record{}, false, a.err
	}
	return present(id, a.record, a.extra, a.now)
}

// present decodes the record of id from the values of its parent and, for an
// effect, its own; ok is false when it is absent at now.
func present(id store.ID, parent, own string, now int64) (rec store.Record, ok bool, err error) {
	p, err := decode(parent)
	if err != nil || now >= p.ends() {
		return rec, false, err
	}
	if id.Effect == "" {
		return p.shown(id, nil), true, nil
	}
	if own == "" || !hasEffects(parent) {
		return rec, false, nil
	}
	e, err := decode(own)
	if err != nil {
		return rec, false, err
	}
	return e.shown(id, &p), true, nil
}

func hasEffects(parent string) bool { return parent[2]&16 != 0 }

// List implements [store.Inspector]. The order is that of SCAN, node by node;
// the effects of a record follow it. A record that does not change may
// nevertheless be seen twice if, while it is listed, the server shrinks its key
// table (many records ended) or a cluster moves its slot.
func (s *Store) List(ctx context.Context, q store.ListQuery) ([]store.Record, string, error) {
	l := &listing{store: s, query: q, limit: min(q.Limit, largestPage)}
	if l.limit <= 0 {
		l.limit = defaultPage
	}
	if err := l.cursor.parse(q.Cursor); err != nil {
		return nil, "", err
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, "", err
	}
	for range scans {
		if len(l.cursor.Keys) == 0 {
			if more, err := l.scan(ctx, nodes); err != nil || !more {
				return l.page, "", err
			}
		}
		if err := l.read(ctx); err != nil {
			return nil, "", err
		}
		if len(l.page) >= l.limit {
			break
		}
	}
	next, err := l.cursor.text()
	return l.page, next, err
}

// cursor is where a listing stands: the next SCAN, and the keys of the last one
// that did not fit the page.
type cursor struct {
	Node string
	Scan uint64
	Over bool     // the SCANs of Node and of all before it are over
	Keys []string // still to be shown
	// Shown is the effect of Keys[0] that was shown last, "" if that was the
	// record itself, nil if it has not been shown.
	Shown *string
}

func (c *cursor) parse(text string) error {
	if text == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, c)
	}
	if err != nil {
		return fmt.Errorf("redisstore: cursor: %w: %w", store.ErrPermanent, err)
	}
	return nil
}

func (c *cursor) text() (string, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("redisstore: cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

type node struct {
	addr   string
	client redis.UniversalClient
}

// masters are ordered by address.
func (s *Store) masters(ctx context.Context) ([]node, error) {
	if s.cluster == nil {
		return []node{{"", s.client}}, nil
	}
	found := make(chan node, 1000)
	err := s.eachMaster(ctx, func(_ context.Context, c redis.UniversalClient) error {
		found <- node{c.(*redis.Client).Options().Addr, c} //nolint:forcetypeassert // of ForEachMaster
		return nil
	})
	close(found)
	var nodes []node
	for n := range found {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.addr, b.addr) })
	return nodes, err
}

type listing struct {
	store  *Store
	query  store.ListQuery
	limit  int
	cursor cursor
	page   []store.Record
}

// scan does the next SCAN; more is false when there is none.
func (l *listing) scan(ctx context.Context, nodes []node) (more bool, err error) {
	c := &l.cursor
	at := slices.IndexFunc(nodes, func(n node) bool {
		return n.addr > c.Node || n.addr == c.Node && !c.Over
	})
	if at < 0 {
		return false, nil
	}
	if nodes[at].addr != c.Node {
		c.Node, c.Scan = nodes[at].addr, 0
	}
	count := int64(min(max(l.limit, 10), scanCount))
	keys, next, err := nodes[at].client.Scan(ctx, c.Scan, l.store.pattern(l.query.Scope), count).Result()
	if err != nil {
		return false, classify(err)
	}
	slices.Sort(keys)
	c.Keys, c.Shown, c.Scan, c.Over = slices.Compact(keys), nil, next, next == 0
	return true, nil
}

// read moves records from the keys of the cursor to the page until it is full.
func (l *listing) read(ctx context.Context) error {
	c := &l.cursor
	n := min(len(c.Keys), l.limit)
	b := l.store.newBatch(l.store.scripts.read, n)
	for _, key := range c.Keys[:n] {
		b.calls = append(b.calls, call{
			cmd: newCmd(ctx, []any{"evalsha", b.script.sha, 2, key, key + effectsSuffix, ""}), key: key,
		})
	}
	if err := b.run(ctx, false); err != nil {
		return err
	}
	for i := range n {
		full, err := l.show(b.calls[i].cmd, c.Keys[0])
		if err != nil {
			return fmt.Errorf("%w (Redis key %q)", err, c.Keys[0])
		}
		if full {
			return nil
		}
		c.Keys, c.Shown = c.Keys[1:], nil
	}
	return nil
}

// show adds the record under key, and those of its effects, to the page.
func (l *listing) show(cmd *redis.Cmd, key string) (full bool, err error) {
	scope, name, ok := l.store.parseKey(key)
	a := parse(cmd)
	if a.err != nil || !a.found || !ok {
		return false, a.err
	}
	values := map[string]string{"": a.record}
	if reply, _ := cmd.Slice(); len(reply) > 3 && len(a.record) > 2 && hasEffects(a.record) {
		list, _ := reply[3].([]any)
		for i := 0; i+1 < len(list); i += 2 {
			effect, _ := list[i].(string)
			values[effect], _ = list[i+1].(string)
		}
	}
	effects := make([]string, 0, len(values))
	for effect := range values {
		effects = append(effects, effect)
	}
	slices.Sort(effects)
	for _, effect := range effects {
		if l.cursor.Shown != nil && effect <= *l.cursor.Shown {
			continue
		}
		rec, ok, err := present(store.DecodeID(scope, name, effect), a.record, values[effect], a.now)
		if err != nil {
			return false, err
		}
		if !ok || l.query.State != 0 && rec.State != l.query.State {
			continue
		}
		if len(l.page) >= l.limit {
			return true, nil
		}
		l.page = append(l.page, rec)
		l.cursor.Shown = &effect
	}
	return false, nil
}
