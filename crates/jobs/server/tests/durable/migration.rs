//! Migrations of a PostgreSQL that programs use meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio_postgres::Client;
use tourbillon::{task::JoinHandle, time::sleep};
use tourbillon_jobs::{postgres::Postgres as Store, store::StoreError};

use crate::{
    network::proxy::Proxy,
    postgres::{client, with_client},
    server::{Postgres, Server},
    support::soon,
};

const VERSION_1: &str = include_str!("version_1/postgres.sql");
pub const VERSION_2: &str = include_str!("version_2/postgres.sql");
pub const VERSION_3: &str = include_str!("version_3/postgres.sql");

/// The index that a migration has begun, and that is not complete.
const BEGUN: &str = "SELECT FROM pg_index
    WHERE indexrelid = to_regclass('durable_jobs_counted') AND NOT indisvalid";

/// Starts a migration.
fn migrate(port: u16) -> JoinHandle<Result<(), StoreError>> {
    tourbillon::spawn(async move { Store::migrate(&Postgres::config(port)).await })
}

/// Waits until a query finds something.
async fn until(client: &Client, query: &str) {
    let ask = format!("SELECT EXISTS ({query})");
    while !client.query_one(&ask, &[]).await.unwrap().get::<_, bool>(0) {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Keeps migrations from completing the index until the transaction of the result ends.
async fn snapshot(server: &Postgres) -> Client {
    let reads = client(server).await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1";
    reads.batch_execute(begin).await.unwrap();
    reads
}

/// Ends the session of a migration that waits.
async fn kill_migration(other: &Client) {
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'";
    other.batch_execute(kill).await.unwrap();
}

/// Checks that the tables are complete.
pub async fn is_migrated(other: &Client) {
    let count = "SELECT
        (SELECT count(*) FROM pg_attribute
            WHERE attname IN
            ('counted', 'kind', 'priority', 'queue', 'version', 'has_kinds', 'paused', 'unique_for',
            'until', 'has_kept', 'traceparent')
            AND attrelid IN
            ('durable_jobs'::regclass, 'durable_nodes'::regclass, 'durable_version'::regclass)),
        (SELECT count(*) FROM pg_proc WHERE proname IN
            ('durable_end_2', 'durable_admit_kinds', 'durable_admit_kept', 'durable_refuse_lease', 'durable_paused',
            'jobs_pause', 'jobs_resume', 'jobs_schedule', 'jobs_schedule_or_replace')),
        (SELECT count(*) FROM pg_trigger WHERE tgname = 'durable_refuse_lease'),
        (SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid IN
            ('durable_jobs_counted'::regclass, 'durable_jobs_lane'::regclass,
            'durable_jobs_until'::regclass, 'durable_jobs_kept_since'::regclass)),
        (SELECT version FROM durable_version)";
    let found = other.query_one(count, &[]).await.unwrap();
    let found: Vec<i64> = (0..5).map(|column| found.get(column)).collect();
    assert_eq!(found, [14, 9, 1, 4, 5]);
}

/// What a node of version 1 asks for to run a job, one statement after the other. One of version 2
/// has another name for the last function, and also writes `counted` as it gets its lease, renews
/// it and begins an attempt. Its statements use the same tables and rows.
const NODE_OF_VERSION_1: [&str; 6] = [
    "INSERT INTO durable_jobs (key, payload, due, at) VALUES ('job', '', 0, 0)",
    "UPDATE durable_nodes SET until = durable_now() + 60000000 WHERE node = 77",
    "WITH lease AS MATERIALIZED (
         SELECT node FROM durable_nodes WHERE node = 77 AND until > durable_now() FOR SHARE),
     free AS MATERIALIZED (
         SELECT j.key FROM durable_jobs j WHERE j.node IS NULL AND NOT j.dead AND key = 'job'
         FOR UPDATE SKIP LOCKED)
     UPDATE durable_jobs j SET node = lease.node, token = nextval('durable_numbers')
     FROM free, lease WHERE j.key = free.key",
    "UPDATE durable_jobs SET running = true, attempts = attempts + 1 WHERE key = 'job'",
    "DELETE FROM durable_jobs WHERE key = 'job' AND running AND node = 77",
    "SELECT durable_end(0, 10)",
];

/// Runs a node of version 1, or of version 2 or 3 but for some columns. Returns how many jobs it has run.
pub async fn earlier_node(server: &Postgres, version: i64) -> Arc<AtomicU32> {
    let node = client(server).await;
    // Version 3 writes its number, too.
    let lease = match version {
        3 => "INSERT INTO durable_nodes VALUES (77, durable_now() + 60000000, NULL, 3)",
        _ => "INSERT INTO durable_nodes VALUES (77, durable_now() + 60000000)",
    };
    let end = match version {
        1 => "durable_end",
        _ => "durable_end_2",
    };
    node.batch_execute(lease).await.unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    let counts = ran.clone();
    tourbillon::spawn(async move {
        let mut statements = Vec::new();
        for statement in NODE_OF_VERSION_1 {
            let statement = statement.replace("durable_end", end);
            statements.push(node.prepare(&statement).await.unwrap());
        }
        // The tests fail if it ends.
        loop {
            for statement in &statements {
                node.execute(statement, &[]).await.unwrap();
            }
            counts.fetch_add(1, Relaxed);
        }
    });
    ran
}

/// Waits until a node has run some more jobs.
pub async fn goes_on(ran: &AtomicU32) {
    let before = ran.load(Relaxed);
    while ran.load(Relaxed) < before + 10 {
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn nodes_run_jobs_while_the_index_is_made() {
    for (version, tables, index) in [
        (1, VERSION_1, "durable_jobs_counted"),
        (2, VERSION_2, "durable_jobs_lane"),
        (3, VERSION_3, "durable_jobs_until"),
    ] {
        with_client(async |server, other| {
            other.batch_execute(tables).await.unwrap();
            let ran = earlier_node(&server, version).await;
            let reads = snapshot(&server).await;
            let migration = migrate(server.port());
            until(&other, &BEGUN.replace("durable_jobs_counted", index)).await;
            goes_on(&ran).await;
            // It waits for longer than it would for the lock of a table.
            sleep(Duration::from_secs(6)).await;
            goes_on(&ran).await;
            assert!(!migration.is_finished());
            reads.batch_execute("COMMIT").await.unwrap();
            migration.await.unwrap().unwrap();
            is_migrated(&other).await;
            goes_on(&ran).await;
        });
    }
}

#[test]
fn a_migration_waits_for_no_transaction_in_a_circle() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_1).await.unwrap();
        // The two orders in which statements of nodes use the tables.
        for (first, second) in [
            ("durable_nodes", "durable_jobs"),
            ("durable_jobs", "durable_nodes"),
        ] {
            let uses = client(&server).await;
            let change = |table| format!("UPDATE {table} SET node = node WHERE false");
            let begin = format!("BEGIN; {}", change(first));
            uses.batch_execute(&begin).await.unwrap();
            let migration = migrate(server.port());
            let waits = format!(
                "SELECT FROM pg_locks WHERE relation = '{first}'::regclass AND NOT granted"
            );
            until(&other, &waits).await;
            // The transaction goes on, and then the migration.
            let end = format!("{}; COMMIT", change(second));
            uses.batch_execute(&end).await.unwrap();
            migration.await.unwrap().unwrap();
            is_migrated(&other).await;
            // Once more.
            let back = "ALTER TABLE durable_jobs DROP COLUMN counted, DROP COLUMN kind,
                    DROP COLUMN priority, DROP COLUMN queue, DROP COLUMN unique_for,
                    DROP COLUMN until, DROP COLUMN traceparent;
                DROP TRIGGER durable_refuse_lease ON durable_nodes;
                ALTER TABLE durable_nodes DROP COLUMN counted, DROP COLUMN version;
                ALTER TABLE durable_version DROP COLUMN has_kinds, DROP COLUMN paused,
                    DROP COLUMN has_kept;
                DROP FUNCTION durable_end_2, durable_admit_kinds, durable_admit_kept,
                    durable_refuse_lease,
                    durable_paused, jobs_pause, jobs_resume, jobs_schedule,
                    jobs_schedule_or_replace;
                UPDATE durable_version SET version = 1";
            other.batch_execute(back).await.unwrap();
        }
    });
}

