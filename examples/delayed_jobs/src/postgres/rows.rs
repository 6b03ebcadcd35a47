//! The tables, the statements, and the rows of jobs.
//!
//! Another session may lock a row for long. A statement for many jobs must not keep all of them
//! waiting for it. So it skips such rows, or its wait is short and the requests are asked again
//! without them:
//!
//! | statement | may wait for | how long |
//! |---|---|---|
//! | [`SCHEDULE`] | a session that has added or removed the key and not committed | 50 ms a row |
//! | [`RESCHEDULE`], [`CANCEL`], [`BEGIN`], [`DONE`], [`AGAIN`] | locked jobs | 50 ms a row |
//! | [`HOLD`] | the node's own lease, while another connection changes it | 8 s |
//! | [`RENEW`], [`END`] of a node | the node's own lease, while a hold of this node runs | 8 s |
//! | [`END`] of leases that ran out, [`GIVE_BACK`], [`LOCKED`] | nothing: they skip locked rows | |
//! | [`REGISTER`], and what only reads | nothing | |
//! | each of them | a lock of the whole table, such as of a migration | as above, or 8 s |
//!
//! The limits are those of [`LOCKS`](super::LOCKS) and of the session.

use tokio_postgres::Row;

use crate::{
    job::{Job, Repeat, State, Time, Token},
    store::{Held, StoreError},
};

/// The number of the lock that one process has while it makes the tables.
const MAKING: i64 = 0x6475_7261_626c_6531;

/// Finds out whether there are tables. Those of another version count.
pub(super) const HAS_TABLES: &str = "SELECT to_regclass('durable_version') IS NOT NULL";

/// Makes the tables unless they exist.
pub(super) fn tables() -> String {
    format!(
        "BEGIN;
         SELECT pg_advisory_xact_lock({MAKING});
         CREATE TABLE IF NOT EXISTS durable_jobs (
             key text COLLATE \"C\" PRIMARY KEY,
             payload bytea NOT NULL,
             due bigint NOT NULL,
             at bigint NOT NULL,
             attempts integer NOT NULL DEFAULT 0,
             pattern text,
             zone text,
             error text,
             dead boolean NOT NULL DEFAULT false,
             node bigint,
             token bigint,
             running boolean NOT NULL DEFAULT false
         );
         CREATE INDEX IF NOT EXISTS durable_jobs_free ON durable_jobs (at)
             WHERE node IS NULL AND NOT dead;
         CREATE INDEX IF NOT EXISTS durable_jobs_held ON durable_jobs (node)
             WHERE node IS NOT NULL;
         CREATE INDEX IF NOT EXISTS durable_jobs_dead ON durable_jobs (key) WHERE dead;
         CREATE TABLE IF NOT EXISTS durable_nodes (
             node bigint PRIMARY KEY,
             until bigint NOT NULL
         );
         CREATE SEQUENCE IF NOT EXISTS durable_numbers;
         CREATE TABLE IF NOT EXISTS durable_version (version bigint NOT NULL);
         INSERT INTO durable_version
             SELECT {version} WHERE NOT EXISTS (SELECT FROM durable_version);
         CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
             'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
         CREATE OR REPLACE FUNCTION durable_end(ended bigint, most bigint) RETURNS bigint
             LANGUAGE plpgsql AS $$
         DECLARE
             gone bigint[];
             freed bigint;
             deleted bigint;
         BEGIN
             -- Waits for holds of this node. Later ones see that its lease is over.
             UPDATE durable_nodes SET until = 0 WHERE node = ended AND until > 0;
             WITH locked AS (
                 SELECT node FROM durable_nodes
                 WHERE until <= durable_now() AND (ended = 0 OR node = ended)
                 FOR UPDATE SKIP LOCKED)
             SELECT array_agg(node) INTO gone FROM locked;
             IF gone IS NULL THEN
                 RETURN 0;
             END IF;
             -- A statement of its own sees all jobs that these nodes took before. Only with
             -- `IS NOT NULL` can each plan use the index. A job that somebody has locked is left for
             -- a later call, so that it keeps no other one waiting.
             WITH old AS MATERIALIZED (
                 SELECT key FROM durable_jobs WHERE node = ANY(gone) AND node IS NOT NULL
                 LIMIT most FOR UPDATE SKIP LOCKED)
             UPDATE durable_jobs j SET node = NULL, token = NULL, running = false
                 FROM old WHERE j.key = old.key;
             GET DIAGNOSTICS freed = ROW_COUNT;
             IF freed > 0 THEN
                 NOTIFY durable_jobs;
             END IF;
             DELETE FROM durable_nodes n WHERE n.node = ANY(gone) AND NOT EXISTS
                 (SELECT FROM durable_jobs j WHERE j.node = n.node AND j.node IS NOT NULL);
             GET DIAGNOSTICS deleted = ROW_COUNT;
             RETURN CASE WHEN freed = 0 THEN 0 ELSE cardinality(gone) - deleted END;
         END $$;
         COMMIT;",
        version = StoreError::TABLES
    )
}

