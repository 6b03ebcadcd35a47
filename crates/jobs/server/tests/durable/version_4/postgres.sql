-- The tables of version 4, as programs made them.
BEGIN;
         SET LOCAL statement_timeout = 0;
         SET LOCAL lock_timeout = 5000;
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
             counted bigint,
             kind text COLLATE "C" NOT NULL DEFAULT '',
             priority smallint NOT NULL DEFAULT 4,
             queue text COLLATE "C" NOT NULL DEFAULT 'default',
             unique_for bigint,
             until bigint
         );
         
    ALTER TABLE durable_jobs DROP CONSTRAINT IF EXISTS durable_jobs_kept,
        ADD CONSTRAINT durable_jobs_kept CHECK (until IS NULL OR dead) NOT VALID;
         CREATE INDEX IF NOT EXISTS durable_jobs_held ON durable_jobs (node)
             WHERE node IS NOT NULL;
         CREATE INDEX IF NOT EXISTS durable_jobs_dead ON durable_jobs (key) WHERE dead;
         CREATE INDEX IF NOT EXISTS durable_jobs_counted ON durable_jobs (counted, key)
            WHERE counted IS NOT NULL AND NOT dead AND NOT running;
         CREATE INDEX IF NOT EXISTS durable_jobs_lane ON durable_jobs (queue, kind, priority, at)
            WHERE node IS NULL AND NOT dead;
         CREATE INDEX IF NOT EXISTS durable_jobs_until ON durable_jobs (until) WHERE until IS NOT NULL;
         CREATE INDEX IF NOT EXISTS durable_jobs_kept_since ON durable_jobs (counted) WHERE until IS NOT NULL;
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
             paused text[] NOT NULL DEFAULT '{}',
             has_kept boolean NOT NULL DEFAULT false
         );
         INSERT INTO durable_version (version, has_kinds, has_kept)
             SELECT 4, true, true WHERE NOT EXISTS (SELECT FROM durable_version);
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
    CREATE OR REPLACE FUNCTION durable_admit_kinds() RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF (SELECT has_kinds FROM durable_version) THEN
            RETURN true;
        END IF;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 3) THEN
            RETURN false;
        END IF;
        -- A transaction may have the row locked for long, such as one that pauses a queue. Fail
        -- then, rather than wait for it while no lease can be renewed.
        PERFORM FROM durable_version FOR UPDATE NOWAIT;
        -- A lease may be granted now. Look once more when none can be.
        LOCK TABLE durable_nodes IN SHARE ROW EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 3) THEN
            RETURN false;
        END IF;
        UPDATE durable_version SET has_kinds = true;
        RETURN true;
    END $$;
    CREATE OR REPLACE FUNCTION durable_refuse_lease() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF NEW.version < 3 AND (SELECT has_kinds FROM durable_version) THEN
            RAISE EXCEPTION 'a node of this version knows no kinds of jobs; upgrade it'
                USING ERRCODE = '55000';
        END IF;
        IF (SELECT has_kept FROM durable_version) THEN
            RAISE EXCEPTION 'a node of this version keeps no keys of jobs; upgrade it'
                USING ERRCODE = '55000';
        END IF;
        RETURN NEW;
    END $$;
    CREATE OR REPLACE FUNCTION durable_admit_kept() RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF (SELECT has_kept FROM durable_version) THEN
            RETURN true;
        END IF;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 4) THEN
            RETURN false;
        END IF;
        -- As above.
        PERFORM FROM durable_version FOR UPDATE NOWAIT;
        LOCK TABLE durable_nodes IN SHARE ROW EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 4) THEN
            RETURN false;
        END IF;
        UPDATE durable_version SET has_kinds = true, has_kept = true;
        RETURN true;
    END $$;
    DROP TRIGGER IF EXISTS durable_refuse_lease ON durable_nodes;
    CREATE TRIGGER durable_refuse_lease BEFORE INSERT ON durable_nodes
        FOR EACH ROW WHEN (NEW.version < 4) EXECUTE FUNCTION durable_refuse_lease();
         CREATE OR REPLACE FUNCTION durable_paused() RETURNS text[]
             LANGUAGE plpgsql VOLATILE AS $$
         DECLARE
             names text[];
         BEGIN
             PERFORM pg_advisory_xact_lock_shared(7238817738656605491);
             -- A statement of its own sees what was committed before it, and not only what was
             -- before the statement that calls this.
             SELECT paused INTO names FROM durable_version;
             RETURN names;
         END $$;
         CREATE OR REPLACE FUNCTION jobs_pause(queue text) RETURNS boolean
             LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
         DECLARE
             begins text[];
             until timestamptz;
         BEGIN
             
    IF queue IS NULL OR octet_length(convert_to(queue, 'UTF8')) NOT BETWEEN 1 AND 128
        OR queue COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND queue COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 128 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;

             IF NOT (SELECT has_kinds FROM durable_version) THEN
                 RAISE EXCEPTION
                     'nodes of an earlier version know no pauses; upgrade or stop them'
                     USING ERRCODE = '55000';
             END IF;
             UPDATE durable_version SET paused = array_append(paused, jobs_pause.queue)
                 WHERE jobs_pause.queue <> ALL (paused);
             IF FOUND THEN
                 RETURN true;
             END IF;
             -- Wait for the begins that may not have seen it.
             SELECT coalesce(array_agg(virtualtransaction), '{}') INTO begins FROM pg_locks
                 WHERE locktype = 'advisory' AND classid = 1685418593 AND objid = 1651270963 AND objsubid = 1
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted AND pid <> pg_backend_pid();
             until := clock_timestamp() + interval '3 s';
             WHILE EXISTS (SELECT FROM pg_locks
                 WHERE locktype = 'advisory' AND classid = 1685418593 AND objid = 1651270963 AND objsubid = 1
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND virtualtransaction = ANY (begins)) LOOP
                 IF clock_timestamp() > until THEN
                     RAISE EXCEPTION 'a transaction that begins jobs has not ended for 3 s'
                         USING ERRCODE = '55P03';
                 END IF;
                 PERFORM pg_sleep(0.005);
             END LOOP;
             RETURN false;
         END $$;
         CREATE OR REPLACE FUNCTION jobs_resume(queue text) RETURNS boolean
             LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
         BEGIN
             UPDATE durable_version SET paused = array_remove(paused, jobs_resume.queue)
                 WHERE jobs_resume.queue = ANY (paused);
             IF FOUND THEN
                 NOTIFY durable_jobs;
             END IF;
             RETURN FOUND;
         END $$;
         REVOKE EXECUTE ON FUNCTION jobs_pause, jobs_resume FROM public;
         SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass('durable_jobs');
         
    DO $$
    DECLARE
        names text[] := 
    ARRAY[
        'jobs_schedule(text, text, timestamptz, interval, bytea)',
        'jobs_schedule(text, text, timestamptz, interval, bytea, text, integer, text)',
        'jobs_schedule_or_replace(text, text, timestamptz, interval, bytea, text, integer, text)'];
        old regprocedure[];
        name regprocedure;
    BEGIN
        SELECT coalesce(array_agg(f), '{}') INTO old
            FROM unnest(names) AS n (name), to_regprocedure(n.name) AS f WHERE f IS NOT NULL;
        PERFORM set_config('durable.grants', coalesce((
            SELECT string_agg(format('GRANT EXECUTE ON FUNCTION %I TO %s;', p.proname,
                CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END), ' ')
            FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = ANY (old::oid[]) AND a.grantee <> p.proowner), ''), true);
        FOREACH name IN ARRAY old LOOP
            EXECUTE 'DROP FUNCTION ' || name;
        END LOOP;
    END $$;
         CREATE OR REPLACE FUNCTION jobs_schedule(key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
             delay interval DEFAULT NULL, bytes bytea DEFAULT NULL,
             kind text DEFAULT '', priority integer DEFAULT 4,
             queue text DEFAULT 'default', unique_for interval DEFAULT NULL)
             RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
             AS $jobs$
