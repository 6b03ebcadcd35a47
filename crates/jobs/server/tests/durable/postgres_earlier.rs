//! Nodes and clients of earlier versions beside a PostgreSQL that was migrated.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tourbillon::time::sleep;
use tourbillon_jobs::{
    NewJob, Node, Queue, QueueError,
    postgres::Postgres as Store,
    store::{Store as _, StoreError},
};

use crate::{
    migration::{VERSION_2, VERSION_3, earlier_node, goes_on, is_migrated},
    postgres::{client, with_client},
    server::{Postgres, Server},
    shared::connect,
    support::{HOUR, PATIENCE, live, soon},
};

/// Grants a lease, as a node of version 2 does.
const LEASE_OF_VERSION_2: &str = "
    INSERT INTO durable_nodes (node, until, counted)
    SELECT nextval('durable_numbers'), c.now + 60000000, c.now
    FROM (SELECT durable_now() AS now) AS c";

#[test]
fn kinds_wait_until_nodes_of_earlier_versions_are_gone() {
    with_client(async |server, other| {
        let config = Postgres::config(server.port());
        other.batch_execute(VERSION_2).await.unwrap();
        let ran = earlier_node(&server, 2).await;
        let old = "
            CREATE ROLE shop LOGIN; CREATE ROLE \"a shop\" LOGIN;
            GRANT EXECUTE ON FUNCTION jobs_schedule TO shop, \"a shop\";";
        other.batch_execute(old).await.unwrap();
        other.batch_execute(LEASE_OF_VERSION_2).await.unwrap();
        Store::migrate(&config).await.unwrap();
        is_migrated(&other).await;
        goes_on(&ran).await;

        let queue = connect::<Postgres>(server.port()).await;
        // It leaves the job of the earlier node alone.
        let modern = Node::builder(queue.clone())
            .on_kind("image", |_| async { Ok(()) })
            .start_kinds();
        let mail = || NewJob::new("mail", HOUR, "").kind("mail");
        let add = |job: NewJob| {
            let queue = queue.clone();
            tourbillon::spawn(async move { queue.schedule_job(job).await })
        };
        // Other jobs, of the same request, are taken.
        let added = [
            add(NewJob::new("one", HOUR, "")),
            add(mail()),
            add(NewJob::new("two", HOUR, "")),
        ];
        let [one, refused, two] = added;
        one.await.unwrap().unwrap();
        two.await.unwrap().unwrap();
        let refused = refused.await.unwrap().unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(
            is_told && refused.to_string().contains("upgrade"),
            "{refused}"
        );
        let job = || NewJob::new("job", HOUR, "");
        for job in [job().priority(0), job().queue("mails")] {
            let refused = add(job).await.unwrap().unwrap_err();
            let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
            assert!(is_told, "{refused}");
        }
        let refused = queue.pause("default").await.unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        let by_sql = other.batch_execute("SELECT jobs_pause('default')").await;
        let error = by_sql.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.message().contains("upgrade"), "{error}");
        for lane in ["kind => 'mail'", "priority => 3", "queue => 'mails'"] {
            let by_sql = format!("SET ROLE \"a shop\"; SELECT jobs_schedule('mail', {lane})");
            let error = other.batch_execute(&by_sql).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert!(error.message().contains("upgrade"), "{error}");
            other.batch_execute("RESET ROLE").await.unwrap();
        }
        goes_on(&ran).await;
        let has_index = "SELECT to_regclass('durable_jobs_free') IS NOT NULL";
        let has_index = async || {
            other
                .query_one(has_index, &[])
                .await
                .unwrap()
                .get::<_, bool>(0)
        };
        assert!(has_index().await);

        // The earlier nodes end. From the first job with a kind on, none gets a lease.
        let ended = "
            UPDATE durable_nodes SET until = 0 WHERE version < 3;
            SELECT durable_end_2(0, 10);";
        let is_left = "SELECT EXISTS (SELECT FROM durable_nodes WHERE version < 3)";
        // The earlier node may renew its lease, or have it locked, just then.
        while {
            other.batch_execute(ended).await.unwrap();
            let found = other.query_one(is_left, &[]).await.unwrap();
            found.get::<_, bool>(0)
        } {}
        queue.schedule_job(mail()).await.unwrap();
        let error = other.batch_execute(LEASE_OF_VERSION_2).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.message().contains("upgrade"), "{error}");
        let by_sql = "SET ROLE shop; SELECT jobs_schedule('by sql', kind => 'mail'); RESET ROLE";
        other.batch_execute(by_sql).await.unwrap();
        assert_eq!(queue.get("by sql").await.unwrap().unwrap().kind, "mail");
        assert!(modern.stop(PATIENCE).await);
        // Nobody needs the index of earlier versions any more.
        Store::migrate(&config).await.unwrap();
        assert!(!has_index().await);
    });
}

/// Grants a lease, as a node of version 3 does.
const LEASE_OF_VERSION_3: &str = "
    INSERT INTO durable_nodes (node, until, counted, version)
    SELECT nextval('durable_numbers'), c.now + 60000000, c.now, 3
    FROM (SELECT durable_now() AS now) AS c";