/// Adds jobs. `$1` to `$7`: keys, payloads, times, whether these are delays, patterns, zones,
/// within which time of now the nodes are woken.
///
/// Rows are added in the order of their keys, so that two clients with the same keys do not wait
/// for each other in a circle.
pub(super) const SCHEDULE: &str = "
    WITH added AS (
        INSERT INTO durable_jobs (key, payload, due, at, pattern, zone)
        SELECT n.key, n.payload, t.at, t.at, n.pattern, n.zone
        FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::boolean[], $5::text[], $6::text[])
            AS n (key, payload, time, is_delay, pattern, zone),
            LATERAL (SELECT CASE WHEN n.is_delay THEN durable_now() + n.time ELSE n.time END)
                AS t (at)
        ORDER BY n.key
        ON CONFLICT DO NOTHING
        RETURNING key, at)
    SELECT key, at, CASE WHEN at <= (SELECT durable_now()) + $7
        THEN pg_notify('durable_jobs', '') END
    FROM added";

/// Moves jobs. `$1` to `$6`: keys, times, whether these are delays, patterns, zones, within which
/// time of now the nodes are woken. No key may occur twice.
///
/// Rows are locked in the order of their keys, as in [`CANCEL`].
pub(super) const RESCHEDULE: &str = "
    WITH n AS MATERIALIZED (
             SELECT n.key, n.pattern, n.zone,
                 CASE WHEN n.is_delay THEN durable_now() + n.time ELSE n.time END AS at
             FROM unnest($1::text[], $2::bigint[], $3::boolean[], $4::text[], $5::text[])
                 AS n (key, time, is_delay, pattern, zone)),
         old AS MATERIALIZED (
             SELECT key, running FROM durable_jobs WHERE key = ANY($1) ORDER BY key FOR UPDATE),
         moved AS (
             UPDATE durable_jobs j
             SET due = n.at, at = n.at, attempts = 0, error = NULL, dead = false,
                 pattern = coalesce(n.pattern, j.pattern), zone = coalesce(n.zone, j.zone),
                 node = NULL, token = NULL, running = false
             FROM n, old WHERE n.key = old.key AND j.key = old.key
             RETURNING j.key, j.at, old.running)
    SELECT key, at, running, CASE WHEN at <= (SELECT durable_now()) + $6
        THEN pg_notify('durable_jobs', '') END
    FROM moved";

/// Removes jobs. `$1`: keys.
pub(super) const CANCEL: &str = "
    WITH old AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE)
    DELETE FROM durable_jobs j USING old WHERE j.key = old.key RETURNING j.key, j.running";

/// Finds the jobs that somebody has locked. `$1`: keys.
pub(super) const LOCKED: &str = "
    WITH free AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE key = ANY($1::text[]) FOR UPDATE SKIP LOCKED)
    SELECT j.key FROM durable_jobs j
    WHERE j.key = ANY($1) AND NOT EXISTS (SELECT FROM free WHERE free.key = j.key)";

