//! The functions by which clients add jobs in transactions of their own: `jobs_schedule`, and
//! `jobs_schedule_or_replace`.
//!
//! `SQL.md` describes them for their users. They run with the rights of their owner, so that a role
//! which may only execute them can add jobs, and do nothing else with them. So no schema of the
//! caller may be searched for the tables.

use std::time::Duration;

use super::{
    connection::Link,
    tables::MAKING,
    values::{get, soon},
};
use crate::{
    job::{DEFAULT_PRIORITY, DEFAULT_QUEUE, LOWEST_PRIORITY, micros},
    queue::{MAX_KEY, MAX_KIND, MAX_PAYLOAD, MAX_QUEUE},
    remote::lost,
    store::StoreError,
};

/// Finds out whether both functions are beside the tables, with these bodies.
const ARE_INSTALLED: &str = "
    SELECT count(*) = 2 FROM pg_proc
    WHERE (proname = 'jobs_schedule' AND prosrc = $1
            OR proname = 'jobs_schedule_or_replace' AND prosrc = $2)
        AND pronamespace = (SELECT relnamespace FROM pg_class
            WHERE oid = to_regclass('durable_jobs'))";

/// Returns the statement by which a function refuses names that no queue has.
pub(super) fn is_queue() -> String {
    format!(
        r#"
    IF queue IS NULL OR octet_length(convert_to(queue, 'UTF8')) NOT BETWEEN 1 AND {MAX_QUEUE}
        OR queue COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND queue COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a queue has 1 to {MAX_QUEUE} bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
"#
    )
}

/// How the function adds a job. `true` is the answer that it did.
const ADD: &str = "
    LOOP
        INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue, unique_for,
                traceparent)
            VALUES (jobs_schedule.key, data, micros, micros, CASE WHEN at IS NULL THEN clock END,
                jobs_schedule.kind, jobs_schedule.priority, jobs_schedule.queue, kept,
                jobs_schedule.traceparent)
            ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        -- A job that is done may have kept the key until now.
        DELETE FROM durable_jobs j
            WHERE j.key = jobs_schedule.key AND j.until <= durable_now();
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    answer := true;";

/// How the other function adds a job, in place of that of its key. If somebody adds one between the
/// two statements, and commits, the next round sees it. A transaction that cannot see it fails.
const REPLACE: &str = "
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
                    queue = jobs_schedule_or_replace.queue, unique_for = kept, until = NULL,
                    traceparent = jobs_schedule_or_replace.traceparent
                WHERE j.key = jobs_schedule_or_replace.key;
            answer := CASE WHEN was_running THEN 'running' WHEN was_done THEN 'created'
                ELSE 'replaced' END;
            EXIT;
        END IF;
        INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue, unique_for,
                traceparent)
            VALUES (jobs_schedule_or_replace.key, data, micros, micros,
                CASE WHEN at IS NULL THEN clock END, jobs_schedule_or_replace.kind,
                jobs_schedule_or_replace.priority, jobs_schedule_or_replace.queue, kept,
                jobs_schedule_or_replace.traceparent)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            answer := 'created';
            EXIT;
        END IF;
    END LOOP;";

/// Returns the body of `jobs_schedule`.
fn adding() -> String {
    body("answer boolean;", ADD)
}

/// Returns the body of `jobs_schedule_or_replace`.
fn replacing() -> String {
    body(
        "answer text;\n    was_running boolean;\n    was_done boolean;",
        REPLACE,
    )
}

/// Returns the body of a function that checks its arguments, and then adds a job.
fn body(variables: &str, add: &str) -> String {
    // Without a conversion, a byte above 127 is a part of a character, and no control character.
    // The characters are written in a form that no setting changes.
    format!(
        r#"
DECLARE
    clock bigint := durable_now();
    data bytea := coalesce(bytes, convert_to(payload, 'UTF8'), '');
    moment timestamptz := at;
    micros bigint;
    span numeric := (extract(epoch FROM unique_for) * 1000000)::numeric;
    kept bigint;
    {variables}
BEGIN
    IF key IS NULL OR octet_length(convert_to(key, 'UTF8')) NOT BETWEEN 1 AND {MAX_KEY}
        OR key COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND key COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'a key has 1 to {MAX_KEY} bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    IF kind IS NULL OR octet_length(convert_to(kind, 'UTF8')) > {MAX_KIND}
        OR kind COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]'
        OR getdatabaseencoding() <> 'SQL_ASCII' AND kind COLLATE "C" ~ E'[\\u0080-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a kind has at most {MAX_KIND} bytes, and no control characters'
            USING ERRCODE = '22023';
    END IF;
    {is_queue}
    IF priority IS NULL OR priority NOT BETWEEN 0 AND {LOWEST_PRIORITY} THEN
        RAISE EXCEPTION 'a priority is 0, the highest, to {LOWEST_PRIORITY}, and this one is %',
            coalesce(priority::text, 'NULL') USING ERRCODE = '22023';
    END IF;
    IF (kind <> '' OR queue <> '{DEFAULT_QUEUE}' OR priority <> {DEFAULT_PRIORITY})
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
    kept := CASE WHEN round(span) > 0 THEN least(round(span), {longest}) END;
    IF kept IS NOT NULL AND NOT (SELECT has_kept FROM durable_version) THEN
        RAISE EXCEPTION 'nodes of an earlier version keep no keys of jobs; upgrade or stop them'
            USING ERRCODE = '55000';
    END IF;
    IF traceparent COLLATE "C" !~ '^[0-9a-f]{{2}}-[0-9a-f]{{32}}-[0-9a-f]{{16}}-[0-9a-f]{{2}}$'
        OR traceparent COLLATE "C" ~ '^ff|-0{{32}}-|-0{{16}}-' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a traceparent is '
            'VERSION-TRACE-PARENT-FLAGS, of 2, 32, 16 and 2 lower-case hexadecimal digits, '
            'its version is not ff, and neither trace nor parent is all zero';
    END IF;
    IF payload IS NOT NULL AND bytes IS NOT NULL THEN
        RAISE EXCEPTION 'give one of payload and bytes' USING ERRCODE = '22023';
    END IF;
    IF octet_length(data) > {MAX_PAYLOAD} THEN
        RAISE EXCEPTION 'a payload has at most {MAX_PAYLOAD} bytes, and this one has %',
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
    {add}
    -- The server tells the nodes of it after the commit.
    IF micros <= clock + {soon} THEN
        PERFORM pg_notify('durable_jobs', '');
    END IF;
    RETURN answer;
END"#,
        soon = soon(),
        longest = micros(Duration::MAX),
        is_queue = is_queue(),
    )
}

