-- The tables of version 1, as programs made them.
BEGIN;
SELECT pg_advisory_xact_lock(7238817738656605489);
CREATE TABLE IF NOT EXISTS durable_jobs (
    key text COLLATE "C" PRIMARY KEY,
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
    SELECT 1 WHERE NOT EXISTS (SELECT FROM durable_version);
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
    -- `IS NOT NULL` can each plan use the index.
    WITH old AS MATERIALIZED (
        SELECT key FROM durable_jobs WHERE node = ANY(gone) AND node IS NOT NULL
        LIMIT most FOR UPDATE)
    UPDATE durable_jobs j SET node = NULL, token = NULL, running = false
        FROM old WHERE j.key = old.key;
    GET DIAGNOSTICS freed = ROW_COUNT;
    IF freed > 0 THEN
        NOTIFY durable_jobs;
    END IF;
    DELETE FROM durable_nodes n WHERE n.node = ANY(gone) AND NOT EXISTS
        (SELECT FROM durable_jobs j WHERE j.node = n.node AND j.node IS NOT NULL);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN cardinality(gone) - deleted;
END $$;
COMMIT;
-- Jobs in all states. The lease of the node that has two of them has run out.
INSERT INTO durable_nodes VALUES (1, durable_now() - 1);
SELECT setval('durable_numbers', 10);
INSERT INTO durable_jobs
    SELECT j.key, convert_to('of ' || j.key, 'UTF8'), durable_now() + wait, durable_now() + wait,
        attempts, pattern, CASE WHEN pattern IS NOT NULL THEN 'UTC' END, error, dead, node, token,
        running
    FROM (VALUES
        ('cron', 0, 0, '0 0 1 1 *', NULL, false, NULL::bigint, NULL::bigint, false),
        ('dead', 0, 8, NULL, 'broken', true, NULL, NULL, false),
        ('due', 0, 0, NULL, NULL, false, NULL, NULL, false),
        ('held', 0, 0, NULL, NULL, false, 1, 5, false),
        ('later', 3600000000, 0, NULL, NULL, false, NULL, NULL, false),
        ('retry', 0, 1, NULL, 'failed', false, NULL, NULL, false),
        ('running', 0, 1, NULL, NULL, false, 1, 6, true))
        AS j (key, wait, attempts, pattern, error, dead, node, token, running);
