package pgstore

// What a settlement does to a record.
const (
	actSettle     = 1
	actCreate     = 2 // a late success of a record that is gone
	actAbsent     = 3
	actLost       = 4
	actAlready    = 5
	actUnreadable = 6 // the record has a state that this version does not know
)

// judgeSettle tells what to do about the settlement i.
const judgeSettle = `CASE
      WHEN {gone} THEN
        CASE WHEN i.state = 3 AND (i.effect = '' OR p.state IS NOT NULL AND {alive p}) THEN 2 ELSE 3 END
      WHEN r.token <> i.token THEN 4
      WHEN r.state NOT BETWEEN 1 AND 4 OR r.failure NOT BETWEEN 0 AND 4 THEN 6
      WHEN r.state = 1 OR i.state = 3 AND r.state = 4 AND r.failure IN (3, 4) THEN 1
      ELSE 5
    END`

// settleHotText settles one claim that is there to be settled, which is nearly
// always so. The update waits for a transaction that has the row locked and
// then looks at what that transaction left. No row says no more than that there
// was nothing to update.
const settleHotText = `
  UPDATE {table} t
  SET state = $5::smallint, failure = $6::smallint,
    failures = t.failures + CASE WHEN $6::smallint IN (1, 2) THEN 1 ELSE 0 END, judge = NULL,
    not_before = CASE WHEN $8::bigint > 0 THEN c.now + $8::bigint * interval '1 microsecond' END,
    expires_at = c.now + $9::bigint * interval '1 microsecond', payload = $7::bytea
  FROM (SELECT clock_timestamp() AS now{timeout}) c
  WHERE t.scope = $1::text AND t.key = $2::text AND t.effect = $3::text AND t.token = $4::bytea
    AND (t.state = 1 OR $5::smallint = 3 AND t.state = 4 AND t.failure IN (3, 4))
    AND CASE WHEN t.effect = '' THEN {alive t}
      ELSE coalesce((SELECT {alive p} FROM {table} p
        WHERE p.scope = t.scope AND p.key = t.key AND p.effect = '' AND p.born = t.born LIMIT 1), false) END
  RETURNING 1 AS act, true AS written, c.now, 0::smallint AS state, 0::smallint AS failure`

// settleOneText does the same and says why, where nothing was updated. Then the
// snapshot tells; if it says that the row should have been updated, the row has
// changed since, and the statement has to be sent again.
const settleOneText = `
WITH u AS (` + settleHotText + `),
c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT u.act, u.written, u.now, u.state, u.failure FROM u
UNION ALL
SELECT ` + judgeSettle + `, false, c.now, coalesce(r.state, 0::smallint), coalesce(r.failure, 0::smallint)
FROM (SELECT $1::text AS scope, $2::text AS key, $3::text AS effect, $4::bytea AS token, $5::smallint AS state) i
  CROSS JOIN c
  {lookup}
WHERE NOT EXISTS (SELECT 1 FROM u)`

// settleManyText settles a batch. A row that another transaction has locked is
// left out, so that one open transaction does not hold up the others, and so is
// one that has changed since it was judged: written is false, and the item has
// to be settled singly.
const settleManyText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
j AS MATERIALIZED (
  SELECT i.*, c.now, r.version, coalesce(p.born, r.born, c.now) AS r_born, r.lease_end AS r_lease_end,
    r.fence AS r_fence, r.starts AS r_starts, r.failures AS r_failures, r.crashes AS r_crashes,
    coalesce(r.state, 0::smallint) AS r_state, coalesce(r.failure, 0::smallint) AS r_failure,
    r.took_over AS r_took_over, r.parent_fence AS r_parent_fence,
    r.fingerprint AS r_fingerprint, r.delivery AS r_delivery, r.holder AS r_holder, r.trace AS r_trace,
    ` + judgeSettle + ` AS act
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::smallint[], $6::smallint[], $7::bytea[],
      $8::bigint[], $9::bigint[])
      WITH ORDINALITY AS i(scope, key, effect, token, state, failure, payload, not_before, retention, ord)
    CROSS JOIN c
    {lookup}),
