-- The tables of version 2, as programs made them.
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
    running boolean NOT NULL DEFAULT false,
    counted bigint
);
CREATE INDEX IF NOT EXISTS durable_jobs_free ON durable_jobs (at)
    WHERE node IS NULL AND NOT dead;
CREATE INDEX IF NOT EXISTS durable_jobs_held ON durable_jobs (node)
    WHERE node IS NOT NULL;
CREATE INDEX IF NOT EXISTS durable_jobs_dead ON durable_jobs (key) WHERE dead;
CREATE INDEX IF NOT EXISTS durable_jobs_counted ON durable_jobs (counted, key)
    WHERE counted IS NOT NULL AND NOT dead AND NOT running;
CREATE TABLE IF NOT EXISTS durable_nodes (
    node bigint PRIMARY KEY,
    until bigint NOT NULL,
    counted bigint
);
CREATE SEQUENCE IF NOT EXISTS durable_numbers;
CREATE TABLE IF NOT EXISTS durable_version (version bigint NOT NULL);
INSERT INTO durable_version
    SELECT 2 WHERE NOT EXISTS (SELECT FROM durable_version);
CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
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
SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('durable_jobs');
CREATE OR REPLACE FUNCTION jobs_schedule(
    key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL, bytes bytea DEFAULT NULL)
    RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
    AS $jobs$
DECLARE
    clock bigint := durable_now();
    data bytea := coalesce(bytes, convert_to(payload, 'UTF8'), '');
    moment timestamptz := at;
    micros bigint;
BEGIN
    IF key IS NULL OR octet_length(convert_to(key, 'UTF8')) NOT BETWEEN 1 AND 512
        OR key COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND key COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'a key has 1 to 512 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    IF payload IS NOT NULL AND bytes IS NOT NULL THEN
        RAISE EXCEPTION 'give one of payload and bytes' USING ERRCODE = '22023';
    END IF;
    IF octet_length(data) > 1048576 THEN
        RAISE EXCEPTION 'a payload has at most 1048576 bytes, and this one has %',
            octet_length(data) USING ERRCODE = '22023';
    END IF;
    IF at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'give one of at and delay' USING ERRCODE = '22023';
    END IF;
    IF delay IS NOT NULL THEN
        moment := timestamptz 'epoch' + clock * interval '1 microsecond'
            + greatest(delay, interval '0');
    END IF;
    IF NOT isfinite(moment) THEN
        RAISE EXCEPTION 'a job needs a time that comes' USING ERRCODE = '22023';
    END IF;
    micros := coalesce((extract(epoch FROM moment) * 1000000)::bigint, clock);
    INSERT INTO durable_jobs (key, payload, due, at, counted)
        VALUES (jobs_schedule.key, data, micros, micros, CASE WHEN at IS NULL THEN clock END)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The server tells the nodes of it after the commit.
    IF micros <= clock + 600000000 THEN
        PERFORM pg_notify('durable_jobs', '');
    END IF;
    RETURN true;
END$jobs$;
REVOKE EXECUTE ON FUNCTION jobs_schedule FROM public;
COMMIT;
-- Jobs in all states. The lease of the node that has two of them has run out.
INSERT INTO durable_nodes VALUES (1, durable_now() - 1, durable_now() - 10000000);
SELECT setval('durable_numbers', 10);
INSERT INTO durable_jobs
    SELECT j.key, convert_to('of ' || j.key, 'UTF8'), durable_now() + wait, durable_now() + wait,
        attempts, pattern, CASE WHEN pattern IS NOT NULL THEN 'UTC' END, error, dead, node, token,
        running, durable_now()
    FROM (VALUES
        ('cron', 0, 0, '0 0 1 1 *', NULL, false, NULL::bigint, NULL::bigint, false),
        ('dead', 0, 8, NULL, 'broken', true, NULL, NULL, false),
        ('due', 0, 0, NULL, NULL, false, NULL, NULL, false),
        ('held', 0, 0, NULL, NULL, false, 1, 5, false),
        ('later', 3600000000, 0, NULL, NULL, false, NULL, NULL, false),
        ('retry', 0, 1, NULL, 'failed', false, NULL, NULL, false),
        ('running', 0, 1, NULL, NULL, false, 1, 6, true))
        AS j (key, wait, attempts, pattern, error, dead, node, token, running);
