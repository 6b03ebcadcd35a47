//! The statements for the rows of jobs and leases.
//!
//! Another session may lock a row for long. A statement for many jobs must not keep all of them
//! waiting for it. So it skips such rows, or its wait is short and the requests are asked again
//! without them:
//!
//! | statement | may wait for | how long |
//! |---|---|---|
//! | [`SCHEDULE`], [`REPLACE`](super::clients::REPLACE) | a session that has added or removed the key and not committed | 50 ms a row |
//! | [`REPLACE`](super::clients::REPLACE), [`RESCHEDULE`], [`CANCEL`], [`BEGIN`], [`DONE`], [`AGAIN`] | locked jobs | 50 ms a row |
//! | [`SCHEDULE`] | locked keys whose time is over | 50 ms a row |
//! | [`HOLD`], [`HOLD_KIND`] | the node's own lease, while another connection changes it | 8 s |
//! | [`RENEW`], [`END`] of a node | the node's own lease, while a hold of this node runs | 8 s |
//! | [`END`] of leases that ran out, [`GIVE_BACK`], [`LOCKED`] | nothing: they skip locked rows | |
//! | [`RECOUNT`], [`SWEEP`], those of [`dead`](super::dead) | nothing: likewise | |
//! | [`REGISTER`], and what only reads | nothing | |
//! | each of them | a lock of the whole table, such as of a migration | as above, or 8 s |
//!
//! The limits are those of [`LOCKS`](super::LOCKS) and of the session. `migrate.rs` has what a
//! migration locks.

/// Adds jobs. `$1` to `$13`: keys, payloads, times, whether these are delays, patterns, zones,
/// within which time of now the nodes are woken, from when other times were counted, kinds,
/// priorities, queues, for how long each key is kept, trace contexts. No key may occur twice.
///
/// A key whose time is over gets the new job in the row that has kept it. Such rows are locked in
/// the order of their keys, as in [`CANCEL`], and the others are then added in this order, so that
/// two clients with the same keys do not wait for each other in a circle. No other row is locked.
/// `coalesce` keeps the server from reading all keys that are kept, by their index.
pub(super) const SCHEDULE: &str = "
    WITH n AS MATERIALIZED (
             SELECT n.key, n.payload, n.pattern, n.zone, n.kind, n.priority, n.queue, n.unique_for,
                 n.traceparent,
                 CASE WHEN n.is_delay THEN c.now + n.time ELSE n.time END AS at,
                 CASE WHEN n.is_delay THEN c.now ELSE n.counted END AS counted
             FROM (SELECT durable_now() AS now) AS c,
                 unnest($1::text[], $2::bytea[], $3::bigint[], $4::boolean[], $5::text[],
                     $6::text[], $8::bigint[], $9::text[], $10::smallint[], $11::text[],
                     $12::bigint[], $13::text[]) AS n
                     (key, payload, time, is_delay, pattern, zone, counted, kind, priority, queue,
                         unique_for, traceparent)),
         free AS MATERIALIZED (
             SELECT key FROM durable_jobs
             WHERE key = ANY($1) AND coalesce(until <= durable_now(), false)
             ORDER BY key FOR UPDATE),
         taken AS (
             UPDATE durable_jobs j
             SET payload = n.payload, due = n.at, at = n.at, attempts = 0, pattern = n.pattern,
                 zone = n.zone, error = NULL, dead = false, node = NULL, token = NULL,
                 running = false, counted = n.counted, kind = n.kind, priority = n.priority,
                 queue = n.queue, unique_for = n.unique_for, until = NULL,
                 traceparent = n.traceparent
             FROM n, free WHERE n.key = free.key AND j.key = free.key
             RETURNING j.key, j.at),
         added AS (
             INSERT INTO durable_jobs (key, payload, due, at, pattern, zone, counted, kind,
                 priority, queue, unique_for, traceparent)
             SELECT n.key, n.payload, n.at, n.at, n.pattern, n.zone, n.counted, n.kind,
                 n.priority, n.queue, n.unique_for, n.traceparent
             FROM n WHERE NOT EXISTS (SELECT FROM free WHERE free.key = n.key COLLATE \"C\")
             ORDER BY n.key COLLATE \"C\"
             ON CONFLICT DO NOTHING
             RETURNING key, at)
    SELECT key, at, CASE WHEN at <= (SELECT durable_now()) + $7
        THEN pg_notify('durable_jobs', '') END
    FROM (SELECT key, at FROM taken UNION ALL SELECT key, at FROM added) AS done";

/// Moves jobs. `$1` to `$7`: keys, times, whether these are delays, patterns, zones, within which
/// time of now the nodes are woken, from when other times were counted. No key may occur twice.
///
/// Rows are locked in the order of their keys, as in [`CANCEL`].
pub(super) const RESCHEDULE: &str = "
    WITH n AS MATERIALIZED (
             SELECT n.key, n.pattern, n.zone,
                 CASE WHEN n.is_delay THEN c.now + n.time ELSE n.time END AS at,
                 CASE WHEN n.is_delay THEN c.now ELSE n.counted END AS counted
             FROM (SELECT durable_now() AS now) AS c,
                 unnest($1::text[], $2::bigint[], $3::boolean[], $4::text[], $5::text[],
                     $7::bigint[]) AS n (key, time, is_delay, pattern, zone, counted)),
         old AS MATERIALIZED (
             SELECT key, running FROM durable_jobs WHERE key = ANY($1) AND until IS NULL
             ORDER BY key FOR UPDATE),
         moved AS (
             UPDATE durable_jobs j
             SET due = n.at, at = n.at, attempts = 0, error = NULL, dead = false,
                 pattern = coalesce(n.pattern, j.pattern), zone = coalesce(n.zone, j.zone),
                 node = NULL, token = NULL, running = false, counted = n.counted
             FROM n, old WHERE n.key = old.key AND j.key = old.key
             RETURNING j.key, j.at, old.running)
    SELECT key, at, running, CASE WHEN at <= (SELECT durable_now()) + $6
        THEN pg_notify('durable_jobs', '') END
    FROM moved";

/// Removes jobs, and frees keys that are kept. `$1`: keys.
pub(super) const CANCEL: &str = "
    WITH old AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE),
    gone AS (
        DELETE FROM durable_jobs j USING old WHERE j.key = old.key
        RETURNING j.key, j.running, j.until)
    SELECT key, running FROM gone WHERE until IS NULL";

