//! The store on PostgreSQL.

use std::{error::Error, future::poll_fn, time::Duration};

use tokio_postgres::Client;
use tourbillon_jobs::{
    Failure, Queue, QueueError, Time, postgres::Postgres as Store, store::StoreError,
};

use crate::{
    server::{Postgres, Server},
    shared::{LEASE, connect, tests, with_server},
    support::{HOUR, PATIENCE, live, node, waiting},
};

tests!(Postgres);

/// Connects without the store.
pub async fn client(server: &Postgres) -> Client {
    let port = server.port();
    client_of(&Postgres::config(port), port).await.unwrap()
}

/// Connects to a port, with a configuration.
pub async fn client_of(config: &str, port: u16) -> Result<Client, Box<dyn Error + Send + Sync>> {
    let stream = tourbillon::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let config: tokio_postgres::Config = config.parse()?;
    let (client, mut connection) = config.connect_raw(stream, tokio_postgres::NoTls).await?;
    tourbillon::spawn(async move {
        while let Some(Ok(_)) = poll_fn(|cx| connection.poll_message(cx)).await {}
    });
    Ok(client)
}

/// Runs a test on a server, with a client of it, or skips the test.
pub fn with_client(test: impl AsyncFnOnce(Postgres, Client)) {
    with_server(async |server: Postgres| {
        let other = client(&server).await;
        test(server, other).await;
    });
}

#[test]
fn an_end_that_the_store_has_not_taken_keeps_no_other_job_waiting() {
    with_client(async |server, other| {
        let queue = connect::<Postgres>(server.port()).await;
        let (node, gate, mut begins, _) = waiting(&queue, |node| node.concurrency(1), |_| Ok(()));
        queue.schedule("one", Duration::ZERO, "").await.unwrap();
        assert_eq!(begins.recv().await.unwrap().key, "one");
        // The node cannot remove this job until the end of this transaction.
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'one' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        queue.schedule("two", Duration::ZERO, "").await.unwrap();
        gate.add_permits(2);
        assert_eq!(begins.recv().await.unwrap().key, "two");
        assert!(queue.get("one").await.unwrap().is_some());
        other.batch_execute("COMMIT").await.unwrap();
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn steps_of_the_servers_clock_make_nothing_early() {
    with_client(async |server, other| {
        let step = async |seconds: i64| {
            let now = format!(
                "CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
                 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                      + {seconds}::bigint * 1000000'"
            );
            other.batch_execute(&now).await.unwrap();
        };
        let queue = connect::<Postgres>(server.port()).await;
        let (node, mut ran) = node(&queue, |node| node.lease(LEASE), |_| Ok(()));
        // The node goes by the time that it learned before this.
        step(-1).await;
        let at = Time::wall().after(LEASE);
        queue.schedule("job", at, "").await.unwrap();
        queue.schedule("in an hour", HOUR, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "job");
        // The server's clock is this machine's, less a second.
        let (now, least) = (Time::wall(), at.after(Duration::from_secs(1)));
        assert!(now >= least, "begun at {now:?}, before {least:?}");
        // The next step ends the node's lease, and a job whose end is not stored runs again.
        live(&queue, 1).await;
        step(3600).await;
        assert_eq!(ran.recv().await.unwrap().key, "in an hour");
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Connects to a database whose encoding is LATIN1.
pub async fn latin(server: &Postgres) -> Queue<Store> {
    let make = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    client(server).await.batch_execute(make).await.unwrap();
    let config = Postgres::config(server.port()).replace("dbname=postgres", "dbname=latin");
    Store::migrate(&config).await.unwrap();
    Queue::new(Store::connect(&config).await.unwrap())
}

#[test]
fn an_error_that_the_database_cannot_store_keeps_no_job_running() {
    with_server(async |server: Postgres| {
        let queue = latin(&server).await;
        let (node, _ran) = node(
            &queue,
            |node| node,
            |_| Err(Failure::give_up("f\u{fc}r 5 \u{20ac}")),
        );
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        live(&queue, 0).await;
        let job = queue.get("job").await.unwrap().unwrap();
        assert_eq!(job.error.as_deref(), Some("f\\u{fc}r 5 \\u{20ac}"));
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_request_that_the_database_refuses_refuses_no_other_one() {
    with_server(async |server: Postgres| {
        let queue = latin(&server).await;
        let key = |number| match number {
            20 => "5 \u{20ac}".to_owned(),
            _ => format!("job-{number}"),
        };
        let is_refused = |error: &QueueError| {
            let text = error.to_string();
            matches!(error, QueueError::Store(StoreError::Refused(_))) && text.contains("LATIN1")
        };
        macro_rules! ask_for_all {
            ($queue:ident, $key:ident: $ask:expr) => {
                let asked: Vec<_> = (0..40)
                    .map(|number| {
                        let ($queue, $key) = (queue.clone(), key(number));
                        tourbillon::spawn(async move { $ask.map(drop) })
                    })
                    .collect();
                for (number, asked) in asked.into_iter().enumerate() {
                    let answer = asked.await.unwrap();
                    let refused = answer.as_ref().is_err_and(is_refused);
                    assert_eq!(refused, number == 20, "{answer:?}");
                    assert_eq!(answer.is_ok(), number != 20);
                }
            };
        }
        ask_for_all!(queue, key: queue.schedule(key, HOUR, "").await);
        ask_for_all!(queue, key: queue.reschedule(key, 2 * HOUR).await);
        ask_for_all!(queue, key: queue.cancel(key).await);
        assert_eq!(queue.count().await.unwrap().live, 0);
    });
}
