package pgstore

import "strings"

// statements is the text of every statement, built once from the options. The
// fragments below use the aliases i (the request), c.now (the server's clock,
// read once), r (the record as the snapshot has it, null when there is none)
// and p (the record of an effect's parent).
//
// None of them joins the table with a set of rows: the planner would be free
// to answer that with a sequential scan, and would, when the plan was made
// while the table was empty. A LATERAL subquery with LIMIT 1 keeps it to one
// index lookup a row. For the same reason batches write through INSERT .. ON
// CONFLICT DO UPDATE, after the row was locked, and not through UPDATE .. FROM.
type statements struct {
	claimHot            string
	claimOne, claimMany string
	renew               string
	settle              settleTexts
	complete            settleTexts // without a lock timeout of its own
	get, list           string
	purge               string
	lockRow, reopen     string
	reopenEffects       string
	forget, forgetAll   string
	release             string
}

// settleTexts are the statements of a settlement.
type settleTexts struct{ hot, one, many string }

func newStatements(o *Options) statements {
	lockTimeout := "set_config('lock_timeout', '" + o.lockTimeout() + "', true)"
	build := func(text string, more ...string) string {
		return strings.NewReplacer(append(more,
			"{table}", o.table(),
			"{lookup}", lookup(o.table()),
			"{alive r}", alive("r"),
			"{alive p}", alive("p"),
			"{alive t}", alive("t"),
			"{gone}", gone(),
			"{columns}", columns,
			"{excluded}", excluded,
		)...).Replace(text)
	}
	async := ""
	if o.AsyncClaims {
		async = " AND set_config('synchronous_commit', 'off', true) IS NOT NULL"
	}
	claim := func(text, input string) string {
		return build(text, "{input}", input, "{write}", lockTimeout+" IS NOT NULL"+async)
	}
	settle := func(timeout, write string) settleTexts {
		more := []string{"{timeout}", timeout, "{write}", write}
		return settleTexts{hot: build(settleHotText, more...), one: build(settleOneText, more...), many: build(settleManyText, more...)}
	}
	return statements{
		claimHot:  claim(claimHotText, ""),
		claimOne:  claim(claimText, claimInputOne),
		claimMany: claim(claimText, claimInputMany),
		renew:     build(renewText),

		settle:   settle(", "+lockTimeout+" AS timeout", lockTimeout+" IS NOT NULL"),
		complete: settle("", "true"),

		get:   build(getText),
		list:  build(listText),
		purge: build(purgeText),

		lockRow:       build(lockRowText),
		reopen:        build(reopenText),
		reopenEffects: build(reopenEffectsText),
		forget:        build(forgetText),
		forgetAll:     build(forgetAllText),
		release:       build(releaseText),
	}
}

// alive tells whether the record x, which is no effect, is not absent.
func alive(x string) string {
	return strings.ReplaceAll("(x.expires_at > c.now OR x.state = 1 AND x.lease_end > c.now)", "x.", x+".")
}

// gone tells whether the record of i is absent. Null columns of r or p say that
// the row does not exist.
func gone() string {
	return `(r.state IS NULL OR CASE WHEN i.effect = '' THEN NOT ` + alive("r") +
		` ELSE p.state IS NULL OR NOT ` + alive("p") + ` OR p.born <> r.born END)`
}

// lookup finds the record of i and, for an effect, the one of its parent.
func lookup(table string) string {
	return `LEFT JOIN LATERAL (
    SELECT t.xmin AS version, t.* FROM ` + table + ` t
    WHERE t.scope = i.scope AND t.key = i.key AND t.effect = i.effect LIMIT 1) r ON true
  LEFT JOIN LATERAL (
    SELECT t.token, t.born, t.lease_end, t.expires_at, t.fence, t.state FROM ` + table + ` t
    WHERE i.effect <> '' AND t.scope = i.scope AND t.key = i.key AND t.effect = '' LIMIT 1) p ON true`
}