/// Finds the jobs that somebody has locked. `$1`: keys.
pub(super) const LOCKED: &str = "
    WITH free AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE key = ANY($1::text[]) FOR UPDATE SKIP LOCKED)
    SELECT j.key FROM durable_jobs j
    WHERE j.key = ANY($1) AND NOT EXISTS (SELECT FROM free WHERE free.key = j.key)";

/// Grants a lease. `$1`: the length of the lease.
pub(super) const REGISTER: &str = "
    INSERT INTO durable_nodes (node, until, counted, version)
    SELECT nextval('durable_numbers'), c.now + $1, c.now, 5 FROM (SELECT durable_now() AS now) AS c
    RETURNING node, durable_now()";

/// Renews a lease. `$1`, `$2`: node, the length of the lease. A lease that ran out is over, even if
/// no node has noticed.
pub(super) const RENEW: &str = "
    UPDATE durable_nodes SET until = c.now + $2, counted = c.now
    FROM (SELECT durable_now() AS now) AS c
    WHERE node = $1 AND until > durable_now() RETURNING durable_now()";

/// Ends the lease of a node, or the leases that ran out, and frees a part of their jobs. `$1`,
/// `$2`: the node, or 0 for those that ran out; how many jobs. Returns how many of these leases
/// still have jobs, or 0 if these are all locked.
pub(super) const END: &str = "SELECT durable_end_2($1, $2)";

