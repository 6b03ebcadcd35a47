//! The function `jobs_schedule`, and what `SQL.md` says of it.

use std::time::Duration;

use tokio_postgres::{Client, error::SqlState};
use tourbillon::{task::JoinHandle, time::sleep};
use tourbillon_jobs::{
    Queue, QueueError, Time,
    postgres::Postgres as Store,
    store::{Begin, Store as _, StoreError},
};

use crate::{
    postgres::{client, client_of, latin, with_client},
    server::{Postgres, Server},
    shared::{connect, skip},
    support::{self, HOUR, PATIENCE, live, node, start, yes},
    transactions::{psql, python},
};

const PAGE: &str = include_str!("../../../SQL.md");

/// Calls the function with these arguments.
async fn call(client: &Client, arguments: &str) -> Result<bool, tokio_postgres::Error> {
    let call = format!("SELECT jobs_schedule({arguments})");
    Ok(client.query_one(&call, &[]).await?.get(0))
}

/// Returns the text of an error of the function.
async fn refused(client: &Client, arguments: &str) -> String {
    let error = call(client, arguments).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{error}");
    error.message().to_owned()
}

async fn payload(queue: &Queue<Store>, key: &str) -> Vec<u8> {
    queue.get(key).await.unwrap().unwrap().payload
}

#[test]
fn a_job_has_the_time_and_the_payload_that_were_given() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let before = Time::wall();
        for (arguments, length) in [
            ("'default'", 0),
            (
                "'text', 'f\u{fc}r', delay => '1 minute 2.000003 seconds'",
                4,
            ),
            (r#"key => 'json', payload => '{"text": "a\n\"b\""}'"#, 20),
            (r"'bytes', bytes => '\x00ff'", 2),
            ("'moment', at => '2199-01-31 12:00:00.000001+01'", 0),
            ("'past', at => '1969-12-31 23:59:59.999999+00'", 0),
            ("'negative', delay => '-1 hour'", 0),
            ("'kind', kind => 'f\u{fc}r'", 0),
            ("'priority', priority => 0", 0),
            ("'queue', queue => 'f\u{fc}r'", 0),
        ] {
            assert!(call(&other, arguments).await.unwrap(), "{arguments}");
            let key = arguments.split('\'').nth(1).unwrap();
            assert_eq!(payload(&queue, key).await.len(), length, "{arguments}");
        }
        let after = Time::wall();
        assert_eq!(payload(&queue, "text").await, "f\u{fc}r".as_bytes());
        assert_eq!(payload(&queue, "bytes").await, [0, 255]);
        let at = async |key: &str| queue.get(key).await.unwrap().unwrap().at;
        assert_eq!(at("moment").await, Time::from_micros(7_229_214_000_000_001));
        assert_eq!(at("past").await, Time::from_micros(-1));
        let delay = Duration::from_micros(62_000_003);
        for (key, delay) in [
            ("default", Duration::ZERO),
            ("text", delay),
            ("negative", Duration::ZERO),
        ] {
            let at = at(key).await;
            assert!(
                before.after(delay) <= at && at <= after.after(delay),
                "{key}"
            );
        }
        // What was counted from the server's clock is counted again if the clock was wrong.
        let counted = "SELECT key FROM durable_jobs WHERE counted IS NOT NULL ORDER BY key";
        let found = other.query(counted, &[]).await.unwrap();
        let found: Vec<&str> = found.iter().map(|row| row.get(0)).collect();
        let counted = [
            "bytes", "default", "json", "kind", "negative", "priority", "queue", "text",
        ];
        assert_eq!(found, counted);
        let kind = async |key: &str| queue.get(key).await.unwrap().unwrap().kind;
        assert_eq!(kind("kind").await, "f\u{fc}r");
        assert_eq!(kind("default").await, "");
        let priority = async |key: &str| queue.get(key).await.unwrap().unwrap().priority;
        assert_eq!(priority("priority").await, 0);
        assert_eq!(priority("default").await, 4);
        let name = async |key: &str| queue.get(key).await.unwrap().unwrap().queue;
        assert_eq!(name("queue").await, "f\u{fc}r");
        assert_eq!(name("default").await, "default");
    });
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let long = |count| format!("repeat('\u{fc}', {count})");
        for bad in [
            "NULL",
            "''",
            r"E'a\tb'",
            r"E'\x7f'",
            r"E'\u0085'",
            &long(257),
        ] {
            let text = refused(&other, bad).await;
            assert_eq!(text, "a key has 1 to 512 bytes, and no control characters");
        }
        assert!(call(&other, &long(256)).await.unwrap());
        let text = refused(&other, "'k', repeat('x', 1024 * 1024 + 1)").await;
        assert_eq!(
            text,
            "a payload has at most 1048576 bytes, and this one has 1048577"
        );
        assert!(
            call(&other, "'large', repeat('x', 1024 * 1024)")
                .await
                .unwrap()
        );
        for bad in ["NULL", r"E'a\tb'", &long(65)] {
            let text = refused(&other, &format!("'k', kind => {bad}")).await;
            let expected = "the name of a kind has at most 128 bytes, and no control characters";
            assert_eq!(text, expected);
        }
        for bad in ["NULL", "''", r"E'a\tb'", &long(65)] {
            let text = refused(&other, &format!("'k', queue => {bad}")).await;
            let expected = "the name of a queue has 1 to 128 bytes, and no control characters";
            assert_eq!(text, expected);
        }
        for bad in ["NULL", "-1", "10"] {
            let text = refused(&other, &format!("'k', priority => {bad}")).await;
            let expected = format!("a priority is 0, the highest, to 9, and this one is {bad}");
            assert_eq!(text, expected);
        }
        let both = refused(&other, "'k', 'text', bytes => ''").await;
        assert_eq!(both, "give one of payload and bytes");
        let both = refused(&other, "'k', at => now(), delay => '1 s'").await;
        assert_eq!(both, "give one of at and delay");
        for never in ["infinity", "-infinity"] {
            let text = refused(&other, &format!("'k', at => '{never}'")).await;
            assert_eq!(text, "a job needs a time that comes");
        }
        assert_eq!(queue.count().await.unwrap().live, 2);
        // A job that is there stays as it is.
        assert!(!call(&other, "'large', 'other'").await.unwrap());
        assert_eq!(payload(&queue, "large").await.len(), 1 << 20);
    });
}