#[test]
fn a_store_that_needs_no_migration_is_left_alone() {
    with_client(async |server, other| {
        migrate(server.port()).await.unwrap().unwrap();
        is_migrated(&other).await;
        let lock = "BEGIN; LOCK TABLE durable_jobs, durable_nodes";
        other.batch_execute(lock).await.unwrap();
        migrate(server.port()).await.unwrap().unwrap();
    });
}

/// Kills the session of a migration at the end of a statement of it, `kill_at` statements after
/// the last. The effect of that statement is undone.
const KILLS: &str = "
    CREATE SEQUENCE statements;
    CREATE TABLE victim (kill_at bigint);
    INSERT INTO victim VALUES (0);
    CREATE FUNCTION count_statement() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('statements') = (SELECT kill_at FROM victim) THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
        END IF;
    END $$;
    CREATE FUNCTION kill_row() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM count_statement();
        RETURN NEW;
    END $$;
    CREATE TRIGGER kill BEFORE UPDATE ON durable_version FOR EACH ROW EXECUTE FUNCTION kill_row();
    CREATE FUNCTION kill_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM count_statement();
    END $$;
    CREATE EVENT TRIGGER kill ON ddl_command_end
        WHEN TAG IN ('ALTER TABLE', 'CREATE FUNCTION', 'CREATE INDEX', 'DROP INDEX')
        EXECUTE FUNCTION kill_ddl();";

