//! The function by which clients add jobs in transactions of their own: `jobs_schedule`.
//!
//! `SQL.md` describes it for its users. It runs with the rights of its owner, so that a role which
//! may only execute it can add jobs, and do nothing else with them. So no schema of the caller may
//! be searched for the tables.

use super::{
    connection::Link,
    rows::MAKING,
    values::{get, soon},
};
use crate::{
    job::{DEFAULT_PRIORITY, DEFAULT_QUEUE, LOWEST_PRIORITY},
    queue::{MAX_KEY, MAX_KIND, MAX_PAYLOAD, MAX_QUEUE},
    store::StoreError,
};

/// Finds out whether the function is beside the tables, with this body.
const IS_INSTALLED: &str = "
    SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'jobs_schedule' AND prosrc = $1
        AND pronamespace = (SELECT relnamespace FROM pg_class
            WHERE oid = to_regclass('durable_jobs')))";

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

/// Returns the body of the function.
fn body() -> String {
    // Without a conversion, a byte above 127 is a part of a character, and no control character.
    // The characters are written in a form that no setting changes.
    format!(
        r#"
DECLARE
    clock bigint := durable_now();
    data bytea := coalesce(bytes, convert_to(payload, 'UTF8'), '');
    moment timestamptz := at;
    micros bigint;
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
    INSERT INTO durable_jobs (key, payload, due, at, counted, kind, priority, queue)
        VALUES (jobs_schedule.key, data, micros, micros, CASE WHEN at IS NULL THEN clock END,
            jobs_schedule.kind, jobs_schedule.priority, jobs_schedule.queue)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The server tells the nodes of it after the commit.
    IF micros <= clock + {soon} THEN
        PERFORM pg_notify('durable_jobs', '');
    END IF;
    RETURN true;
END"#,
        soon = soon(),
        is_queue = is_queue(),
    )
}

/// Removes the function of version 2, and remembers who may execute it: a function cannot get
/// another parameter.
const REMOVE: &str = "
    DO $$
    DECLARE
        old regprocedure := to_regprocedure(
            'jobs_schedule(text, text, timestamptz, interval, bytea)');
    BEGIN
        PERFORM set_config('durable.grants', coalesce((
            SELECT string_agg(format('GRANT EXECUTE ON FUNCTION jobs_schedule TO %s;',
                CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END), ' ')
            FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = old AND a.grantee <> p.proowner), ''), true);
        IF old IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || old;
        END IF;
    END $$;";

/// Lets those execute the function who could execute that of version 2.
const GRANT: &str = "
    DO $$ BEGIN
        IF current_setting('durable.grants') <> '' THEN
            EXECUTE current_setting('durable.grants');
        END IF;
    END $$;";

/// Returns the statements that make the function beside the tables, in a transaction.
pub(super) fn function() -> String {
    format!(
        "SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass('durable_jobs');
         {REMOVE}
         CREATE OR REPLACE FUNCTION jobs_schedule(
             key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
             delay interval DEFAULT NULL, bytes bytea DEFAULT NULL,
             kind text DEFAULT '', priority integer DEFAULT {DEFAULT_PRIORITY},
             queue text DEFAULT '{DEFAULT_QUEUE}')
             RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
             AS $jobs${}$jobs$;
         REVOKE EXECUTE ON FUNCTION jobs_schedule FROM public;
         {GRANT}",
        body()
    )
}

/// Makes the function, unless it is there. The tables must be there.
pub(super) async fn install(link: &Link) -> Result<(), StoreError> {
    if get(&link.query_one(IS_INSTALLED, &[&body()]).await?, 0)? {
        return Ok(());
    }
    let make = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({MAKING}); {} COMMIT;",
        function()
    );
    let made = link.execute(&make).await;
    if made.is_err() {
        // It fails if the connection is lost.
        let _ = link.execute("ROLLBACK").await;
    }
    made
}