#[test]
fn a_node_learns_of_a_job_at_the_commit() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        // Unless it is told, it looks again after five minutes only.
        let (node, mut ran) = node(&queue, |node| node.window(24 * HOUR), |_| Ok(()));
        queue.schedule("first", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "first");
        other.batch_execute("BEGIN").await.unwrap();
        assert!(call(&other, "'job', 'hello'").await.unwrap());
        queue.schedule("second", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "second");
        other.batch_execute("COMMIT").await.unwrap();
        let attempt = ran.recv().await.unwrap();
        assert_eq!((&*attempt.key, &*attempt.payload), ("job", &b"hello"[..]));
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Calls a function with the name of a queue.
async fn change(
    client: &Client,
    function: &str,
    name: &str,
) -> Result<bool, tokio_postgres::Error> {
    let call = format!("SELECT {function}($1)");
    Ok(client.query_one(&call, &[&name]).await?.get(0))
}

/// Asks for a change of a pause until no other transaction keeps it from its end.
fn ask<F>(
    queue: &Queue<Store>,
    change: impl Fn(Queue<Store>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = Result<(), QueueError>> + Send,
{
    let queue = queue.clone();
    tourbillon::spawn(async move {
        loop {
            match change(queue.clone()).await {
                Err(QueueError::Store(StoreError::Locked)) => {}
                answer => return answer.unwrap(),
            }
        }
    })
}

#[test]
fn a_queue_is_paused_and_goes_on_at_the_commit() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let (node, mut ran) = node(&queue, |node| node.window(24 * HOUR), |_| Ok(()));
        let schedule = async |key: &str| {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        };
        for (end, key) in [("ROLLBACK", "undone"), ("COMMIT", "open")] {
            other.batch_execute("BEGIN").await.unwrap();
            assert!(change(&other, "jobs_pause", "default").await.unwrap());
            schedule(key).await;
            assert_eq!(ran.recv().await.unwrap().key, key);
            other.batch_execute(end).await.unwrap();
        }
        assert_eq!(queue.paused().await.unwrap(), ["default"]);
        assert!(!change(&other, "jobs_pause", "default").await.unwrap());
        schedule("paused").await;
        other.batch_execute("BEGIN").await.unwrap();
        assert!(change(&other, "jobs_resume", "default").await.unwrap());
        // Another one cannot resume it before that, and does not wait for ever.
        let resumed = ask(&queue, |queue| async move { queue.resume("default").await });
        sleep(Duration::from_millis(200)).await;
        assert!(!resumed.is_finished() && ran.try_recv().is_err());
        other.batch_execute("COMMIT").await.unwrap();
        resumed.await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "paused");
        assert!(!change(&other, "jobs_resume", "default").await.unwrap());
        for bad in ["", "a\nb", &"q".repeat(129)] {
            let error = change(&other, "jobs_pause", bad).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{error}");
        }
        assert!(queue.paused().await.unwrap().is_empty());
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_pause_waits_for_begins_that_have_not_seen_it() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let store = queue.store();
        let lease = store.register(HOUR).await.unwrap().node;
        let held = support::hold(&**store, lease, HOUR, 1).await;
        // What each begin does until its commit.
        let begins = "BEGIN; SELECT durable_paused()";
        other.batch_execute(begins).await.unwrap();
        let paused = ask(&queue, |queue| async move { queue.pause("default").await });
        while queue.paused().await.unwrap().is_empty() {
            sleep(Duration::from_millis(2)).await;
        }
        sleep(Duration::from_millis(200)).await;
        assert!(!paused.is_finished());
        // Later ones see it, and are not kept waiting.
        let begin = || vec![start("job", held[0].token)];
        assert_eq!(store.begin(begin()).await.unwrap(), [Begin::Paused]);
        other.batch_execute("COMMIT").await.unwrap();
        paused.await.unwrap();
        assert_eq!(store.begin(begin()).await.unwrap(), [Begin::Paused]);
        queue.resume("default").await.unwrap();
        assert_eq!(store.begin(begin()).await.unwrap(), [yes(1)]);
    });
}