#[test]
fn a_migration_that_was_killed_anywhere_is_completed_by_the_next() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_1).await.unwrap();
        other.batch_execute(KILLS).await.unwrap();
        // The columns, the functions, the first index. It is incomplete then, and removed, and made
        // anew. Then the others, likewise, and the version.
        for statement in (1..=21).chain([23, 23, 23, 23]) {
            let again = format!(
                "SELECT setval('statements', 1, false); UPDATE victim SET kill_at = {statement}"
            );
            other.batch_execute(&again).await.unwrap();
            let error = migrate(server.port()).await.unwrap().unwrap_err();
            assert!(!matches!(error, StoreError::Version(_)), "{error}");
            let version = other.query_one("SELECT version FROM durable_version", &[]);
            assert_eq!(version.await.unwrap().get::<_, i64>(0), 1);
            if statement == 21 {
                until(&other, BEGUN).await;
            }
        }
        other
            .batch_execute("UPDATE victim SET kill_at = 0")
            .await
            .unwrap();
        migrate(server.port()).await.unwrap().unwrap();
        is_migrated(&other).await;
    });
}

#[test]
fn a_migration_goes_on_when_another_one_is_killed() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_1).await.unwrap();
        let reads = snapshot(&server).await;
        let first = migrate(server.port());
        until(&other, BEGUN).await;
        let second = migrate(server.port());
        sleep(Duration::from_secs(1)).await;
        assert!(!second.is_finished());
        kill_migration(&other).await;
        assert!(first.await.unwrap().is_err());
        // The second one has removed the incomplete index, and waits with its own.
        reads.batch_execute("COMMIT").await.unwrap();
        second.await.unwrap().unwrap();
        is_migrated(&other).await;
    });
}

#[test]
fn a_migration_notices_that_its_connection_died_silently() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_1).await.unwrap();
        let reads = snapshot(&server).await;
        let proxy = Proxy::start(server.port(), Duration::ZERO).unwrap();
        let migration = migrate(proxy.port());
        until(&other, BEGUN).await;
        // The server ends the session, and the message of that is lost.
        proxy.drop_answers();
        kill_migration(&other).await;
        proxy.restore();
        let error = migration.await.unwrap().unwrap_err();
        assert!(!matches!(error, StoreError::Version(_)), "{error}");
        reads.batch_execute("COMMIT").await.unwrap();
        migrate(server.port()).await.unwrap().unwrap();
        is_migrated(&other).await;
    });
}

#[test]
fn a_migration_does_not_wait_for_an_admission() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_1).await.unwrap();
        other
            .batch_execute("DELETE FROM durable_nodes")
            .await
            .unwrap();
        let reads = snapshot(&server).await;
        let migration = migrate(server.port());
        until(&other, BEGUN).await;
        let uses = "BEGIN; UPDATE durable_nodes SET node = node";
        other.batch_execute(uses).await.unwrap();
        reads.batch_execute("COMMIT").await.unwrap();
        // Leases could not be renewed while it waited.
        soon("for the migration", migration).await.unwrap().unwrap();
        other.batch_execute("COMMIT").await.unwrap();
        is_migrated(&other).await;
    });
}

#[test]
fn a_view_of_an_earlier_function_is_told_before_anything_changes() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_3).await.unwrap();
        let view = "CREATE VIEW daily AS SELECT jobs_schedule('job', 'by a view')";
        other.batch_execute(view).await.unwrap();
        let config = Postgres::config(server.port());
        let error = Store::migrate(&config).await.unwrap_err().to_string();
        assert!(error.contains("view daily; drop that"), "{error}");
        assert!(error.ends_with("nothing was changed"), "{error}");
        let kept = "SELECT version, to_regclass('durable_jobs_until') IS NULL FROM durable_version";
        let found = other.query_one(kept, &[]).await.unwrap();
        assert_eq!((found.get::<_, i64>(0), found.get(1)), (3, true));
        other.batch_execute("DROP VIEW daily").await.unwrap();
        Store::migrate(&config).await.unwrap();
        is_migrated(&other).await;
        // The functions are missing, and an earlier one is there. An earlier call may have
        // changed the tables.
        let again = "
            DROP FUNCTION jobs_schedule, jobs_schedule_or_replace;
            CREATE FUNCTION jobs_schedule(text, text, timestamptz, interval, bytea)
                RETURNS boolean LANGUAGE sql AS 'SELECT true';
            CREATE VIEW daily AS
                SELECT jobs_schedule('job'::text, ''::text, now(), NULL::interval, ''::bytea);";
        other.batch_execute(again).await.unwrap();
        let error = Store::migrate(&config).await.unwrap_err().to_string();
        assert!(error.contains("view daily; drop that"), "{error}");
        assert!(!error.contains("nothing was changed"), "{error}");
        other.batch_execute("DROP VIEW daily").await.unwrap();
        Store::migrate(&config).await.unwrap();
    });
}