/// The start of a statement that looks for free jobs of a queue, of some kinds or of all if the
/// array is NULL, and of priorities up to a number. A queue that is paused has none. `every` begins
/// with the empty kind, and finds the others by steps in the index, one for each. So a store
/// without kinds costs one step behind all its jobs. Each kind has all priorities: one of which
/// there is no job costs a look in the index.
macro_rules! lanes {
    ($queue:literal, $kinds:literal, $lowest:literal) => {
        concat!(
            "
    WITH RECURSIVE clock AS MATERIALIZED (SELECT durable_now() AS now),
         every (kind) AS (
             SELECT '' COLLATE \"C\" WHERE ",
            $kinds,
            "::text[] IS NULL
             UNION ALL
             SELECT (SELECT j.kind FROM durable_jobs j
                     WHERE j.node IS NULL AND NOT j.dead AND j.kind > e.kind AND j.queue = ",
            $queue,
            "
                     ORDER BY j.kind LIMIT 1)
             FROM every e WHERE e.kind IS NOT NULL),
         kinds AS MATERIALIZED (
             SELECT kind FROM every WHERE kind IS NOT NULL
             UNION ALL SELECT unnest(",
            $kinds,
            "::text[])),
         lanes AS MATERIALIZED (
             SELECT k.kind, p.priority FROM kinds k, generate_series(0, ",
            $lowest,
            "::integer) AS p (priority)
             WHERE (SELECT ",
            $queue,
            " <> ALL (paused) FROM durable_version))"
        )
    };
}

/// The end of a statement that makes a node the holder of the jobs in `free`, which it has locked.
/// The lock on the lease keeps it from ending during the statement. The server knows nothing of the
/// length of an array, so it finds the jobs by their keys. With a join it may read the whole table.
macro_rules! hold {
    () => {
        "
         lease AS MATERIALIZED (
             SELECT node FROM durable_nodes WHERE node = $1 AND until > durable_now() FOR SHARE)
    UPDATE durable_jobs j SET node = lease.node, token = nextval('durable_numbers')
    FROM lease WHERE j.key = ANY (ARRAY(SELECT key FROM free))
    RETURNING j.key, j.due, j.at, j.attempts::bigint, j.pattern, j.zone,
        octet_length(j.payload)::bigint, j.token, j.kind, j.priority::bigint,
        j.queue, j.traceparent"
    };
}

/// Makes a node the holder of jobs of a kind. `$1` to `$7`: node, after and within which times of
/// now the jobs are due, most, kind, the lowest priority, queue. The join takes one priority after
/// the other, so no more rows are locked than are taken. A queue that is paused has none.
pub(super) const HOLD_KIND: &str = concat!(
    "
    WITH clock AS MATERIALIZED (SELECT durable_now() AS now),
         free AS MATERIALIZED (
             SELECT f.key FROM generate_series(0, $6::integer) AS p (priority), LATERAL (
                 SELECT j.key FROM durable_jobs j
                 WHERE j.queue = $7 AND j.kind = $5 AND j.priority = p.priority
                     AND j.node IS NULL AND NOT j.dead
                     AND j.at > (SELECT now FROM clock) + $2
                     AND j.at <= (SELECT now FROM clock) + $3
                 ORDER BY j.at LIMIT $4 FOR UPDATE SKIP LOCKED) AS f
             WHERE (SELECT $7 <> ALL (paused) FROM durable_version)
             LIMIT $4),",
    hold!()
);

/// Makes a node the holder of jobs of several kinds, as [`HOLD_KIND`]. `$5`: kinds.
///
/// Of one priority, the kind with the earliest job comes first. A session may have locked this job
/// for long, and it stays the first. So that no other kind waits for that, one look in eight has
/// the kinds in any order. If all jobs are of one kind, nothing is read to learn that.
pub(super) const HOLD: &str = concat!(
    lanes!("$7", "$5", "$6"),
    ",
         luck AS MATERIALIZED (SELECT random() < 0.125 AS decides),
         ordered AS MATERIALIZED (
             SELECT l.kind, l.priority FROM lanes l, LATERAL (
                 (SELECT j.at FROM durable_jobs j
                  WHERE (SELECT count(*) FROM kinds) > 1
                      AND j.queue = $7 AND j.kind = l.kind AND j.priority = l.priority
                      AND j.node IS NULL AND NOT j.dead
                      AND j.at > (SELECT now FROM clock) + $2
                      AND j.at <= (SELECT now FROM clock) + $3
                  ORDER BY j.at LIMIT 1)
                 UNION ALL SELECT 0 WHERE (SELECT count(*) FROM kinds) = 1) AS first
             ORDER BY l.priority,
                 CASE WHEN (SELECT decides FROM luck) THEN random() ELSE first.at END),
         free AS MATERIALIZED (
             SELECT f.key FROM ordered o, LATERAL (
                 SELECT j.key FROM durable_jobs j
                 WHERE j.queue = $7 AND j.kind = o.kind AND j.priority = o.priority
                     AND j.node IS NULL AND NOT j.dead
                     AND j.at > (SELECT now FROM clock) + $2
                     AND j.at <= (SELECT now FROM clock) + $3
                 ORDER BY j.at LIMIT $4 FOR UPDATE SKIP LOCKED) AS f
             LIMIT $4),",
    hold!()
);

/// Takes jobs from their holders. `$1`, `$2`: keys, tokens. Leaves jobs alone that somebody has
/// locked, and returns their keys and tokens, beside a row without them.
pub(super) const GIVE_BACK: &str = "
    WITH n AS MATERIALIZED (
             SELECT key, token FROM unnest($1::text[], $2::bigint[]) AS n (key, token)),
         old AS MATERIALIZED (
             SELECT j.key FROM durable_jobs j, n
             WHERE j.key = n.key AND j.token = n.token FOR UPDATE OF j SKIP LOCKED),
         given AS (
             UPDATE durable_jobs j SET node = NULL, token = NULL, running = false
             FROM old WHERE j.key = old.key
             RETURNING 1)
    SELECT NULL::text, NULL::bigint, pg_notify('durable_jobs', '')::text
        WHERE EXISTS (SELECT FROM given)
    UNION ALL
    SELECT j.key, j.token, NULL FROM durable_jobs j, n
        WHERE j.key = n.key AND j.token = n.token
            AND NOT EXISTS (SELECT FROM old WHERE old.key = j.key)";

/// Finds out whether a job has no holder. `$1` to `$5`: after and within which times of now it is
/// due, kinds, the lowest priority, queue. A job that is locked counts.
pub(super) const SKIPPED: &str = concat!(
    lanes!("$5", "$3", "$4"),
    "
    SELECT EXISTS (SELECT FROM lanes l, LATERAL (
        SELECT FROM durable_jobs j
        WHERE j.queue = $5 AND j.kind = l.kind AND j.priority = l.priority
            AND j.node IS NULL AND NOT j.dead
            AND j.at > (SELECT now FROM clock) + $1 AND j.at <= (SELECT now FROM clock) + $2
        ORDER BY j.at LIMIT 1) AS free)"
);

/// Finds the attempts whose tokens are still those of their jobs. `$1`, `$2`: keys, tokens. Says of
/// each whether its queue is paused.
pub(super) const STILL: &str = "
    SELECT j.key, n.token, (SELECT j.queue = ANY (paused) FROM durable_version)
    FROM durable_jobs j, unnest($1::text[], $2::bigint[]) AS n (key, token)
    WHERE j.key = n.key AND j.token = n.token";

/// The time of the store's clock.
pub(super) const NOW: &str = "SELECT durable_now()";

/// Lists jobs. `$1` to `$7`: text in the key, key before, whether only the dead or the others,
/// limit, how many bytes of a payload, and characters of an error, at most, only which kind and
/// queue.
pub(super) const LIST: &str = "
    SELECT j.key, substr(j.payload, 1, $5::integer), j.due, j.at, j.attempts::bigint, j.pattern,
        j.zone, left(j.error, $5::integer), j.dead, j.running, j.kind,
        j.priority::bigint, j.queue, j.traceparent
    FROM durable_jobs j
    WHERE strpos(j.key, $1) > 0 AND j.key > $2 AND ($3::boolean IS NULL OR j.dead = $3)
        AND ($6::text IS NULL OR j.kind = $6) AND ($7::text IS NULL OR j.queue = $7)
        AND j.until IS NULL
    ORDER BY j.key LIMIT $4";

/// Finds a job. `$1`: key.
pub(super) const FIND: &str = "
    SELECT j.key, j.payload, j.due, j.at, j.attempts::bigint, j.pattern, j.zone, j.error, j.dead,
        j.running, j.kind, j.priority::bigint, j.queue, j.traceparent
    FROM durable_jobs j WHERE j.key = $1 AND j.until IS NULL";

/// Finds until when a key is taken. `$1`: key. Returns when its job is due or, if that is done, when
/// the key is free. If the clock was ahead by more than `$2` when the job was done, the time begins
/// now.
pub(super) const TAKEN: &str = "
    SELECT CASE WHEN j.until IS NULL THEN j.at
        WHEN j.counted > c.now + $2 THEN c.now + j.until - j.counted ELSE j.until END
    FROM durable_jobs j, (SELECT durable_now() AS now) AS c
    WHERE j.key = $1";

/// Forgets keys that are free again, at most `$1`, but those that somebody has locked. Counts the
/// times of others from now, if the clock was ahead by more than `$2`. A clock that shows less than
/// `$3` has not been set, and counts nothing again. Returns how many keys it has forgotten, and how
/// many times it has counted.
pub(super) const SWEEP: &str = "
    WITH old AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE until IS NOT NULL AND until <= (SELECT durable_now())
        LIMIT $1 FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM durable_jobs j WHERE j.key = ANY (ARRAY(SELECT key FROM old)) RETURNING 1),
    ahead AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE until IS NOT NULL
            AND counted > (SELECT durable_now()) + $2 AND (SELECT durable_now()) >= $3
        LIMIT $1 FOR UPDATE SKIP LOCKED),
    again AS (
        UPDATE durable_jobs j SET until = j.until - j.counted + c.now, counted = c.now
        FROM (SELECT durable_now() AS now) AS c
        WHERE j.key = ANY (ARRAY(SELECT key FROM ahead))
        RETURNING 1)
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM again)";

/// Counts the live and the dead.
pub(super) const COUNT: &str = "
    SELECT count(*) FILTER (WHERE NOT dead), count(*) FILTER (WHERE dead AND until IS NULL)
    FROM durable_jobs";

/// Begins attempts. `$1` to `$3`: keys, tokens, times from the begin until the next attempt. The
/// client may repeat this, as the answer may be lost. Begins none of a queue that is paused:
/// `pause.rs` says what `durable_paused` locks.
pub(super) const BEGIN: &str = "
    WITH c AS MATERIALIZED (SELECT durable_now() AS now, durable_paused() AS paused)
    UPDATE durable_jobs j SET running = true,
        attempts = CASE WHEN j.running THEN j.attempts ELSE j.attempts + 1 END,
        at = CASE WHEN j.running THEN j.at ELSE c.now + n.wait END,
        counted = CASE WHEN j.running THEN j.counted ELSE c.now END
    FROM c, unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (key, token, wait)
    WHERE j.key = n.key AND j.token = n.token
        AND (j.running OR j.at <= (SELECT durable_now()) AND j.queue <> ALL (c.paused))
    RETURNING j.key, n.token, j.attempts::bigint, durable_now(), j.payload";

/// Removes jobs that are done. `$1`, `$2`: keys, tokens. A key that is to be kept stays as a dead
/// job, until its time is over. This is the row itself: a client that adds the key meanwhile waits
/// for its lock, and finds it taken then. No row of a key is ever missing in between.
pub(super) const DONE: &str = "
    WITH n AS MATERIALIZED (
        SELECT key, token FROM unnest($1::text[], $2::bigint[]) AS n (key, token)),
    kept AS (
        UPDATE durable_jobs j
        SET payload = '', dead = true, until = c.now + j.unique_for, counted = c.now, error = NULL,
            node = NULL, token = NULL, running = false, traceparent = NULL
        FROM n, (SELECT durable_now() AS now) AS c
        WHERE j.key = n.key AND j.token = n.token AND j.unique_for IS NOT NULL
        RETURNING j.key, n.token),
    gone AS (
        DELETE FROM durable_jobs j USING n
        WHERE j.key = n.key AND j.token = n.token AND j.unique_for IS NULL
        RETURNING j.key, n.token)
    SELECT key, token FROM gone UNION ALL SELECT key, token FROM kept";

/// Ends attempts of jobs that stay. `$1` to `$8`: keys, tokens, times, whether these are delays,
/// errors, kinds (0: the next occurrence, 1: another attempt, 2: dead, 3: snoozed), within which
/// time of now the nodes are woken, from when other times were counted.
pub(super) const AGAIN: &str = "
    WITH ended AS (
        UPDATE durable_jobs j
        SET at = CASE WHEN n.kind = 2 THEN j.at ELSE t.at END,
            due = CASE WHEN n.kind = 0 THEN t.at ELSE j.due END,
            attempts = CASE n.kind WHEN 0 THEN 0 WHEN 3 THEN greatest(j.attempts - 1, 0)
                ELSE j.attempts END,
            error = CASE n.kind WHEN 3 THEN j.error ELSE n.error END,
            dead = n.kind = 2, node = NULL, token = NULL, running = false,
            counted = CASE WHEN n.is_delay THEN c.now ELSE n.counted END
        FROM (SELECT durable_now() AS now) AS c,
            unnest($1::text[], $2::bigint[], $3::bigint[], $4::boolean[], $5::text[],
                $6::integer[], $8::bigint[])
                AS n (key, token, time, is_delay, error, kind, counted),
            LATERAL (SELECT CASE WHEN n.is_delay THEN c.now + n.time ELSE n.time END) AS t (at)
        WHERE j.key = n.key AND j.token = n.token
        RETURNING j.key, n.token, j.at, j.dead)
    SELECT key, token, CASE WHEN NOT dead AND at <= (SELECT durable_now()) + $7
        THEN pg_notify('durable_jobs', '') END
    FROM ended";

/// Finds jobs, from the latest on, whose times were counted when the clock showed a time later than
/// now by more than `$1`. `$2`, `$3`: from when the job before them was counted, and its key. `$4`:
/// how many at most. Returns the time of the clock with each.
pub(super) const COUNTED: &str = "
    SELECT j.key, j.at, j.counted, j.attempts::bigint, j.pattern, j.zone, (SELECT durable_now())
    FROM durable_jobs j
    WHERE j.counted IS NOT NULL AND NOT j.dead AND NOT j.running
        AND j.counted > (SELECT durable_now()) + $1 AND (j.counted, j.key) < ($2, $3)
    ORDER BY j.counted DESC, j.key DESC LIMIT $4";

/// Writes times that were counted again. `$1` to `$6`: keys, the times before, from when these were
/// counted, the times now, from when they are counted, within which time of now the nodes are
/// woken. The jobs lose their holders, if nothing else has changed them, and they do not run.
pub(super) const RECOUNT: &str = "
    WITH old AS MATERIALIZED (
        SELECT j.key, n.at, n.counted
        FROM durable_jobs j, unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],
            $5::bigint[]) AS n (key, old_at, old_counted, at, counted)
        WHERE j.key = n.key AND j.at = n.old_at AND j.counted = n.old_counted
            AND NOT j.dead AND NOT j.running
        FOR UPDATE OF j SKIP LOCKED),
    moved AS (
        UPDATE durable_jobs j
        SET at = old.at, due = CASE WHEN j.attempts = 0 THEN old.at ELSE j.due END,
            counted = old.counted, node = NULL, token = NULL
        FROM old WHERE j.key = old.key
        RETURNING j.at)
    SELECT CASE WHEN at <= (SELECT durable_now()) + $6 THEN pg_notify('durable_jobs', '') END
    FROM moved";
