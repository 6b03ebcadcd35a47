//! Handlers that block their threads.

use std::{future::pending, hint::black_box, sync::mpsc::channel, thread, time::Duration};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tourbillon::{
    runtime::Builder,
    time::{advance, sleep},
};
use tourbillon_jobs::{
    Attempt, Backoff, Node, Queue,
    job::State,
    sqlite::Sqlite,
    store::{End, Store},
};

use tourbillon_support::Gate;

use crate::support::{self, Dir, HOUR, PATIENCE, holds, live, on_file, run};
#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::{server::Server, shared};

/// No node loses it, also if its thread has no turn for some seconds.
const LEASE: Duration = Duration::from_secs(30);
/// All handlers begin within it.
const LIMIT: Duration = Duration::from_secs(10);

/// What a test asks a server for.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub trait Leases: Server {
    /// Returns all leases with their ends, as text.
    fn leases(&self) -> impl Future<Output = String>;
}

#[cfg(feature = "postgres")]
impl Leases for crate::server::Postgres {
    async fn leases(&self) -> String {
        let client = crate::postgres::client(self).await;
        let ask = "SELECT coalesce(string_agg(node || ' ' || until, ','), '') FROM durable_nodes";
        client.query_one(ask, &[]).await.unwrap().get(0)
    }
}

#[cfg(feature = "redis")]
impl Leases for crate::server::Redis {
    async fn leases(&self) -> String {
        self.command("ZRANGE {durable}:nodes 0 -1 WITHSCORES")
            .unwrap()
    }
}

/// Waits until a lease is renewed.
#[cfg(any(feature = "postgres", feature = "redis"))]
async fn renewal<S: Leases>(server: &S) {
    let before = server.leases().await;
    while server.leases().await == before {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Opens a gate in the end, so that a test which fails does not hang.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Tells the test of its end.
struct Tells(UnboundedSender<String>, String);

impl Drop for Tells {
    fn drop(&mut self) {
        let _ = self.0.send(format!("{} was dropped", self.1));
    }
}

#[test]
fn handlers_that_block_all_threads_stop_nothing_else() {
    // There is no lease to be renewed.
    on_file(async |queue| all_threads_are_blocked(&queue, async {}).await);
}

/// The test of this name for the stores on servers.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub fn handlers_that_block_their_threads_stop_nothing_else<S: Leases>() {
    shared::on_server(async |server: S, queue| {
        all_threads_are_blocked(&queue, renewal(&server)).await;
    });
}

async fn all_threads_are_blocked<S: Store>(queue: &Queue<S>, renewal: impl Future<Output = ()>) {
    let handlers = Builder::new().worker_threads(2).build().unwrap();
    let gate = Gate::default();
    let _opens = Opens(gate.clone());
    let (sender, mut said) = unbounded_channel();
    let (reports, mut blocked) = unbounded_channel();
    let (ended, mut ends) = unbounded_channel();
    let shut = gate.clone();
    let entered = handlers.enter();
    let node = Node::builder(queue.clone())
        .lease(LEASE)
        .attempt_timeout(LIMIT)
        .backoff(Backoff {
            attempts: 1,
            ..Backoff::default()
        })
        .on_blocked(move |blocked| {
            let _ = reports.send((blocked.key.clone(), blocked.number));
        })
        .on_end(move |end| {
            let _ = ended.send((end.key.clone(), end.end == End::Done, end.accepted));
        })
        .start(move |attempt: Attempt| {
            let (gate, sender) = (shut.clone(), sender.clone());
            async move {
                let key = attempt.key;
                let _ = sender.send(key.clone());
                if key != "waits" {
                    gate.wait();
                }
                if key != "blocks and returns" {
                    let _tells = Tells(sender, key);
                    sleep(HOUR).await;
                }
                Ok(())
            }
        });
    drop(entered);
    queue
        .schedule("later", Duration::from_secs(100), "")
        .await
        .unwrap();
    for key in ["waits", "blocks and returns", "blocks and waits"] {
        queue.schedule(key, Duration::ZERO, "").await.unwrap();
        assert_eq!(said.recv().await.unwrap(), key);
    }
    holds(&node).await;
    // The node renews its lease although all threads are blocked. No other node has one yet.
    renewal.await;
    let (other, mut others) = support::node(queue, |node| node.lease(LEASE), |_| Ok(()));
    // The limits of time are reported.
    let mut reports = [blocked.recv().await.unwrap(), blocked.recv().await.unwrap()];
    reports.sort();
    let report = |key: &str| (key.to_owned(), 1);
    let keys = ["blocks and returns", "blocks and waits"];
    assert_eq!(reports, keys.map(report));
    assert_eq!(node.stats().blocked, 2);
    // An attempt that does not block ends, although no thread is free to drop its future.
    let job = async |key: &str| queue.get(key).await.unwrap().unwrap();
    while job("waits").await.state != State::Dead {
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(
        job("waits").await.error.as_deref(),
        Some("it took longer than 10s")
    );
    assert!(said.is_empty());
    // Another node runs what this one cannot begin.
    queue.schedule("new", Duration::ZERO, "").await.unwrap();
    assert_eq!(others.recv().await.unwrap().key, "new");
    live(queue, 3).await;
    // The other node takes nothing else.
    sleep(Duration::from_millis(500)).await;
    assert_eq!((node.stats().leases, node.stats().held), (1, 1));
    assert!(others.is_empty() && other.stats().held == 0);
    for key in keys {
        assert_eq!(job(key).await.state, State::Running);
    }
    let ended = |key: &str, is_done| (key.to_owned(), is_done, Some(true));
    assert!(ends.is_empty());
    gate.open();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(ends.recv().await.unwrap());
    }
    all.sort();
    assert_eq!(
        all,
        [
            ended("blocks and returns", true),
            ended("blocks and waits", false),
            ended("waits", false)
        ]
    );
    let mut dropped = [said.recv().await.unwrap(), said.recv().await.unwrap()];
    dropped.sort();
    assert_eq!(
        dropped,
        ["blocks and waits was dropped", "waits was dropped"]
    );
    live(queue, 1).await;
    assert_eq!(job("blocks and waits").await.state, State::Dead);
    assert_eq!((node.stats().blocked, node.stats().leases), (0, 1));
    // The runtime works on.
    queue
        .schedule("blocks and returns", Duration::ZERO, "")
        .await
        .unwrap();
    live(queue, 1).await;
    assert!(other.stop(PATIENCE).await && node.stop(PATIENCE).await);
}

#[test]
fn a_shutdown_takes_jobs_from_a_handler_that_it_leaves_behind() {
    on_file(async |queue| a_handler_is_left_behind(&queue).await);
}

/// The test of this name for the stores on servers.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub fn a_shutdown_takes_jobs_from_a_handler<S: Server>() {
    shared::on_server(async |_server: S, queue| a_handler_is_left_behind(&queue).await);
}

