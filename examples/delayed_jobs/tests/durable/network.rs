//! Nodes whose network drops all or is slow, and nodes whose clocks are wrong.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc::unbounded_channel};
use tourbillon::time::sleep;
use tourbillon_durable::{Failure, Node, Queue, Time, postgres::Postgres};

use crate::{
    kill::torture,
    postgres::{client, server::Server, skip, start},
    support::{live, node, run},
};

#[path = "../../src/bin/torture/faketime.rs"]
mod faketime;
#[path = "../../src/bin/torture/proxy.rs"]
mod proxy;

use self::proxy::Proxy;

const HOUR: Duration = Duration::from_secs(3600);
const LEASE: Duration = Duration::from_millis(500);

async fn connect(port: u16) -> Queue<Postgres> {
    Queue::new(Postgres::connect(&Server::config(port)).await.unwrap())
}

#[test]
fn a_node_that_is_cut_off_loses_its_jobs_to_another() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.port(), Duration::ZERO).unwrap();
    run(async {
        let far = connect(proxy.port()).await;
        let (alone, mut ran_alone) = node(&far, |node| node.lease(LEASE), |_| Ok(()));
        let near = connect(server.port()).await;
        near.schedule("job", 3 * LEASE, "").await.unwrap();
        while alone.stats().held == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        proxy.cut();
        let (other, mut ran) = node(&near, |node| node.lease(LEASE), |_| Ok(()));
        assert_eq!(ran.recv().await.unwrap().key, "job");
        // The node that holds the job no longer has not begun it.
        assert_eq!(alone.stats().begun, 0);
        proxy.heal();
        assert!(other.stop(HOUR).await);
        near.schedule("later", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran_alone.recv().await.unwrap().key, "later");
        live(&near, 0).await;
        assert!(alone.stats().leases > 1);
        assert!(alone.stop(HOUR).await);
    });
}

#[test]
fn an_end_whose_answer_is_lost_is_in_doubt() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.port(), Duration::ZERO).unwrap();
    run(async {
        let far = connect(proxy.port()).await;
        let (sender, mut ended) = unbounded_channel();
        let (began, mut begins) = unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let opened = gate.clone();
        let node = Node::builder(far)
            .on_end(move |end| {
                let _ = sender.send(end.accepted);
            })
            .start(move |_| {
                let _ = began.send(());
                let gate = opened.clone();
                async move {
                    gate.acquire().await.map_err(Failure::retry)?.forget();
                    Ok(())
                }
            });
        let near = connect(server.port()).await;
        // The first end takes more than one answer, as its statement is prepared.
        near.schedule("first", Duration::ZERO, "").await.unwrap();
        gate.add_permits(1);
        assert_eq!(ended.recv().await.unwrap(), Some(true));
        begins.recv().await.unwrap();
        near.schedule("job", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        proxy.drop_answers();
        gate.add_permits(1);
        // The store has taken the end, and the node has not heard of it.
        live(&near, 0).await;
        proxy.heal();
        assert_eq!(ended.recv().await.unwrap(), None);
        assert!(node.stop(HOUR).await);
    });
}

#[test]
fn a_slow_server_makes_nothing_early() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.port(), Duration::from_millis(60)).unwrap();
    run(async {
        let queue = connect(proxy.port()).await;
        let (node, mut ran) = node(
            &queue,
            |node| node.lease(Duration::from_secs(5)),
            // The server's clock is this machine's.
            |attempt| {
                assert!(Time::wall() >= attempt.at);
                Ok(())
            },
        );
        for number in 0..20 {
            let at = Duration::from_millis(100 * number);
            queue
                .schedule(format!("job-{number}"), at, "")
                .await
                .unwrap();
        }
        for _ in 0..20 {
            assert_eq!(ran.recv().await.unwrap().number, 1);
        }
        live(&queue, 0).await;
        assert!(node.stop(HOUR).await);
    });
}

#[test]
fn steps_of_the_servers_clock_make_nothing_early() {
    let Some(server) = start() else { return };
    run(async {
        let other = client(&server).await;
        let step = async |seconds: i64| {
            let now = format!(
                "CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
                 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                      + {seconds}::bigint * 1000000'"
            );
            other.batch_execute(&now).await.unwrap();
        };
        let queue = connect(server.port()).await;
        let (node, mut ran) = node(&queue, |node| node.lease(LEASE), |_| Ok(()));
        // The node goes by the time that it learned before this.
        step(-1).await;
        let at = Time::wall().after(LEASE);
        queue.schedule("job", at, "").await.unwrap();
        queue.schedule("in an hour", HOUR, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "job");
        // The server's clock is this machine's, less a second.
        assert!(Time::wall() >= at.after(Duration::from_secs(1)));
        step(3600).await;
        assert_eq!(ran.recv().await.unwrap().key, "in an hour");
        live(&queue, 0).await;
        assert!(node.stop(HOUR).await);
    });
}

/// Arguments of a short torture.
const SHORT: [&str; 7] = [
    "shared", "--jobs", "2000", "--within", "4s", "--lease", "800ms",
];

#[test]
fn partitions_lose_nothing() {
    if start().is_some() {
        torture(&[&SHORT[..], &["--kill", "2300ms", "--cut", "700ms"]].concat());
    }
}

#[test]
fn a_slow_store_loses_nothing() {
    if start().is_some() {
        torture(&[&SHORT[..], &["--kill", "1300ms", "--delay", "30ms"]].concat());
    }
}

#[test]
fn wrong_clocks_of_nodes_make_nothing_early() {
    if let Err(why) = faketime::find() {
        return skip(&why);
    }
    if start().is_some() {
        torture(&[&SHORT[..], &["--kill", "1s", "--skew", "5s"]].concat());
    }
}