/// The functions of earlier versions.
const EARLIER: &str = "
    ARRAY[
        'jobs_schedule(text, text, timestamptz, interval, bytea)',
        'jobs_schedule(text, text, timestamptz, interval, bytea, text, integer, text)',
        'jobs_schedule(text, text, timestamptz, interval, bytea, text, integer, text, interval)',
        'jobs_schedule_or_replace(text, text, timestamptz, interval, bytea, text, integer, text)',
        'jobs_schedule_or_replace(text, text, timestamptz, interval, bytea, text, integer, text, \
            interval)']";

/// Returns what to do if something uses a function of an earlier version, which cannot be removed
/// then.
pub(super) async fn obstacle(link: &Link) -> Result<Option<String>, StoreError> {
    let uses = format!(
        "SELECT n.name, pg_describe_object(d.classid, d.objid, d.objsubid)
         FROM unnest({EARLIER}) AS n (name), pg_depend d
         WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = to_regprocedure(n.name)
             AND d.deptype = 'n'
         LIMIT 1"
    );
    let session = link.session().await?;
    let Some(found) = session.query(&uses).await?.pop() else {
        return Ok(None);
    };
    let (function, user): (String, String) = (get(&found, 0)?, get(&found, 1)?);
    Ok(Some(format!(
        "`migrate` replaces the function `{function}`, and cannot while something uses it: {user}; \
         drop that, call `migrate` again, and make it anew"
    )))
}

/// Removes the functions of earlier versions, and remembers who may execute them: a function cannot
/// get another parameter.
const REMOVE: &str = "
    DO $$
    DECLARE
        names text[] := {EARLIER};
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
    END $$;";

/// Lets those execute the functions who could execute the earlier ones.
const GRANT: &str = "
    DO $$ BEGIN
        IF current_setting('durable.grants') <> '' THEN
            EXECUTE current_setting('durable.grants');
        END IF;
    END $$;";

/// Returns the statements that make the functions beside the tables, in a transaction.
pub(super) fn functions() -> String {
    let parameters = format!(
        "key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
             delay interval DEFAULT NULL, bytes bytea DEFAULT NULL,
             kind text DEFAULT '', priority integer DEFAULT {DEFAULT_PRIORITY},
             queue text DEFAULT '{DEFAULT_QUEUE}', unique_for interval DEFAULT NULL,
             traceparent text DEFAULT NULL"
    );
    format!(
        "SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass('durable_jobs');
         {remove}
         CREATE OR REPLACE FUNCTION jobs_schedule({parameters})
             RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
             AS $jobs${}$jobs$;
         CREATE OR REPLACE FUNCTION jobs_schedule_or_replace({parameters})
             RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
             AS $jobs${}$jobs$;
         REVOKE EXECUTE ON FUNCTION jobs_schedule, jobs_schedule_or_replace FROM public;
         {GRANT}",
        adding(),
        replacing(),
        remove = REMOVE.replace("{EARLIER}", EARLIER),
    )
}

/// Makes the functions, unless they are there. The tables must be there.
pub(super) async fn install(link: &Link) -> Result<(), StoreError> {
    let bodies = [adding(), replacing()];
    let found = link
        .query_one(ARE_INSTALLED, &[&bodies[0], &bodies[1]])
        .await?;
    if get(&found, 0)? {
        return Ok(());
    }
    if let Some(obstacle) = obstacle(link).await? {
        return Err(lost(&obstacle));
    }
    let make = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({MAKING}); {} COMMIT;",
        functions()
    );
    let made = link.execute(&make).await;
    if made.is_err() {
        // It fails if the connection is lost.
        let _ = link.execute("ROLLBACK").await;
    }
    made
}
