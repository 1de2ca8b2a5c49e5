package pgstore

// recordColumns are what scanRecord reads. An effect is kept as long as its
// parent, so that it shows its parent's expiry.
const recordColumns = `r.scope, r.key, r.effect, r.state, r.failure, r.fence, r.starts, r.failures, r.crashes,
  r.lease_end, r.not_before, coalesce(p.expires_at, r.expires_at), r.fingerprint, r.delivery, r.holder, r.trace, r.payload`

const getText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT ` + recordColumns + `, NOT {gone}, c.now
FROM (SELECT $1::text AS scope, $2::text AS key, $3::text AS effect) i CROSS JOIN c
  {lookup}
WHERE r.state IS NOT NULL`

// listText reads rows in the order of the primary key, beginning after ($2, $3).
const listText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
i AS MATERIALIZED (
  SELECT t.scope, t.key, t.effect FROM {table} t
  WHERE t.scope = $1::text AND (t.key, t.effect) > ($2::text, $3::text)
  ORDER BY t.scope, t.key, t.effect LIMIT $4::bigint)
SELECT ` + recordColumns + `, NOT {gone}, c.now
FROM i CROSS JOIN c
  {lookup}
WHERE r.state IS NOT NULL
ORDER BY i.scope, i.key, i.effect`

// purgeText removes what is absent from 128 blocks. Walking the table itself
// needs no index over the times, which would cost every settlement its place
// on the same page (HOT).
//
// An effect goes only when the row of its parent's life is gone, one cycle
// after it at the latest: the parent is not locked here, and one that is past
// its retention can be granted again at this very moment.
const purgeText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
d AS (
  DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT t.ctid FROM {table} t, c
    WHERE t.ctid >= $1::text::tid AND t.ctid < $2::text::tid
      AND CASE WHEN t.effect = '' THEN NOT {alive t}
        ELSE NOT EXISTS (SELECT 1 FROM {table} p
          WHERE p.scope = t.scope AND p.key = t.key AND p.effect = '' AND p.born = t.born) END
    FOR UPDATE OF t SKIP LOCKED))
  RETURNING 1)
SELECT (SELECT count(*) FROM d), pg_relation_size($3::text::regclass) / current_setting('block_size')::bigint`

// lockRowText locks a record for an operator.
const lockRowText = `SELECT 1 FROM {table} t WHERE t.scope = $1::text AND t.key = $2::text AND t.effect = $3::text FOR UPDATE`

// No token is all zeros, so that a record with that token belongs to nobody.
const reopenText = `
UPDATE {table} t SET state = 2, failure = 0, failures = 0, crashes = 0, not_before = NULL, judge = NULL,
  token = '\x00000000000000000000000000000000', payload = NULL
WHERE t.scope = $1::text AND t.key = $2::text AND t.effect = $3::text AND t.state = 4`

const reopenEffectsText = `
UPDATE {table} t SET state = 2, failure = 0, failures = 0, crashes = 0, not_before = NULL, judge = NULL,
  token = '\x00000000000000000000000000000000', payload = NULL
WHERE t.scope = $1::text AND t.key = $2::text AND t.effect > '' AND t.state = 4`

const releaseText = `
UPDATE {table} t SET state = 2, failure = 0, not_before = NULL, judge = NULL,
  token = '\x00000000000000000000000000000000', payload = NULL
WHERE t.scope = $1::text AND t.key = $2::text AND t.effect = $3::text AND t.state = 1`

const forgetText = `
DELETE FROM {table} t WHERE t.scope = $1::text AND t.key = $2::text AND t.effect = $3::text`

const forgetAllText = `
DELETE FROM {table} t WHERE t.scope = $1::text AND t.key = $2::text`
