// Package cdckey reads change events of Debezium: rows of an outbox table,
// routed or raw, and changes of any table.
//
// Change data capture delivers at least once, and a new snapshot reads rows
// again. Nothing here reads the ts_ms of an event, which differs every time.
//
// A row is understood in every dialect: plain JSON, JSON with schema and payload,
// JSON with the type names of Avro around values, and flattened (unwrapped) rows.
package cdckey

import (
	"strings"

	"github.com/secondrun/secondrun/keyfn"
)

// Outbox gives the id of an outbox event: the header "id" that the outbox event
// router sets, or else the column id of the row. So the event has one key
// whether it was routed or not, read from the log or from a snapshot. A numeric
// id is its digits, as in the header.
//
// The deletion of a row and the tombstone after it (an empty or null body) are
// [keyfn.ErrSkip], and so are truncations.
func Outbox() keyfn.Func {
	return keyfn.Part("Outbox", "id", func(m keyfn.Message) (string, error) {
		if m.Header("id") != nil {
			return keyfn.Header("id")(m)
		}
		e, err := parse(m)
		if err != nil {
			return "", err
		}
		if e.op == "d" || e.op == "t" || e.op == "m" || e.after.IsNull() {
			return "", keyfn.ErrSkip
		}
		return column(e.after, "id", true)
	})
}

// Row gives the key of a change of any table: database, schema, table, kind of
// change, the given columns of the primary key, and the position in the log:
//
//	shop:public:orders:u:#1001:lsn:#23493504
//
// Two updates of one row have different keys. A snapshot reads a row at another
// position than the change that wrote it, so it has a key of its own; snapshots
// are to be handled as absolute writes, or use the primary key and a version
// column with [keyfn.JSON].
//
// Known positions are those of PostgreSQL (lsn), MySQL and MariaDB (file, pos,
// row), SQL Server (change_lsn, event_serial_no) and Oracle (scn, rs_id, ssn);
// others are [keyfn.ErrMissing]. Tombstones and truncations are
// [keyfn.ErrSkip]. Row panics without columns.
func Row(primaryKey ...string) keyfn.Func {
	if len(primaryKey) == 0 {
		panic("cdckey: Row: no columns of the primary key")
	}
	return keyfn.Part("Row", strings.Join(primaryKey, ","), func(m keyfn.Message) (string, error) {
		e, err := parse(m)
		if err != nil {
			return "", err
		}
		row := e.after
		if row.IsNull() {
			row = e.before
		}
		if e.op == "t" || e.op == "m" || row.IsNull() {
			return "", keyfn.ErrSkip
		}
		values, err := e.table()
		if err != nil {
			return "", err
		}
		for _, name := range primaryKey {
			v, err := column(row, name, false)
			if err != nil {
				return "", err
			}
			values = append(values, v)
		}
		position, err := e.position()
		if err != nil {
			return "", err
		}
		return join(append(values, position...))
	})
}

// event is a change event without its dialect.
type event struct {
	op            string
	before, after keyfn.Raw
	source        keyfn.Raw
}

// parse reads the event of a message. A tombstone is ErrSkip.
func parse(m keyfn.Message) (event, error) {
	body := m.Body()
	if text := strings.TrimSpace(string(body[:min(len(body), 8)])); text == "" || text == "null" {
		return event{}, keyfn.ErrSkip
	}
	names := []string{"op", "before", "after", "source", "payload", "schema", "__op", "__deleted"}
	v, err := keyfn.Fields(body, names...)
	if err != nil {
		return event{}, err
	}
	if v[0] == nil && (v[5].IsObject() || v[5] != nil && v[5].IsNull()) && v[4] != nil { // schema and payload
		if v[4].IsNull() {
			return event{}, keyfn.ErrSkip
		}
		body = v[4]
		if v, err = keyfn.Fields(body, names...); err != nil {
			return event{}, err
		}
	}
	if v[0] == nil {
		return flattened(body, v[6], v[7])
	}
	return event{op: unwrap(v[0]).Text(), before: unwrapRow(v[1]), after: unwrapRow(v[2]), source: unwrapRow(v[3])}, nil
}

