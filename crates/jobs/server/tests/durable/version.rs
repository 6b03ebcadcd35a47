//! Stores that programs of another version have made.

use std::{collections::BTreeMap, time::Duration};

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, NewJob, Node, Queue,
    sqlite::Sqlite,
    store::{Listing, Scheduled, Store, StoreError},
};

use crate::support::{Dir, HOUR, PATIENCE, live, node, run, soon, unbounded_channel};

/// What programs of versions 1 to 4 have made, each with jobs in all states.
const SQLITE: [&str; 4] = [
    include_str!("version_1/sqlite.sql"),
    include_str!("version_2/sqlite.sql"),
    include_str!("version_3/sqlite.sql"),
    include_str!("version_4/sqlite.sql"),
];
#[cfg(feature = "postgres")]
const POSTGRES: [&str; 4] = [
    include_str!("version_1/postgres.sql"),
    include_str!("version_2/postgres.sql"),
    include_str!("version_3/postgres.sql"),
    include_str!("version_4/postgres.sql"),
];
#[cfg(feature = "redis")]
const REDIS: [&str; 4] = [
    include_str!("version_1/redis.lua"),
    include_str!("version_2/redis.lua"),
    include_str!("version_3/redis.lua"),
    include_str!("version_4/redis.lua"),
];

/// Checks the error of a store that has another version than the program needs.
#[track_caller]
fn is_refused<S>(opened: Result<S, StoreError>, version: i64, advice: &str) {
    let Err(error) = opened else {
        panic!("version {version} is taken");
    };
    assert!(
        matches!(error, StoreError::Version(found) if found == version),
        "{error}"
    );
    let text = error.to_string();
    let names_both = text.contains(&format!("version {version} "));
    assert!(names_both && text.contains("version 5"), "{text}");
    assert!(text.contains(advice), "{text}");
}

/// Checks that a store has the jobs of an earlier version, and that they go on.
async fn goes_on<S: Store>(queue: &Queue<S>, version: usize) {
    // What only version 4 has is in a queue of its own, which is paused.
    let aside = u64::from(version == 4);
    let listing = Listing {
        limit: 100,
        beginning: 100,
        ..Listing::default()
    };
    let jobs = queue.list(listing).await.unwrap();
    let facts: Vec<_> = jobs
        .iter()
        .filter(|job| job.queue != "mails")
        .map(|job| {
            assert_eq!(job.payload, format!("of {}", job.key).into_bytes());
            assert_eq!(job.repeat.is_some(), job.key == "cron");
            let lane = (job.queue.as_str(), job.kind.as_str(), job.priority);
            assert_eq!(lane, ("default", "", 4));
            (job.key.as_str(), job.attempts, job.error.as_deref())
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("cron", 0, None),
            ("dead", 8, Some("broken")),
            ("due", 0, None),
            ("held", 0, None),
            ("later", 0, None),
            ("retry", 1, Some("failed")),
            ("running", 1, None),
        ]
    );
    let lease = Duration::from_secs(3);
    let (node, mut ran) = node(queue, |node| node.lease(lease), |_| Ok(()));
    let mut attempts = BTreeMap::new();
    while attempts.len() < 5 {
        let attempt = ran.recv().await.unwrap();
        // On a slow machine the node may lose its lease, and a job runs again.
        attempts.entry(attempt.key).or_insert(attempt.number);
    }
    let expected = [
        ("cron", 1),
        ("due", 1),
        ("held", 1),
        ("retry", 2),
        ("running", 2),
    ];
    for (key, number) in expected {
        let found = attempts[key];
        // Without a handler, an attempt counts that has begun just as the lease was lost.
        let is_right = match node.stats().leases {
            1 => found == number,
            _ => found >= number,
        };
        assert!(is_right, "attempt {found} of {key}");
    }
    live(queue, 2 + aside).await;
    queue.reschedule("dead", Duration::ZERO).await.unwrap();
    while ran.recv().await.unwrap().key != "dead" {}
    live(queue, 2 + aside).await;
    assert!(node.stop(PATIENCE).await);
    if version == 4 {
        lanes_and_kept_keys_go_on(queue).await;
        live(queue, 2).await;
    }
    // It takes what only this version knows.
    let job = NewJob::new("new", HOUR, "").queue("mails");
    let job = job.kind("mail").priority(1).unique_for(HOUR);
    let job = job.traceparent(crate::trace::TRACE);
    queue.schedule_job(job).await.unwrap();
    let new = queue.get("new").await.unwrap().unwrap();
    let lane = (new.queue.as_str(), new.kind.as_str(), new.priority);
    assert_eq!(lane, ("mails", "mail", 1));
    assert_eq!(new.traceparent.as_deref(), Some(crate::trace::TRACE));
}