#[test]
fn a_client_waits_for_the_transaction_that_adds_its_key() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        for end in ["COMMIT", "ROLLBACK"] {
            other.batch_execute("BEGIN").await.unwrap();
            assert!(call(&other, "'job', 'theirs'").await.unwrap());
            let asking = queue.clone();
            let asked =
                tourbillon::spawn(async move { asking.schedule("job", HOUR, "ours").await });
            // Another key does not wait.
            queue.schedule("other", HOUR, "").await.unwrap();
            queue.cancel("other").await.unwrap();
            assert!(!asked.is_finished());
            other.batch_execute(end).await.unwrap();
            asked.await.unwrap().unwrap();
            let expected: &[u8] = match end {
                "COMMIT" => b"theirs",
                _ => b"ours",
            };
            assert_eq!(payload(&queue, "job").await, expected);
            queue.cancel("job").await.unwrap();
        }
    });
}

#[test]
fn a_role_that_may_only_add_jobs_does_nothing_else() {
    with_client(async |server, other| {
        Store::migrate(&Postgres::config(server.port()))
            .await
            .unwrap();
        let roles = "
            CREATE ROLE shop LOGIN; CREATE ROLE stranger LOGIN;
            GRANT EXECUTE ON FUNCTION jobs_schedule TO shop;";
        other.batch_execute(roles).await.unwrap();
        let as_role = async |name: &str| {
            let client = client(&server).await;
            let set = format!("SET SESSION AUTHORIZATION {name}");
            client.batch_execute(&set).await.unwrap();
            client
        };
        let is_denied = |error: tokio_postgres::Error| {
            assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
        };
        let stranger = as_role("stranger").await;
        is_denied(call(&stranger, "'job'").await.unwrap_err());
        let shop = as_role("shop").await;
        for statement in [
            "SELECT FROM durable_jobs",
            "DELETE FROM durable_jobs",
            "SELECT nextval('durable_numbers')",
            "SELECT jobs_pause('default')",
            "SELECT jobs_resume('default')",
        ] {
            is_denied(shop.batch_execute(statement).await.unwrap_err());
        }
        // It cannot have its own tables or functions used with the owner's rights.
        let takes = "
            CREATE TEMP TABLE durable_jobs (key text, payload bytea, due bigint, at bigint,
                counted bigint);
            CREATE FUNCTION pg_temp.durable_now() RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
            SET search_path = pg_temp, public;";
        shop.batch_execute(takes).await.unwrap();
        assert!(call(&shop, "'job', delay => '1 hour'").await.unwrap());
        let found = shop.query("SELECT FROM pg_temp.durable_jobs", &[]).await;
        assert!(found.unwrap().is_empty());
        let found = other.query("SELECT key FROM durable_jobs", &[]).await;
        assert_eq!(found.unwrap().len(), 1);
    });
}

#[test]
fn a_database_of_another_encoding_gets_texts_in_utf_8() {
    with_client(async |server, _| {
        let queue = latin(&server).await;
        let config = Postgres::config(server.port()).replace("dbname=postgres", "dbname=latin");
        let other = client_of(&config, server.port()).await.unwrap();
        assert!(call(&other, "'f\u{fc}r', 'f\u{fc}r'").await.unwrap());
        assert_eq!(payload(&queue, "f\u{fc}r").await, "f\u{fc}r".as_bytes());
        let text = refused(&other, r"E'\u0085'").await;
        assert!(text.contains("no control characters"), "{text}");
    });
}