const (
	columns = `token, born, lease_end, expires_at, fence, starts, failures, crashes, state, failure, took_over,
    judge, not_before, parent_fence, scope, key, effect, fingerprint, delivery, holder, trace, payload`

	excluded = `token = excluded.token, born = excluded.born, lease_end = excluded.lease_end,
    expires_at = excluded.expires_at, fence = excluded.fence, starts = excluded.starts,
    failures = excluded.failures, crashes = excluded.crashes, state = excluded.state, failure = excluded.failure,
    took_over = excluded.took_over, judge = excluded.judge, not_before = excluded.not_before,
    parent_fence = excluded.parent_fence, fingerprint = excluded.fingerprint, delivery = excluded.delivery,
    holder = excluded.holder, trace = excluded.trace, payload = excluded.payload`
)

// What a claim does to a record, as claimText computes it.
const (
	actOpen      = 0 // claimHotText leaves it to claimText
	actFresh     = 1 // the record is absent: the first grant of a new life
	actGrant     = 2
	actReset     = 3 // a grant with a new budget
	actTakeover  = 4
	actExhaust   = 5
	actPark      = 6
	actWrites    = 9 // what is greater writes nothing
	actAgain     = 10
	actDone      = 11
	actLeased    = 12
	actWaiting   = 13
	actFailed    = 14
	actExhausted = 15
	actConflict  = 16
	actRefused   = 17
	actUnknown   = 18 // the record has a state that this version does not know
)

const claimInputOne = `SELECT 1::bigint AS ord, $1::text AS scope, $2::text AS key, $3::text AS effect, $4::bytea AS token,
    $5::bigint AS lease, $6::bigint AS retention, $7::int AS max_failures, $8::int AS max_crashes,
    $9::bool AS park, $10::bool AS keep, $11::bytea AS fingerprint, $12::bytea AS delivery,
    $13::bytea AS parent, $14::bytea AS holder, $15::bytea AS trace`

const claimInputMany = `SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[],
    $7::int[], $8::int[], $9::bool[], $10::bool[], $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[], $15::bytea[])
    WITH ORDINALITY AS u(scope, key, effect, token, lease, retention, max_failures, max_crashes, park, keep,
    fingerprint, delivery, parent, holder, trace, ord)`

// claimHotText decides one claim that is not an effect's where nothing has to be
// changed in a row that exists: a fresh key, a duplicate, a busy or a failed
// one, which is nearly all of them. Whatever else it finds has to be decided by
// claimText, which judges it again. No answer at all means that somebody has
// inserted the record while this was running.
//
// It costs the server half of what claimText costs, whose many expressions have
// to be set up in every execution, used or not.
const claimHotText = `
WITH cur AS MATERIALIZED (
  SELECT c.now, r.fence, r.starts, r.failures, r.crashes, r.failure, r.took_over, r.lease_end, r.not_before,
    r.holder, r.trace, r.payload,
    CASE
      WHEN NOT {alive r} THEN 0
      WHEN r.state NOT BETWEEN 1 AND 4 OR r.failure NOT BETWEEN 0 AND 4 THEN 18
      WHEN r.fingerprint <> $9::bytea AND (r.state <> 4 OR r.failure = 1)
        AND substr(r.fingerprint, 1, 2) = substr($9::bytea, 1, 2) THEN 16
      WHEN r.token = $3::bytea THEN
        CASE WHEN r.state = 1 THEN 10 WHEN r.state = 3 THEN 11 WHEN r.state = 4 AND r.failure > 1 THEN 14 ELSE 17 END
      WHEN r.judge = $3::bytea THEN 15
      WHEN r.state = 3 THEN 11
      WHEN r.state = 1 THEN CASE WHEN r.lease_end > c.now THEN 12 ELSE 0 END
      WHEN r.state = 4 AND r.failure > 1 THEN
        CASE WHEN r.failure = 4 OR $8::bool OR r.delivery = $10::bytea THEN 14 ELSE 0 END
      WHEN r.state = 4 AND ($6::int > 0 AND r.failures >= $6::int OR $7::int > 0 AND r.crashes >= $7::int) THEN 0
      WHEN r.not_before > c.now THEN 13
      ELSE 0
    END AS act
  FROM (SELECT clock_timestamp() AS now) c, {table} r
  WHERE r.scope = $1::text AND r.key = $2::text AND r.effect = ''),
ins AS (
  INSERT INTO {table} AS t ({columns})
  SELECT $3::bytea, c.now, c.now + $4::bigint * interval '1 microsecond', c.now + $5::bigint * interval '1 microsecond',
    1, 1, 0, 0, 1, 0, false, NULL, NULL, NULL, $1::text, $2::text, '', $9::bytea, $10::bytea, $11::bytea, $12::bytea, NULL
  FROM (SELECT clock_timestamp() AS now) c
  WHERE CASE WHEN NOT EXISTS (SELECT 1 FROM cur) THEN {write} ELSE false END
  ON CONFLICT (scope, key, effect) DO NOTHING
  RETURNING t.born)
SELECT 1::bigint, act, false, now, fence, starts, failures, crashes, failure, took_over,
  CASE WHEN act = 13 THEN not_before ELSE lease_end END, holder, trace,
  CASE WHEN act IN (11, 14, 15) THEN payload END
FROM cur
UNION ALL
SELECT 1::bigint, 1, true, born, 0::bigint, 0, 0, 0, 0::smallint, false, born, NULL::bytea, NULL::bytea, NULL::bytea FROM ins`