/// Checks what only version 4 has made: a job of a lane, a pause and keys that stay taken.
async fn lanes_and_kept_keys_go_on<S: Store>(queue: &Queue<S>) {
    let taken = async |key: &str| {
        let added = queue.schedule(key, HOUR, "").await.unwrap();
        assert!(matches!(added, Scheduled::Exists { .. }), "{key}");
    };
    taken("kept").await;
    assert!(queue.get("kept").await.unwrap().is_none());
    assert_eq!(queue.paused().await.unwrap(), ["mails"]);
    let mail = queue.get("mail").await.unwrap().unwrap();
    assert_eq!((&*mail.kind, mail.priority, mail.attempts), ("mail", 1, 0));
    let (sender, mut ran) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .queue("mails", 1)
        .on_kind("mail", move |attempt: Attempt| {
            let _ = sender.send((attempt.key, attempt.number));
            async { Ok(()) }
        })
        .start_kinds();
    queue.resume("mails").await.unwrap();
    assert_eq!(ran.recv().await.unwrap(), ("mail".to_owned(), 1));
    soon("for the job to end", async {
        while queue.get("mail").await.unwrap().is_some() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    taken("mail").await;
    assert!(node.stop(PATIENCE).await);
}

#[test]
fn the_embedded_store_takes_over_an_earlier_version() {
    for (version, make) in (1..).zip(SQLITE) {
        let dir = Dir::new();
        let base = rusqlite::Connection::open(dir.store()).unwrap();
        base.execute_batch(make).unwrap();
        drop(base);
        run(async {
            let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
            goes_on(&queue, version).await;
            drop(queue);
        });
        let base = rusqlite::Connection::open(dir.store()).unwrap();
        let version = base.pragma_query_value(None, "user_version", |row| row.get(0));
        assert_eq!(version, Ok(5_i64));
        base.pragma_update(None, "user_version", 6).unwrap();
        drop(base);
        is_refused(Sqlite::open(dir.store()), 6, "use a program that knows it");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn tables_of_an_earlier_version_are_migrated() {
    use tourbillon_jobs::postgres::Postgres as Store;

    use crate::{
        postgres::client,
        server::{Postgres, Server},
        shared::{connect, with_server},
    };

    for (version, make) in (1..).zip(POSTGRES) {
        with_server(async |server: Postgres| {
            let config = Postgres::config(server.port());
            let other = client(&server).await;
            other.batch_execute(make).await.unwrap();
            let opened = Store::connect(&config).await;
            is_refused(opened, version as i64, "run `delayed_jobs --migrate` once");
            // Nothing happens the second time.
            Store::migrate(&config).await.unwrap();
            Store::migrate(&config).await.unwrap();
            if version == 1 {
                // A program of version 1 that starts makes its function anew before it looks at the
                // version.
                let (tables, _) = make.split_once("-- Jobs in all states").unwrap();
                other.batch_execute(tables).await.unwrap();
            }
            // One that has connected before goes on. The lease of its node ends before this one has
            // taken jobs with kinds.
            let end = if version == 1 {
                "durable_end"
            } else {
                "durable_end_2"
            };
            let has_kinds = "SELECT has_kinds AND has_kept FROM durable_version";
            let found = other.query_one(has_kinds, &[]).await.unwrap();
            // A lease of a version that does not know them may be there.
            assert_eq!(found.get::<_, bool>(0), version == 4);
            let old = format!(
                "INSERT INTO durable_nodes (node, until, version)
                    VALUES (2, durable_now() - 1, {version});
                INSERT INTO durable_jobs (key, payload, due, at) VALUES ('old', '', 0, 0);
                UPDATE durable_jobs SET node = 2, token = 7 WHERE key = 'old';
                UPDATE durable_nodes SET until = durable_now() + 1 WHERE node = 2;
                SELECT {end}(2, 10);
                DELETE FROM durable_jobs WHERE key = 'old' AND node IS NULL;"
            );
            other.batch_execute(&old).await.unwrap();
            let queue = connect::<Postgres>(server.port()).await;
            goes_on(&queue, version).await;

            let later = "
                UPDATE durable_version SET version = 6;
                CREATE OR REPLACE FUNCTION durable_end_2(ended bigint, most bigint) RETURNS bigint
                    LANGUAGE sql AS 'SELECT 33::bigint';";
            other.batch_execute(later).await.unwrap();
            for opened in [
                Store::connect(&config).await.map(drop),
                Store::migrate(&config).await,
            ] {
                is_refused(opened, 6, "use a program that knows it");
            }
            let end = other.query_one("SELECT durable_end_2(0, 0)", &[]).await;
            assert_eq!(end.unwrap().get::<_, i64>(0), 33);
        });
    }
}

#[cfg(feature = "redis")]
#[test]
fn a_redis_of_an_earlier_version_is_migrated() {
    use tourbillon_jobs::redis::Redis as Store;

    use crate::{
        redis::eval,
        server::{Redis, Server},
        shared::with_server,
    };

    for (version, make) in (1..).zip(REDIS) {
        with_server(async |server: Redis| {
            let url = format!("redis://127.0.0.1:{}", server.port());
            eval(&server, make);
            let opened = Store::connect(&url).await;
            is_refused(opened, version as i64, "run `delayed_jobs --migrate` once");
            Store::migrate(&url).await.unwrap();
            Store::migrate(&url).await.unwrap();
            let queue = Queue::new(Store::connect(&url).await.unwrap());
            goes_on(&queue, version).await;

            eval(&server, "redis.call('SET', '{durable}:version', 6)");
            for opened in [
                Store::connect(&url).await.map(drop),
                Store::migrate(&url).await,
            ] {
                is_refused(opened, 6, "use a program that knows it");
            }
        });
    }
}