/// Grants a lease. `$1`: the length of the lease.
pub(super) const REGISTER: &str = "
    INSERT INTO durable_nodes VALUES (nextval('durable_numbers'), durable_now() + $1)
    RETURNING node, durable_now()";

/// Renews a lease. `$1`, `$2`: node, the length of the lease. A lease that ran out is over, even if
/// no node has noticed.
pub(super) const RENEW: &str = "
    UPDATE durable_nodes SET until = durable_now() + $2
    WHERE node = $1 AND until > durable_now() RETURNING durable_now()";

/// Ends the lease of a node, or the leases that ran out, and frees a part of their jobs. `$1`,
/// `$2`: the node, or 0 for those that ran out; how many jobs. Returns how many of these leases
/// still have jobs, or 0 if these are all locked.
pub(super) const END: &str = "SELECT durable_end($1, $2)";

/// Makes a node the holder of jobs. `$1` to `$4`: node, after and within which times of now the
/// jobs are due, most. The lock on the lease keeps
/// it from ending during this statement.
pub(super) const HOLD: &str = "
    WITH clock AS MATERIALIZED (SELECT durable_now() AS now),
         lease AS MATERIALIZED (
             SELECT node FROM durable_nodes WHERE node = $1 AND until > durable_now() FOR SHARE),
         free AS MATERIALIZED (
             SELECT j.key FROM durable_jobs j
             WHERE j.node IS NULL AND NOT j.dead
                 AND j.at > (SELECT now FROM clock) + $2 AND j.at <= (SELECT now FROM clock) + $3
             ORDER BY j.at LIMIT $4 FOR UPDATE SKIP LOCKED)
    UPDATE durable_jobs j SET node = lease.node, token = nextval('durable_numbers')
    FROM free, lease WHERE j.key = free.key
    RETURNING j.key, j.due, j.at, j.attempts, j.pattern, j.zone, octet_length(j.payload), j.token";

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

/// Finds out whether a job has no holder. `$1`, `$2`: after and within which times of now it is due.
/// A job that is locked counts.
pub(super) const SKIPPED: &str = "
    WITH clock AS MATERIALIZED (SELECT durable_now() AS now)
    SELECT EXISTS (SELECT FROM durable_jobs j
        WHERE j.node IS NULL AND NOT j.dead
            AND j.at > (SELECT now FROM clock) + $1 AND j.at <= (SELECT now FROM clock) + $2)";

/// Finds the attempts whose tokens are still those of their jobs. `$1`, `$2`: keys, tokens.
pub(super) const STILL: &str = "
    SELECT j.key, n.token
    FROM durable_jobs j, unnest($1::text[], $2::bigint[]) AS n (key, token)
    WHERE j.key = n.key AND j.token = n.token";

/// The time of the store's clock.
pub(super) const NOW: &str = "SELECT durable_now()";

/// Lists jobs. `$1` to `$5`: text in the key, key before, whether only the dead or the others,
/// limit, how many bytes of a payload, and characters of an error, at most.
pub(super) const LIST: &str = "
    SELECT j.key, substr(j.payload, 1, $5::integer), j.due, j.at, j.attempts, j.pattern, j.zone,
        left(j.error, $5::integer), j.dead, j.running
    FROM durable_jobs j
    WHERE strpos(j.key, $1) > 0 AND j.key > $2 AND ($3::boolean IS NULL OR j.dead = $3)
    ORDER BY j.key LIMIT $4";

/// Finds a job. `$1`: key.
pub(super) const FIND: &str = "
    SELECT j.key, j.payload, j.due, j.at, j.attempts, j.pattern, j.zone, j.error, j.dead, j.running
    FROM durable_jobs j WHERE j.key = $1";

/// Counts the live and the dead.
pub(super) const COUNT: &str = "
    SELECT count(*) FILTER (WHERE NOT dead), count(*) FILTER (WHERE dead) FROM durable_jobs";