// claimText decides claims. j judges every request by the record that the
// snapshot has and writes nothing. Only what must change goes on: an existing
// row is locked if it still is the version that was judged and nobody else has
// it locked, an absent one is inserted. A request that was to write and did not
// (written is false) met somebody else and has to be judged again.
//
// An effect's grant notes the fence of its parent's grant. That is enough to
// keep a displaced parent from taking an effect over from its successor: the
// successor's fence is in a newer version of the row, so that the lock is not
// taken, or in a row that the snapshot has not, so that nothing is inserted.
// Locking the parent would do it too, and would make every renewal of the
// parent a reason for the effect to wait. It also is what tells whether an effect
// is held under an earlier owner of the parent: one with the same token, that
// was displaced and granted again, counts as another.
const claimText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
j AS MATERIALIZED (
  SELECT i.*, c.now, r.version, r.token AS r_token, coalesce(p.born, r.born, c.now) AS r_born, r.lease_end AS r_lease_end,
    r.fence AS r_fence, r.starts AS r_starts, r.failures AS r_failures, r.crashes AS r_crashes,
    r.failure AS r_failure, r.took_over AS r_took_over, r.not_before AS r_not_before,
    r.parent_fence AS r_parent_fence, r.fingerprint AS r_fingerprint, r.holder AS r_holder, r.trace AS r_trace,
    r.payload AS r_payload, p.fence AS p_fence,
    CASE
      WHEN i.effect <> '' AND (p.state IS NULL OR p.state <> 1 OR p.token <> i.parent OR NOT {alive p}) THEN 17
      WHEN {gone} THEN 1
      WHEN r.state NOT BETWEEN 1 AND 4 OR r.failure NOT BETWEEN 0 AND 4 THEN 18
      WHEN (r.state <> 4 OR r.failure = 1) AND r.fingerprint <> i.fingerprint
        AND substr(r.fingerprint, 1, 2) = substr(i.fingerprint, 1, 2) THEN 16
      WHEN r.token = i.token THEN
        CASE WHEN r.state = 1 THEN 10 WHEN r.state = 3 THEN 11 WHEN r.state = 4 AND r.failure > 1 THEN 14 ELSE 17 END
      WHEN r.judge = i.token THEN 15
      WHEN r.state = 3 THEN 11
      WHEN r.state = 1 AND r.lease_end > c.now AND (i.effect = '' OR r.parent_fence = p.fence) THEN 12
      WHEN r.state = 4 AND r.failure > 1 THEN
        CASE WHEN r.failure = 4 OR i.keep AND i.effect = '' OR r.delivery = i.delivery THEN 14 ELSE 3 END
      WHEN r.state <> 2 AND i.effect = '' AND (i.max_failures > 0 AND r.failures >= i.max_failures
        OR i.max_crashes > 0 AND r.crashes >= i.max_crashes) THEN 5
      WHEN r.state = 1 THEN CASE WHEN i.park THEN 6 ELSE 4 END
      WHEN r.not_before > c.now THEN 13
      ELSE 2
    END AS act
  FROM ({input}) i CROSS JOIN c
  {lookup}),