DECLARE
    clock bigint := durable_now();
    data bytea := coalesce(bytes, convert_to(payload, 'UTF8'), '');
    moment timestamptz := at;
    micros bigint;
    span numeric := (extract(epoch FROM unique_for) * 1000000)::numeric;
    kept bigint;
    answer boolean;
BEGIN
    IF key IS NULL OR octet_length(convert_to(key, 'UTF8')) NOT BETWEEN 1 AND 512
        OR key COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND key COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'a key has 1 to 512 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    IF kind IS NULL OR octet_length(convert_to(kind, 'UTF8')) > 128
        OR kind COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND kind COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a kind has at most 128 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    
    IF queue IS NULL OR octet_length(convert_to(queue, 'UTF8')) NOT BETWEEN 1 AND 128
        OR queue COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND queue COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 128 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;

    IF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'a priority is 0, the highest, to 9, and this one is %',
            coalesce(priority::text, 'NULL') USING ERRCODE = '22023';
    END IF;
    IF (kind <> '' OR queue <> 'default' OR priority <> 4)
        AND NOT (SELECT has_kinds FROM durable_version) THEN
        RAISE EXCEPTION
            'nodes of an earlier version know no kinds, queues and priorities; upgrade or stop them'
            USING ERRCODE = '55000';
    END IF;
    IF NOT isfinite(unique_for) OR span < 0 THEN
        RAISE EXCEPTION 'a key stays taken for a time that ends, and not below zero'
            USING ERRCODE = '22023';
    END IF;
    -- A time of zero is none. The end of the job is added to the time, and this must not overflow.
    kept := CASE WHEN round(span) > 0 THEN least(round(span), 2305843009213693951) END;
    IF kept IS NOT NULL AND NOT (SELECT has_kept FROM durable_version) THEN
        RAISE EXCEPTION 'nodes of an earlier version keep no keys of jobs; upgrade or stop them'
            USING ERRCODE = '55000';
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
    
    LOOP
        INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue, unique_for)
            VALUES (jobs_schedule.key, data, micros, micros, CASE WHEN at IS NULL THEN clock END,
                jobs_schedule.kind, jobs_schedule.priority, jobs_schedule.queue, kept)
            ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        -- A job that is done may have kept the key until now.
        DELETE FROM durable_jobs j
            WHERE j.key = jobs_schedule.key AND j.until <= durable_now();
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    answer := true;
    -- The server tells the nodes of it after the commit.
    IF micros <= clock + 600000000 THEN
        PERFORM pg_notify('durable_jobs', '');
    END IF;
    RETURN answer;
