//! The function `jobs_schedule_or_replace`, and what `SQL.md` says of it.

use std::time::Duration;

use tokio_postgres::{Client, error::SqlState};
use tourbillon::time::sleep;
use tourbillon_jobs::{NewJob, Repeat, job::State, postgres::Postgres as Store, store::Replaced};

use crate::{
    postgres::{client, with_client},
    server::{Postgres, Server},
    shared::connect,
    support::{HOUR, PATIENCE, live, node, soon, waiting},
};

/// Calls the function with these arguments.
async fn call(client: &Client, arguments: &str) -> Result<String, tokio_postgres::Error> {
    let call = format!("SELECT jobs_schedule_or_replace({arguments})");
    Ok(client.query_one(&call, &[]).await?.get(0))
}

#[test]
fn a_job_is_replaced_in_a_transaction() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let call = async |arguments: &str| call(&other, arguments).await.unwrap();
        let arguments = "'key', 'first', delay => '1 hour'";
        assert_eq!(call(arguments).await, "created");
        let cron = Repeat::parse("0 9 1 1 *", "UTC").unwrap();
        let job = NewJob::new("key", cron, "cron").kind("mail").priority(1);
        let made = queue.schedule_or_replace(job).await.unwrap();
        assert!(matches!(made, Replaced::Replaced { .. }), "{made:?}");
        // What is rolled back has replaced nothing.
        let again = "'key', 'second', delay => '1 hour', queue => 'mails', priority => 9";
        other.batch_execute("BEGIN").await.unwrap();
        assert_eq!(call(again).await, "replaced");
        other.batch_execute("ROLLBACK").await.unwrap();
        let found = queue.get("key").await.unwrap().unwrap();
        assert_eq!((&found.payload[..], &*found.kind), (&b"cron"[..], "mail"));
        assert_eq!(call(again).await, "replaced");
        let found = queue.get("key").await.unwrap().unwrap();
        assert_eq!((&found.payload[..], &*found.kind), (&b"second"[..], ""));
        assert_eq!((&*found.queue, found.priority), ("mails", 9));
        assert_eq!((found.repeat, found.attempts), (None, 0));
        let counted = "SELECT counted IS NOT NULL FROM durable_jobs";
        let counted = async || -> bool { other.query_one(counted, &[]).await.unwrap().get(0) };
        assert!(counted().await);
        let moment = "'key', at => '2199-01-31 12:00:00+00'";
        assert_eq!(call(moment).await, "replaced");
        assert!(!counted().await);
        queue.cancel("key").await.unwrap();

        // A job that runs is replaced, too, and its end is refused.
        let (node, gate, mut ran, mut ends) = waiting(&queue, |node| node, |_| Ok(()));
        queue.schedule("key", Duration::ZERO, "").await.unwrap();
        ran.recv().await.unwrap();
        assert_eq!(call(arguments).await, "running");
        gate.add_permits(1);
        assert_eq!(ends.recv().await.unwrap().1, Some(false));
        let found = queue.get("key").await.unwrap().unwrap();
        assert_eq!((found.state, found.attempts), (State::Waiting, 0));
        // The nodes learn of a job that is due at once.
        assert_eq!(call("'key', 'now'").await, "replaced");
        assert_eq!(ran.recv().await.unwrap().payload, b"now");
        gate.add_permits(1);
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_key_stays_taken_by_sql() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let add = async |arguments: &str| -> Result<bool, tokio_postgres::Error> {
            let call = format!("SELECT jobs_schedule({arguments})");
            Ok(other.query_one(&call, &[]).await?.get(0))
        };
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        assert!(add("'key', unique_for => '1 hour'").await.unwrap());
        ran.recv().await.unwrap();
        live(&queue, 0).await;
        assert!(!add("'key'").await.unwrap());
        assert!(!add("'key', unique_for => '1 second'").await.unwrap());
        // A replacement does not wait. It keeps its own key, and another one keeps none.
        let short = "'key', 'short', unique_for => '100 milliseconds'";
        assert_eq!(call(&other, short).await.unwrap(), "created");
        assert_eq!(ran.recv().await.unwrap().payload, b"short");
        live(&queue, 0).await;
        let free = async {
            while !add("'key', 'again'").await.unwrap() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        soon("for a key to be free", free).await;
        assert_eq!(ran.recv().await.unwrap().payload, b"again");
        live(&queue, 0).await;
        assert!(add("'key', delay => '1 hour'").await.unwrap());
        for bad in ["'-1 second'", "'-1 year 361 days'", "'-178000000 years'"] {
            let error = add(&format!("'k', unique_for => {bad}")).await.unwrap_err();
            let code = error.code();
            assert_eq!(code, Some(&SqlState::INVALID_PARAMETER_VALUE), "{bad}");
        }
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_key_stays_taken_for_any_time() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let times = [
            ("0", false),
            ("1 microsecond", true),
            ("292250 years", true),
            ("292272 years", true),
            ("178000000 years", true),
        ];
        for (time, _) in times {
            for name in ["jobs_schedule", "jobs_schedule_or_replace"] {
                let add = format!("SELECT {name}('{time}', unique_for => '{time}')");
                other.batch_execute(&add).await.unwrap();
            }
        }
        for (time, is_kept) in times {
            let kept = "SELECT unique_for IS NOT NULL FROM durable_jobs WHERE key = $1";
            let found = other.query_one(kept, &[&time]).await.unwrap();
            assert_eq!(found.get::<_, bool>(0), is_kept, "{time}");
        }
        // Their ends are taken.
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        for _ in times {
            ran.recv().await.unwrap();
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
        for (time, _) in &times[2..] {
            let add = format!("SELECT jobs_schedule('{time}')");
            let added: bool = other.query_one(&add, &[]).await.unwrap().get(0);
            assert!(!added, "{time}");
        }
    });
}