l AS MATERIALIZED (
  SELECT j.* FROM j CROSS JOIN LATERAL (
    SELECT 1 FROM {table} t
    WHERE t.scope = j.scope AND t.key = j.key AND t.effect = j.effect AND t.xmin = j.version
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
  WHERE CASE WHEN j.act < 9 AND j.version IS NOT NULL THEN {write} ELSE false END),
upd AS (
  INSERT INTO {table} AS t ({columns})
  SELECT
    CASE WHEN l.act < 5 THEN l.token ELSE l.r_token END,
    CASE WHEN l.act = 1 AND l.effect = '' THEN l.now ELSE l.r_born END,
    CASE WHEN l.act < 5 THEN l.now + l.lease * interval '1 microsecond' ELSE l.r_lease_end END,
    l.now + l.retention * interval '1 microsecond',
    CASE WHEN l.act = 1 THEN 1 WHEN l.act < 5 THEN l.r_fence + 1 ELSE l.r_fence END,
    CASE WHEN l.act = 1 THEN 1 WHEN l.act < 5 THEN l.r_starts + 1 ELSE l.r_starts END,
    CASE WHEN l.act IN (1, 3) THEN 0 ELSE l.r_failures END,
    CASE WHEN l.act IN (1, 3) THEN 0 WHEN l.act = 4 THEN l.r_crashes + 1 ELSE l.r_crashes END,
    CASE WHEN l.act < 5 THEN 1 ELSE 4 END,
    CASE WHEN l.act < 5 THEN 0 WHEN l.act = 5 THEN 3 ELSE 4 END,
    CASE WHEN l.act < 5 THEN l.act = 4 ELSE l.r_took_over END,
    CASE WHEN l.act = 5 THEN l.token END,
    CASE WHEN l.act < 5 THEN NULL ELSE l.r_not_before END,
    CASE WHEN l.act < 5 THEN l.p_fence ELSE l.r_parent_fence END,
    l.scope, l.key, l.effect,
    CASE WHEN l.act = 1 THEN l.fingerprint WHEN l.act < 5 THEN coalesce(l.fingerprint, l.r_fingerprint)
      ELSE l.r_fingerprint END,
    l.delivery,
    CASE WHEN l.act < 5 THEN l.holder ELSE l.r_holder END,
    CASE WHEN l.act < 5 THEN l.trace ELSE l.r_trace END,
    CASE WHEN l.act < 5 THEN NULL ELSE l.r_payload END
  FROM l
  ON CONFLICT (scope, key, effect) DO UPDATE SET {excluded}
  RETURNING t.scope, t.key, t.effect),
ins AS (
  INSERT INTO {table} AS t ({columns})
  SELECT j.token, j.r_born, j.now + j.lease * interval '1 microsecond',
    j.now + j.retention * interval '1 microsecond', 1, 1, 0, 0, 1, 0, false, NULL, NULL, j.p_fence,
    j.scope, j.key, j.effect, j.fingerprint, j.delivery, j.holder, j.trace, NULL
  FROM j
  WHERE CASE WHEN j.act = 1 AND j.version IS NULL THEN {write} ELSE false END
  ORDER BY j.scope COLLATE "C", j.key COLLATE "C", j.effect COLLATE "C"
  ON CONFLICT (scope, key, effect) DO NOTHING
  RETURNING t.scope, t.key, t.effect)
SELECT j.ord, j.act, w.scope IS NOT NULL AS written, j.now,
  coalesce(j.r_fence, 0), coalesce(j.r_starts, 0), coalesce(j.r_failures, 0), coalesce(j.r_crashes, 0),
  coalesce(j.r_failure, 0::smallint), coalesce(j.r_took_over, false),
  coalesce(CASE WHEN j.act = 13 THEN j.r_not_before ELSE j.r_lease_end END, j.now),
  j.r_holder, j.r_trace,
  CASE WHEN j.act IN (5, 6, 11, 14, 15) THEN j.r_payload END
FROM j LEFT JOIN (SELECT * FROM upd UNION ALL SELECT * FROM ins) w
  ON w.scope = j.scope AND w.key = j.key AND w.effect = j.effect`