async fn a_handler_is_left_behind<S: Store>(queue: &Queue<S>) {
    let handlers = Builder::new().worker_threads(1).build().unwrap();
    let gate = Gate::default();
    let _opens = Opens(gate.clone());
    let shut = gate.clone();
    let (sender, mut began) = unbounded_channel();
    let entered = handlers.enter();
    let node = Node::builder(queue.clone())
        .lease(Duration::from_secs(2))
        .start(move |attempt: Attempt| {
            let _ = sender.send(attempt.key);
            shut.wait();
            async { Ok(()) }
        });
    drop(entered);
    let later = Duration::from_secs(100);
    queue.schedule("later", later, "").await.unwrap();
    queue.schedule("blocks", Duration::ZERO, "").await.unwrap();
    assert_eq!(began.recv().await.unwrap(), "blocks");
    holds(&node).await;
    let shuts = thread::spawn(move || handlers.shutdown_timeout(Duration::from_millis(10)));
    assert!(!shuts.join().unwrap());
    // Another node gets both jobs, while the handler blocks.
    let (other, mut others) = support::node(queue, |node| node.lease(LEASE), |_| Ok(()));
    let attempt = others.recv().await.unwrap();
    // On a slow machine the lease may have been lost before.
    assert!(
        attempt.key == "blocks" && attempt.number >= 2,
        "{attempt:?}"
    );
    holds(&other).await;
    live(queue, 1).await;
    gate.open();
    assert!(other.stop(PATIENCE).await);
}

#[test]
fn a_paused_clock_changes_no_time_limit() {
    let dir = Dir::new();
    let (ended, ends) = channel();
    let runtime = Builder::new().start_paused(true).build().unwrap();
    let scheduled = runtime.block_on(async {
        // The clocks of handlers and of the library differ.
        advance(HOUR).await;
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        drop(
            Node::builder(queue.clone())
                .attempt_timeout(Duration::from_millis(100))
                .on_end(move |end| ended.send(end.end.clone()).unwrap())
                .start(|_| pending()),
        );
        queue.schedule("job", Duration::ZERO, "").await
    });
    scheduled.unwrap();
    let end = ends.recv_timeout(PATIENCE).unwrap();
    let is_late = matches!(&end, End::Retry { error, .. } if error == "it took longer than 100ms");
    assert!(is_late, "{end:?}");
}

/// Waits at a gate when it is dropped.
struct Waits(Gate);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.wait();
    }
}

#[test]
fn the_destructor_of_a_handler_blocks_no_other_node() {
    let (dir, others) = (Dir::new(), Dir::new());
    run(async {
        let handlers = Builder::new().worker_threads(1).build().unwrap();
        let gate = Gate::default();
        let _opens = Opens(gate.clone());
        // The queue has tasks of its own on this runtime, too.
        let entered = handlers.enter();
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let waits = Waits(gate.clone());
        let reads = queue.clone();
        let (sender, mut began) = unbounded_channel();
        drop(Node::builder(queue.clone()).start(move |attempt| {
            black_box((&waits, &reads));
            let _ = sender.send(attempt.key);
            async { Ok(()) }
        }));
        drop(entered);
        let runs = handlers.spawn(async move {
            queue.schedule("one", Duration::ZERO, "").await.unwrap();
            live(&queue, 0).await;
        });
        runs.await.unwrap();
        assert_eq!(began.recv().await.unwrap(), "one");
        let ends = thread::spawn(move || drop(handlers));
        let other = Queue::new(Sqlite::open(others.store()).unwrap());
        let (node, mut ran) = support::node(&other, |node| node, |_| Ok(()));
        // Two, as the first may begin before the destructor.
        for key in ["two", "three"] {
            let wait = Duration::from_millis(100);
            other.schedule(key, wait, "").await.unwrap();
            assert_eq!(ran.recv().await.unwrap().key, key);
        }
        assert!(node.stop(PATIENCE).await);
        gate.open();
        ends.join().unwrap();
        // The end of the runtime has waited for the end of the store.
        drop(Sqlite::open(dir.store()).unwrap());
    });
}