#[test]
fn a_migration_adds_the_function_to_tables_that_have_none() {
    with_client(async |server, other| {
        let config = Postgres::config(server.port());
        Store::migrate(&config).await.unwrap();
        for (spoil, has) in [
            ("DROP FUNCTION jobs_schedule", false),
            (
                // That of version 2.
                "DROP FUNCTION jobs_schedule; CREATE FUNCTION jobs_schedule(
                     key text, payload text DEFAULT NULL, at timestamptz DEFAULT NULL,
                     delay interval DEFAULT NULL, bytes bytea DEFAULT NULL)
                 RETURNS boolean LANGUAGE sql AS 'SELECT false'",
                true,
            ),
        ] {
            other.batch_execute(spoil).await.unwrap();
            // Nodes do not need it.
            drop(Store::connect(&config).await.unwrap());
            assert_eq!(call(&other, "'job'").await.is_ok(), has);
            Store::migrate(&config).await.unwrap();
            assert!(call(&other, "'job'").await.unwrap());
            let remove = "DELETE FROM durable_jobs";
            other.batch_execute(remove).await.unwrap();
        }
        // Tables in another schema get it there.
        let schema = "CREATE SCHEMA jobs; ALTER ROLE postgres SET search_path = jobs, public";
        let config = config.replace(
            "user=postgres",
            "user=postgres options='-csearch_path=jobs'",
        );
        other.batch_execute(schema).await.unwrap();
        Store::migrate(&config).await.unwrap();
        let there = client(&server).await;
        assert!(call(&there, "'in jobs'").await.unwrap());
        let found = there.query("SELECT FROM jobs.durable_jobs", &[]).await;
        assert_eq!(found.unwrap().len(), 1);
    });
}

/// Returns the examples of the page in a language.
fn examples(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    let parts = PAGE.split(&*start).skip(1);
    parts
        .map(|part| part.split_once("```").unwrap().0)
        .collect()
}

#[test]
fn the_examples_of_the_page_do_what_it_says() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let shop = "CREATE ROLE shop LOGIN;
            CREATE TABLE orders (id bigint PRIMARY KEY); GRANT INSERT ON orders TO shop;";
        other.batch_execute(shop).await.unwrap();
        let sql = examples("sql");
        assert_eq!(sql.len(), 5);
        other.batch_execute(sql[0]).await.unwrap();
        other.batch_execute(sql[4]).await.unwrap();
        assert!(queue.paused().await.unwrap().is_empty());
        other.batch_execute(sql[3]).await.unwrap();
        let traced = queue.get("invoice/10").await.unwrap().unwrap();
        assert_eq!(traced.traceparent.as_deref(), Some(crate::trace::TRACE));
        queue.cancel("invoice/10").await.unwrap();
        let port = server.port();
        let mut jobs = 0;
        match psql(port) {
            Some(mut psql) => {
                let script = format!("SET SESSION AUTHORIZATION shop; {}", sql[1]);
                let ended = psql.args(["-c", &script]).output().unwrap();
                assert!(ended.status.success(), "{ended:?}");
                assert_eq!(payload(&queue, "invoice/7").await, br#"{"order": 7}"#);
                jobs += 1;
                // The key stays taken after the job is done.
                let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
                for answer in ["t", "f"] {
                    let mut psql = self::psql(port).unwrap();
                    let ended = psql.args(["-tAc", sql[2]]).output().unwrap();
                    assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), answer);
                    if answer == "t" {
                        assert_eq!(ran.recv().await.unwrap().payload, b"the news");
                        live(&queue, jobs).await;
                    }
                }
                assert!(node.stop(PATIENCE).await);
            }
            None => skip("psql is not installed: apt-get install postgresql-client"),
        }
        match python() {
            Some(mut python) => {
                let [script] = examples("python")[..] else {
                    panic!("there is one example");
                };
                let config = format!("host=127.0.0.1 port={port} dbname=postgres user=shop");
                let script = script.replace("host=127.0.0.1 dbname=shop user=shop", &config);
                let ended = python.args(["-c", &script]).output().unwrap();
                assert!(ended.status.success(), "{ended:?}");
                assert_eq!(payload(&queue, "invoice/8").await, br#"{"order": 8}"#);
                jobs += 1;
            }
            None => skip("psycopg is not installed: `.ci/psycopg`"),
        }
        assert_eq!(queue.count().await.unwrap().live, jobs);
    });
}