l AS MATERIALIZED (
  SELECT j.* FROM j CROSS JOIN LATERAL (
    SELECT 1 FROM {table} t
    WHERE t.scope = j.scope AND t.key = j.key AND t.effect = j.effect AND t.xmin = j.version
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
  WHERE j.act < 3 AND j.version IS NOT NULL),
upd AS (
  INSERT INTO {table} AS t ({columns})
  SELECT l.token, CASE WHEN l.act = 2 AND l.effect = '' THEN l.now ELSE l.r_born END, l.r_lease_end,
    l.now + l.retention * interval '1 microsecond',
    CASE WHEN l.act = 2 THEN 1 ELSE l.r_fence END, CASE WHEN l.act = 2 THEN 1 ELSE l.r_starts END,
    CASE WHEN l.act = 2 THEN 0 ELSE l.r_failures + CASE WHEN l.failure IN (1, 2) THEN 1 ELSE 0 END END,
    CASE WHEN l.act = 2 THEN 0 ELSE l.r_crashes END,
    l.state, l.failure, CASE WHEN l.act = 2 THEN false ELSE l.r_took_over END, NULL,
    CASE WHEN l.not_before > 0 THEN l.now + l.not_before * interval '1 microsecond' END,
    CASE WHEN l.act = 1 THEN l.r_parent_fence END, l.scope, l.key, l.effect,
    CASE WHEN l.act = 1 THEN l.r_fingerprint END, CASE WHEN l.act = 1 THEN l.r_delivery END,
    CASE WHEN l.act = 1 THEN l.r_holder END, CASE WHEN l.act = 1 THEN l.r_trace END, l.payload
  FROM l
  ON CONFLICT (scope, key, effect) DO UPDATE SET {excluded}
  RETURNING t.scope, t.key, t.effect),
ins AS (
  INSERT INTO {table} AS t ({columns})
  SELECT j.token, j.r_born, j.now, j.now + j.retention * interval '1 microsecond', 1, 1, 0, 0, 3, 0, false,
    NULL, NULL, NULL, j.scope, j.key, j.effect, NULL, NULL, NULL, NULL, j.payload
  FROM j
  WHERE CASE WHEN j.act = 2 AND j.version IS NULL THEN {write} ELSE false END
  ORDER BY j.scope COLLATE "C", j.key COLLATE "C", j.effect COLLATE "C"
  ON CONFLICT (scope, key, effect) DO NOTHING
  RETURNING t.scope, t.key, t.effect)
SELECT j.ord, j.act, w.scope IS NOT NULL AS written, j.now, j.r_state, j.r_failure
FROM j LEFT JOIN (SELECT * FROM upd UNION ALL SELECT * FROM ins) w
  ON w.scope = j.scope AND w.key = j.key AND w.effect = j.effect`

// renewText extends leases. It waits for nobody: what it does not find claimed
// by the token, or cannot lock, is not written. The lock is taken on the newest
// version of the row, which another renewal with the same token may have written
// since the snapshot. That one may have left less time, so that it is asked once
// more whether the record is absent by now: others have been told so already.
const renewText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
j AS MATERIALIZED (
  SELECT i.*, c.now, coalesce(r.state, 0::smallint) AS state, coalesce(r.failure, 0::smallint) AS failure,
    coalesce(NOT {gone} AND r.token = i.token, false) AS mine
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
      WITH ORDINALITY AS i(scope, key, effect, token, ord)
    CROSS JOIN c
    {lookup}),
l AS MATERIALIZED (
  SELECT x.*, j.now FROM j CROSS JOIN LATERAL (
    SELECT t.* FROM {table} t
    WHERE t.scope = j.scope AND t.key = j.key AND t.effect = j.effect AND t.token = j.token AND t.state = 1
      AND (t.effect <> '' OR t.expires_at > j.now OR t.lease_end > j.now)
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
  WHERE j.mine AND j.state = 1),
w AS (
  INSERT INTO {table} AS t ({columns})
  SELECT token, born, now + $5::bigint * interval '1 microsecond',
    greatest(expires_at, now + $5::bigint * interval '1 microsecond'),
    fence, starts, failures, crashes, state, failure, took_over, judge, not_before, parent_fence,
    scope, key, effect, fingerprint, delivery, holder, trace, payload
  FROM l
  ON CONFLICT (scope, key, effect) DO UPDATE SET lease_end = excluded.lease_end, expires_at = excluded.expires_at
  RETURNING t.scope, t.key, t.effect)
SELECT j.ord, j.mine, w.scope IS NOT NULL AS written, j.now, j.state, j.failure
FROM j LEFT JOIN w ON w.scope = j.scope AND w.key = j.key AND w.effect = j.effect`
