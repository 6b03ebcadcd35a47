//! The tables, their indexes, and the function that ends leases.

use super::{kinds::FUNCTIONS, pause, schedule};
use crate::{
    job::{DEFAULT_PRIORITY, DEFAULT_QUEUE},
    store::StoreError,
};

/// The number of the lock that one process has while it makes the tables or a function.
pub(super) const MAKING: i64 = 0x6475_7261_626c_6531;

/// Finds out whether there are tables. Those of another version count.
pub(super) const HAS_TABLES: &str = "SELECT to_regclass('durable_version') IS NOT NULL";

/// Finds out the version of the tables.
pub(super) const VERSION: &str = "SELECT version FROM durable_version";

/// Makes the tables and the functions, all or none of them.
pub(super) fn all() -> String {
    format!(
        "BEGIN;
         SET LOCAL statement_timeout = 0;
         SET LOCAL lock_timeout = 5000;
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
             running boolean NOT NULL DEFAULT false,
             counted bigint,
             kind text COLLATE \"C\" NOT NULL DEFAULT '',
             priority smallint NOT NULL DEFAULT {DEFAULT_PRIORITY},
             queue text COLLATE \"C\" NOT NULL DEFAULT '{DEFAULT_QUEUE}',
             unique_for bigint,
             until bigint,
             traceparent text
         );
         {KEPT_CHECK}
         CREATE INDEX IF NOT EXISTS durable_jobs_held ON durable_jobs (node)
             WHERE node IS NOT NULL;
         CREATE INDEX IF NOT EXISTS durable_jobs_dead ON durable_jobs (key) WHERE dead;
         CREATE INDEX IF NOT EXISTS {counted};
         CREATE INDEX IF NOT EXISTS {lane};
         CREATE INDEX IF NOT EXISTS {kept};
         CREATE INDEX IF NOT EXISTS {kept_since};
         CREATE TABLE IF NOT EXISTS durable_nodes (
             node bigint PRIMARY KEY,
             until bigint NOT NULL,
             counted bigint,
             version bigint NOT NULL DEFAULT 2
         );
         CREATE SEQUENCE IF NOT EXISTS durable_numbers;
         CREATE TABLE IF NOT EXISTS durable_version (
             version bigint NOT NULL,
             has_kinds boolean NOT NULL DEFAULT false,
             paused text[] NOT NULL DEFAULT '{{}}',
             has_kept boolean NOT NULL DEFAULT false
         );
         INSERT INTO durable_version (version, has_kinds, has_kept)
             SELECT {version}, true, true WHERE NOT EXISTS (SELECT FROM durable_version);
         CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
             'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
         {END_FUNCTION}
         {FUNCTIONS}
         {pause}
         {schedule}
         COMMIT;",
        version = StoreError::TABLES,
        counted = INDEXES[0].1,
        lane = INDEXES[1].1,
        kept = INDEXES[2].1,
        kept_since = INDEXES[3].1,
        pause = pause::functions(),
        schedule = schedule::functions(),
    )
}

/// A job that is done keeps its key as a dead one, with the time at which the key is free, if this is
/// to be so. A client of an earlier version takes it for a dead job. It may remove it, and cannot
/// make it live again.
pub(super) const KEPT_CHECK: &str = "
    ALTER TABLE durable_jobs DROP CONSTRAINT IF EXISTS durable_jobs_kept,
        ADD CONSTRAINT durable_jobs_kept CHECK (until IS NULL OR dead) NOT VALID;";

/// The indexes of versions 2, 3 and 4, each with its name.
pub(super) const INDEXES: [(&str, &str); 4] = [
    (
        "durable_jobs_counted",
        "durable_jobs_counted ON durable_jobs (counted, key)
            WHERE counted IS NOT NULL AND NOT dead AND NOT running",
    ),
    (
        "durable_jobs_lane",
        "durable_jobs_lane ON durable_jobs (queue, kind, priority, at)
            WHERE node IS NULL AND NOT dead",
    ),
    (
        "durable_jobs_until",
        "durable_jobs_until ON durable_jobs (until) WHERE until IS NOT NULL",
    ),
    (
        "durable_jobs_kept_since",
        "durable_jobs_kept_since ON durable_jobs (counted) WHERE until IS NOT NULL",
    ),
];

/// The function of version 2.
///
/// Programs of version 1 have a function `durable_end` of their own, which they make anew as they
/// connect. So a function that changes gets another name.
pub(super) const END_FUNCTION: &str = "
    CREATE OR REPLACE FUNCTION durable_end_2(ended bigint, most bigint) RETURNS bigint
        LANGUAGE plpgsql AS $$
    DECLARE
        gone bigint[];
        freed bigint;
        deleted bigint;
    BEGIN
        -- Waits for holds of this node. Later ones see that its lease is over.
        UPDATE durable_nodes SET until = 0 WHERE node = ended AND until > 0;
        -- If the clock was put back, leases that were granted before begin now.
        WITH ahead AS MATERIALIZED (
            SELECT node FROM durable_nodes
            WHERE counted > durable_now() AND until > counted
            FOR UPDATE SKIP LOCKED)
        UPDATE durable_nodes n
            SET until = n.until - n.counted + durable_now(), counted = durable_now()
            FROM ahead WHERE n.node = ahead.node;
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
";