#[test]
fn keys_are_kept_when_nodes_of_earlier_versions_are_gone() {
    with_client(async |server, other| {
        let config = Postgres::config(server.port());
        other.batch_execute(VERSION_3).await.unwrap();
        let old = "
            CREATE ROLE shop LOGIN;
            GRANT EXECUTE ON FUNCTION jobs_schedule, jobs_schedule_or_replace TO shop;";
        other.batch_execute(old).await.unwrap();
        other.batch_execute(LEASE_OF_VERSION_3).await.unwrap();
        Store::migrate(&config).await.unwrap();
        is_migrated(&other).await;
        let queue = connect::<Postgres>(server.port()).await;
        let job = |key: &str| NewJob::new(key, HOUR, "");
        let add = |job: NewJob| {
            let queue = queue.clone();
            tourbillon::spawn(async move { queue.schedule_job(job).await })
        };
        // Other jobs, of the same request, are taken, also those that version 3 knows.
        let added = [
            add(job("one")),
            add(job("unique").unique_for(HOUR)),
            add(job("mail").kind("mail")),
        ];
        let [one, refused, mail] = added;
        one.await.unwrap().unwrap();
        mail.await.unwrap().unwrap();
        let refused = refused.await.unwrap().unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        let replacing = job("one").unique_for(HOUR);
        let refused = queue.schedule_or_replace(replacing).await.unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        for name in ["jobs_schedule", "jobs_schedule_or_replace"] {
            let by_sql = format!("SET ROLE shop; SELECT {name}('sql', unique_for => '1 hour')");
            let error = other.batch_execute(&by_sql).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert!(error.message().contains("upgrade"), "{error}");
            other.batch_execute("RESET ROLE").await.unwrap();
        }
        // The earlier node ends. From then on, none gets a lease.
        other
            .batch_execute("DELETE FROM durable_nodes WHERE version < 4")
            .await
            .unwrap();
        let unique = job("unique").unique_for(HOUR);
        queue.schedule_job(unique).await.unwrap();
        for lease in [LEASE_OF_VERSION_2, LEASE_OF_VERSION_3] {
            let error = other.batch_execute(lease).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert!(error.message().contains("upgrade"), "{error}");
        }
        let by_sql = "SET ROLE shop; SELECT jobs_schedule('sql', unique_for => '1 hour')";
        other.batch_execute(by_sql).await.unwrap();
    });
}

#[test]
fn an_admission_waits_for_no_pause() {
    with_client(async |server, other| {
        other.batch_execute(VERSION_3).await.unwrap();
        let kinds = "UPDATE durable_version SET has_kinds = true";
        other.batch_execute(kinds).await.unwrap();
        other.batch_execute(LEASE_OF_VERSION_3).await.unwrap();
        Store::migrate(&Postgres::config(server.port()))
            .await
            .unwrap();
        let queue = connect::<Postgres>(server.port()).await;
        let lease = queue.store().register(HOUR).await.unwrap();
        for statement in [
            "DELETE FROM durable_nodes WHERE version < 4",
            "BEGIN; SELECT jobs_pause('mails')",
        ] {
            other.batch_execute(statement).await.unwrap();
        }
        // The leases would be locked while it waited.
        let admits = client(&server).await;
        let admitted = admits.batch_execute("SELECT durable_admit_kept()");
        let error = soon("for an admission", admitted).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE));
        // A client tries again until the pause is committed.
        let asks = queue.clone();
        let job = NewJob::new("unique", HOUR, "").unique_for(HOUR);
        let asked = tourbillon::spawn(async move { asks.schedule_job(job).await });
        assert!(queue.store().renew(lease.node, HOUR).await.unwrap());
        sleep(Duration::from_millis(200)).await;
        assert!(!asked.is_finished());
        other.batch_execute("COMMIT").await.unwrap();
        asked.await.unwrap().unwrap();
    });
}

#[test]
fn a_pause_waits_for_the_version_that_somebody_has_locked() {
    with_client(async |server, other| {
        drop(connect::<Postgres>(server.port()).await);
        for statement in [
            "UPDATE durable_version SET has_kinds = false",
            "BEGIN; SELECT FROM durable_version FOR UPDATE",
        ] {
            other.batch_execute(statement).await.unwrap();
        }
        // Nobody has told this store that kinds are admitted.
        let store = Store::connect(&Postgres::config(server.port())).await;
        let queue = Queue::new(store.unwrap());
        let asks = queue.clone();
        let paused = tourbillon::spawn(async move { asks.pause("mails").await });
        sleep(Duration::from_millis(500)).await;
        assert!(!paused.is_finished());
        other.batch_execute("COMMIT").await.unwrap();
        paused.await.unwrap().unwrap();
        assert_eq!(queue.paused().await.unwrap(), ["mails"]);
    });
}

#[test]
fn a_client_of_an_earlier_version_revives_no_kept_key() {
    with_client(async |server, other| {
        Store::migrate(&Postgres::config(server.port()))
            .await
            .unwrap();
        let queue = connect::<Postgres>(server.port()).await;
        let job = NewJob::new("job", Duration::ZERO, "once").unique_for(HOUR);
        queue.schedule_job(job).await.unwrap();
        let node = Node::builder(queue.clone()).start(|_| async { Ok(()) });
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
        // What `reschedule` of version 3 does.
        let revive = "UPDATE durable_jobs SET dead = false, at = 0 WHERE key = 'job'";
        let error = other.batch_execute(revive).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION));
    });
}