END$jobs$;
         CREATE OR REPLACE FUNCTION jobs_schedule_or_replace(key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
             delay interval DEFAULT NULL, bytes bytea DEFAULT NULL,
             kind text DEFAULT '', priority integer DEFAULT 4,
             queue text DEFAULT 'default', unique_for interval DEFAULT NULL)
             RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
             AS $jobs$
DECLARE
    clock bigint := durable_now();
    data bytea := coalesce(bytes, convert_to(payload, 'UTF8'), '');
    moment timestamptz := at;
    micros bigint;
    span numeric := (extract(epoch FROM unique_for) * 1000000)::numeric;
    kept bigint;
    answer text;
    was_running boolean;
    was_done boolean;
BEGIN
    IF key IS NULL OR octet_length(convert_to(key, 'UTF8')) NOT BETWEEN 1 AND 512
        OR key COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND key COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'a key has 1 to 512 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    IF kind IS NULL OR octet_length(convert_to(kind, 'UTF8')) > 128
        OR kind COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND kind COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a kind has at most 128 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    
    IF queue IS NULL OR octet_length(convert_to(queue, 'UTF8')) NOT BETWEEN 1 AND 128
        OR queue COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND queue COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 128 bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;

    IF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'a priority is 0, the highest, to 9, and this one is %',
            coalesce(priority::text, 'NULL') USING ERRCODE = '22023';
    END IF;
    IF (kind <> '' OR queue <> 'default' OR priority <> 4)
        AND NOT (SELECT has_kinds FROM durable_version) THEN
        RAISE EXCEPTION
            'nodes of an earlier version know no kinds, queues and priorities; upgrade or stop them'
            USING ERRCODE = '55000';
    END IF;
    IF NOT isfinite(unique_for) OR span < 0 THEN
        RAISE EXCEPTION 'a key stays taken for a time that ends, and not below zero'
            USING ERRCODE = '22023';
    END IF;
    -- A time of zero is none. The end of the job is added to the time, and this must not overflow.
    kept := CASE WHEN round(span) > 0 THEN least(round(span), 2305843009213693951) END;
    IF kept IS NOT NULL AND NOT (SELECT has_kept FROM durable_version) THEN
        RAISE EXCEPTION 'nodes of an earlier version keep no keys of jobs; upgrade or stop them'
            USING ERRCODE = '55000';
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
    
    LOOP
        SELECT j.running, j.until IS NOT NULL INTO was_running, was_done FROM durable_jobs j
            WHERE j.key = jobs_schedule_or_replace.key FOR UPDATE;
        IF FOUND THEN
            UPDATE durable_jobs j
                SET payload = data, due = micros, at = micros, attempts = 0, pattern = NULL,
                    zone = NULL, error = NULL, dead = false, node = NULL, token = NULL,
                    running = false,
                    counted = CASE WHEN jobs_schedule_or_replace.at IS NULL THEN clock END,
                    kind = jobs_schedule_or_replace.kind,
                    priority = jobs_schedule_or_replace.priority,
                    queue = jobs_schedule_or_replace.queue, unique_for = kept, until = NULL
                WHERE j.key = jobs_schedule_or_replace.key;
            answer := CASE WHEN was_running THEN 'running' WHEN was_done THEN 'created'
                ELSE 'replaced' END;
            EXIT;
        END IF;
        INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue, unique_for)
            VALUES (jobs_schedule_or_replace.key, data, micros, micros,
                CASE WHEN at IS NULL THEN clock END, jobs_schedule_or_replace.kind,
                jobs_schedule_or_replace.priority, jobs_schedule_or_replace.queue, kept)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            answer := 'created';
            EXIT;
        END IF;
    END LOOP;
    -- The server tells the nodes of it after the commit.
    IF micros <= clock + 600000000 THEN
        PERFORM pg_notify('durable_jobs', '');
    END IF;
    RETURN answer;
END$jobs$;
         REVOKE EXECUTE ON FUNCTION jobs_schedule, jobs_schedule_or_replace FROM public;
         
    DO $$ BEGIN
        IF current_setting('durable.grants') <> '' THEN
            EXECUTE current_setting('durable.grants');
        END IF;
    END $$;
         COMMIT;
-- Jobs in all states. The lease of the node that has two of them has run out.
INSERT INTO durable_nodes VALUES (1, durable_now() - 1, durable_now() - 10000000, 4);
SELECT setval('durable_numbers', 10);
INSERT INTO durable_jobs (key, payload, due, at, attempts, pattern, zone, error, dead, node, token,
        running, counted)
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
-- A job that is to keep its key, with a kind, in a queue that is paused; and a key that is kept.
UPDATE durable_version SET paused = '{mails}';
INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue, unique_for)
    SELECT 'mail', 'of mail', now, now, now, 'mail', 1, 'mails', 3600000000
    FROM (SELECT durable_now() AS now) AS c;
INSERT INTO durable_jobs (key, payload, due, at, counted, dead, unique_for, until)
    SELECT 'kept', '', now, now, now, true, 3600000000, now + 3600000000
    FROM (SELECT durable_now() AS now) AS c;