// flattened reads a row without the envelope, as the unwrapping transformation
// leaves it.
func flattened(body []byte, op, deleted keyfn.Raw) (event, error) {
	row := keyfn.Raw(body)
	e := event{op: unwrap(op).Text(), after: row}
	if !row.IsObject() {
		return e, keyfn.ErrMalformed
	}
	if d := unwrap(deleted); d.Text() == "true" || string(d) == "true" {
		e.op = "d"
	}
	return e, nil
}

// table returns database, schema and table of an event, and the kind of change.
func (e event) table() ([]string, error) {
	v, err := keyfn.Fields(orEmpty(e.source), "db", "schema", "table")
	if err != nil {
		return nil, err
	}
	values := make([]string, 0, 8)
	for i, name := range []string{"db", "schema", "table"} {
		s := unwrap(v[i]).Text()
		if s == "" && name != "schema" { // MySQL has none
			return nil, &keyfn.Error{Builder: "Row", Path: "source." + name, Reason: keyfn.ErrMissing}
		}
		if s == "" {
			s = "-"
		}
		values = append(values, s)
	}
	if e.op == "" {
		return nil, &keyfn.Error{Builder: "Row", Path: "op", Reason: keyfn.ErrMissing}
	}
	return append(values, e.op), nil
}

// positions are the fields that together say where in the log a change is; the
// first names the kind.
var positions = [][]string{
	{"lsn"},
	{"file", "pos", "row"},
	{"change_lsn", "event_serial_no"},
	{"scn", "rs_id", "ssn"},
}

func (e event) position() ([]string, error) {
	for _, names := range positions {
		v, err := keyfn.Fields(orEmpty(e.source), names...)
		if err != nil {
			return nil, err
		}
		if unwrap(v[0]).IsNull() {
			continue
		}
		values := []string{names[0]}
		for i := range names {
			s := "-"
			if raw := unwrap(v[i]); !raw.IsNull() {
				if s, err = raw.Scalar(); err != nil {
					return nil, &keyfn.Error{Builder: "Row", Path: "source." + names[i], Reason: err}
				}
			}
			values = append(values, s)
		}
		return values, nil
	}
	return nil, &keyfn.Error{Builder: "Row", Path: "source", Reason: keyfn.ErrMissing}
}

// column returns the value of a column as text. plain writes a number without
// the mark that tells it from a string.
func column(row keyfn.Raw, name string, plain bool) (string, error) {
	v, err := keyfn.Fields(orEmpty(row), name)
	if err != nil {
		return "", err
	}
	raw := unwrap(v[0])
	if plain && raw.IsString() {
		return raw.Text(), nil
	}
	s, err := raw.Scalar()
	if err != nil {
		return "", &keyfn.Error{Builder: "column", Path: name, Reason: err}
	}
	if plain {
		s = strings.TrimPrefix(s, "#")
	}
	return s, nil
}

func orEmpty(raw keyfn.Raw) keyfn.Raw {
	if len(raw) == 0 {
		return keyfn.Raw("{}")
	}
	return raw
}

// avroTypes are the names that the JSON encoding of Avro puts around the value
// of a union.
var avroTypes = map[string]bool{
	"string": true, "long": true, "int": true, "boolean": true, "double": true, "float": true, "bytes": true,
}

// unwrap takes the type name of Avro off a scalar.
func unwrap(raw keyfn.Raw) keyfn.Raw {
	return unwrapIf(raw, func(name string, _ keyfn.Raw) bool { return avroTypes[name] })
}

// unwrapRow takes the record name of Avro, which has a namespace, off a row.
func unwrapRow(raw keyfn.Raw) keyfn.Raw {
	return unwrapIf(raw, func(name string, v keyfn.Raw) bool { return v.IsObject() && strings.Contains(name, ".") })
}

func unwrapIf(raw keyfn.Raw, isType func(string, keyfn.Raw) bool) keyfn.Raw {
	if !raw.IsObject() {
		return raw
	}
	inner, n := raw, 0
	if err := raw.Members(func(name string, v keyfn.Raw) error {
		n++
		if isType(name, v) {
			inner = v
		}
		return nil
	}); err != nil || n != 1 {
		return raw
	}
	return inner
}

// join is what Join makes of these values.
func join(values []string) (string, error) {
	parts := make([]keyfn.Func, len(values))
	for i, v := range values {
		parts[i] = func(keyfn.Message) (string, error) { return v, nil }
	}
	return keyfn.Join(parts...)(nil)
}