#[test]
fn what_another_transaction_adds_is_replaced_after_its_commit() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        for (end, answer) in [("COMMIT", "replaced"), ("ROLLBACK", "created")] {
            other.batch_execute("BEGIN").await.unwrap();
            let add = "SELECT jobs_schedule('key', 'theirs', delay => '1 hour')";
            other.query_one(add, &[]).await.unwrap();
            let second = client(&server).await;
            let ours = "'key', 'ours', delay => '1 hour'";
            let ours = tourbillon::spawn(async move { call(&second, ours).await });
            let third = queue.clone();
            let job = NewJob::new("key", HOUR, "queue");
            let third = tourbillon::spawn(async move { third.schedule_or_replace(job).await });
            sleep(Duration::from_millis(200)).await;
            assert!(!ours.is_finished() && !third.is_finished());
            other.batch_execute(end).await.unwrap();
            let by_sql = ours.await.unwrap().unwrap();
            let by_queue = third.await.unwrap().unwrap();
            // One of them replaces what the other one has added.
            let is_created = matches!(by_queue, Replaced::Created { .. });
            match (answer, &*by_sql) {
                ("replaced", "replaced") => assert!(!is_created),
                ("created", "created") => assert!(!is_created),
                ("created", "replaced") => assert!(is_created),
                other => panic!("{other:?} {by_queue:?}"),
            }
            assert_eq!(queue.count().await.unwrap().live, 1);
            assert_ne!(queue.get("key").await.unwrap().unwrap().payload, b"theirs");
            queue.cancel("key").await.unwrap();
        }
    });
}

#[test]
fn it_has_the_rights_and_the_bounds_of_the_other_function() {
    with_client(async |server, other| {
        let config = Postgres::config(server.port());
        Store::migrate(&config).await.unwrap();
        // An earlier build of this version has none.
        let remove = "DROP FUNCTION jobs_schedule_or_replace";
        other.batch_execute(remove).await.unwrap();
        drop(Store::connect(&config).await.unwrap());
        Store::migrate(&config).await.unwrap();
        let roles = "CREATE ROLE shop LOGIN; CREATE ROLE stranger LOGIN;
            GRANT EXECUTE ON FUNCTION jobs_schedule_or_replace TO shop;";
        other.batch_execute(roles).await.unwrap();
        let job = "'job', delay => '1 hour'";
        for (role, is_allowed) in [("shop", true), ("stranger", false)] {
            let client = client(&server).await;
            let set = format!("SET SESSION AUTHORIZATION {role}");
            client.batch_execute(&set).await.unwrap();
            match call(&client, job).await {
                Ok(answer) => assert!(is_allowed, "{answer}"),
                Err(error) => {
                    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
                    assert!(!is_allowed);
                }
            }
        }
        // A migration keeps the right.
        Store::migrate(&config).await.unwrap();
        let may = "SELECT has_function_privilege('shop', oid, 'EXECUTE') FROM pg_proc
            WHERE proname = 'jobs_schedule_or_replace'";
        assert!(other.query_one(may, &[]).await.unwrap().get::<_, bool>(0));
        for bad in ["NULL", "''", "'k', priority => 10", "'k', queue => ''"] {
            let error = call(&other, bad).await.unwrap_err();
            let code = error.code();
            assert_eq!(code, Some(&SqlState::INVALID_PARAMETER_VALUE), "{bad}");
        }
    });
}