/// Begins attempts. `$1` to `$3`: keys, tokens, times from the begin until the next attempt. The
/// client may repeat this, as the answer may be lost.
pub(super) const BEGIN: &str = "
    UPDATE durable_jobs j SET running = true,
        attempts = CASE WHEN j.running THEN j.attempts ELSE j.attempts + 1 END,
        at = CASE WHEN j.running THEN j.at ELSE durable_now() + n.wait END
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (key, token, wait)
    WHERE j.key = n.key AND j.token = n.token
        AND (j.running OR j.at <= (SELECT durable_now()))
    RETURNING j.key, n.token, j.attempts, durable_now(), j.payload";

/// Removes jobs that are done. `$1`, `$2`: keys, tokens.
pub(super) const DONE: &str = "
    DELETE FROM durable_jobs j USING unnest($1::text[], $2::bigint[]) AS n (key, token)
    WHERE j.key = n.key AND j.token = n.token
    RETURNING j.key, n.token";

/// Ends attempts of jobs that stay. `$1` to `$7`: keys, tokens, times, whether these are delays,
/// errors, kinds (0: the next occurrence, 1: another attempt, 2: dead), within which time of now
/// the nodes are woken.
pub(super) const AGAIN: &str = "
    WITH ended AS (
        UPDATE durable_jobs j
        SET at = CASE WHEN n.kind = 2 THEN j.at ELSE t.at END,
            due = CASE WHEN n.kind = 0 THEN t.at ELSE j.due END,
            attempts = CASE WHEN n.kind = 0 THEN 0 ELSE j.attempts END,
            error = n.error, dead = n.kind = 2, node = NULL, token = NULL, running = false
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::boolean[], $5::text[],
                $6::integer[]) AS n (key, token, time, is_delay, error, kind),
            LATERAL (SELECT CASE WHEN n.is_delay THEN durable_now() + n.time ELSE n.time END)
                AS t (at)
        WHERE j.key = n.key AND j.token = n.token
        RETURNING j.key, n.token, j.at, j.dead)
    SELECT key, token, CASE WHEN NOT dead AND at <= (SELECT durable_now()) + $7
        THEN pg_notify('durable_jobs', '') END
    FROM ended";

/// Reads a job from a row of [`HOLD`].
pub(super) fn held(row: &Row) -> Result<Held, tokio_postgres::Error> {
    let pattern: Option<String> = row.try_get(4)?;
    let zone: Option<String> = row.try_get(5)?;
    let (attempts, size): (i32, i32) = (row.try_get(3)?, row.try_get(6)?);
    Ok(Held {
        key: row.try_get(0)?,
        due: Time::from_micros(row.try_get(1)?),
        at: Time::from_micros(row.try_get(2)?),
        attempts: u32::try_from(attempts).unwrap_or(0),
        repeat: pattern
            .zip(zone)
            .map(|(pattern, zone)| Repeat::stored(pattern, zone)),
        size: usize::try_from(size).unwrap_or(0),
        token: Token(row.try_get(7)?),
    })
}

/// Reads a job from a row of [`FIND`] or [`LIST`].
pub(super) fn job(row: &Row) -> Result<Job, tokio_postgres::Error> {
    let pattern: Option<String> = row.try_get(5)?;
    let zone: Option<String> = row.try_get(6)?;
    let attempts: i32 = row.try_get(4)?;
    let (dead, running): (bool, bool) = (row.try_get(8)?, row.try_get(9)?);
    Ok(Job {
        key: row.try_get(0)?,
        payload: row.try_get(1)?,
        due: Time::from_micros(row.try_get(2)?),
        at: Time::from_micros(row.try_get(3)?),
        attempts: u32::try_from(attempts).unwrap_or(0),
        repeat: pattern
            .zip(zone)
            .map(|(pattern, zone)| Repeat::stored(pattern, zone)),
        error: row.try_get(7)?,
        state: match (dead, running) {
            (true, _) => State::Dead,
            (false, true) => State::Running,
            (false, false) => State::Waiting,
        },
    })
}
