//! The store on PostgreSQL.

use std::time::Duration;

use tourbillon_durable::{
    Queue,
    postgres::Postgres,
    store::{Begin, Store},
};

use crate::{
    cases,
    kill::torture,
    support::{live, node, run},
};

#[path = "../../src/bin/torture/server.rs"]
pub mod server;

use self::server::Server;

const HOUR: Duration = Duration::from_secs(3600);

/// Starts a server, or returns `None` if the test is to be skipped.
pub fn start() -> Option<Server> {
    match Server::start() {
        Ok(server) => Some(server),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Says why a test is skipped. Fails if it has to run.
#[track_caller]
pub fn skip(why: &str) {
    let required = std::env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some_and(|v| v == "1");
    assert!(!required, "{why}");
    eprintln!("skipped: {why}");
}

#[test]
fn it_does_what_each_store_does() {
    let Some(server) = start() else { return };
    run(async {
        cases::all(Queue::new(
            Postgres::connect(&Server::config(server.port()))
                .await
                .unwrap(),
        ))
        .await
    });
}

#[test]
fn a_lease_that_runs_out_gives_the_jobs_to_others() {
    let Some(server) = start() else { return };
    run(async {
        let queue = Queue::new(
            Postgres::connect(&Server::config(server.port()))
                .await
                .unwrap(),
        );
        let store = queue.store();
        // A node that falls silent after it has begun a job.
        let lease = Duration::from_millis(500);
        let silent = store.register(lease).await.unwrap().node;
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let held = store.hold(silent, HOUR, 10).await.unwrap();
        let old = held[0].token;
        assert_eq!(
            store.begin(vec![("job".into(), old)]).await.unwrap(),
            [Begin::Yes(1)]
        );
        let (node, mut ran) = node(&queue, |node| node.lease(lease), |_| Ok(()));
        let attempt = ran.recv().await.unwrap();
        assert!(attempt.token > old);
        assert_eq!(attempt.number, 2);
        assert!(!store.renew(silent, lease).await.unwrap());
        assert!(store.hold(silent, HOUR, 10).await.unwrap().is_empty());
        live(&queue, 0).await;
        assert!(node.stop(HOUR).await);
    });
}

#[test]
fn a_server_that_restarts_loses_nothing() {
    let Some(mut server) = start() else { return };
    run(async {
        let queue = Queue::new(
            Postgres::connect(&Server::config(server.port()))
                .await
                .unwrap(),
        );
        let (node, mut ran) = node(
            &queue,
            |node| node.lease(Duration::from_secs(1)),
            |_| Ok(()),
        );
        queue
            .schedule("before", Duration::from_secs(2), "")
            .await
            .unwrap();
        while node.stats().held == 0 {
            tourbillon::time::sleep(Duration::from_millis(5)).await;
        }
        tourbillon::task::block_in_place(|| server.crash().unwrap());
        assert_eq!(ran.recv().await.unwrap().key, "before");
        while queue.schedule("after", Duration::ZERO, "").await.is_err() {}
        while ran.recv().await.unwrap().key != "after" {}
        live(&queue, 0).await;
        assert!(node.stop(HOUR).await);
    });
}

#[test]
fn killed_nodes_lose_nothing() {
    if start().is_some() {
        torture(&[
            "shared",
            "--jobs",
            "3000",
            "--within",
            "5s",
            "--kill",
            "1s",
            "--lease",
            "800ms",
            "--crashes",
            "1",
        ]);
    }
}
