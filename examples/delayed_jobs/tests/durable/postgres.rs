//! The store on PostgreSQL.

use std::{future::poll_fn, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc::unbounded_channel};
use tourbillon_durable::{
    Failure, Node, Queue,
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

/// Connects without the store.
pub async fn client(server: &Server) -> tokio_postgres::Client {
    let stream = tourbillon::net::TcpStream::connect(("127.0.0.1", server.port()));
    let config: tokio_postgres::Config = Server::config(server.port()).parse().unwrap();
    let made = config.connect_raw(stream.await.unwrap(), tokio_postgres::NoTls);
    let (client, mut connection) = made.await.unwrap();
    tourbillon::spawn(async move {
        while let Some(Ok(_)) = poll_fn(|cx| connection.poll_message(cx)).await {}
    });
    client
}

#[test]
fn an_end_that_the_store_has_not_taken_keeps_no_other_job_waiting() {
    let Some(server) = start() else { return };
    run(async {
        let other = client(&server).await;
        let queue = Queue::new(
            Postgres::connect(&Server::config(server.port()))
                .await
                .unwrap(),
        );
        let (began, mut begins) = unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let opened = gate.clone();
        let node = Node::builder(queue.clone())
            .concurrency(1)
            .start(move |attempt| {
                let _ = began.send(attempt.key);
                let gate = opened.clone();
                async move {
                    gate.acquire().await.map_err(Failure::retry)?.forget();
                    Ok(())
                }
            });
        queue.schedule("one", Duration::ZERO, "").await.unwrap();
        assert_eq!(begins.recv().await.unwrap(), "one");
        // The node cannot remove this job until the end of this transaction.
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'one' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        queue.schedule("two", Duration::ZERO, "").await.unwrap();
        gate.add_permits(2);
        assert_eq!(begins.recv().await.unwrap(), "two");
        assert!(queue.get("one").await.unwrap().is_some());
        other.batch_execute("COMMIT").await.unwrap();
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
