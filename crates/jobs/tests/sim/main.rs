//! Nodes on simulated hosts, with a store on another one.

#![cfg(tourbillon_sim)]
#![allow(unsafe_code, reason = "a request crosses the network as a pointer")]

mod book;
mod remote;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_jobs::{Attempt, Backoff, Failure, Node, Queue};
use tourbillon_sim::{
    Network, Simulation, assert_always, assert_sometimes, crash, partition, pause, random, repair,
    restart,
};

use crate::{book::Book, remote::Remote};

const NODES: [&str; 3] = ["a", "b", "c"];
const JOBS: usize = 6;
const LEASE: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 30;

/// What the handlers of a job have done. Without locks, which a host that crashes would keep.
#[derive(Default)]
struct Seen {
    /// How many attempts began.
    begun: AtomicU64,
    /// How many handlers of it run, if no node crashes.
    running: AtomicU64,
    /// The highest token that a handler has shown to the resource.
    token: AtomicI64,
}

type All = Arc<[Seen; JOBS]>;

async fn a_while(most: Duration) {
    sleep(Duration::from_nanos(random() % most.as_nanos() as u64)).await;
}

/// Runs an attempt, which fails at times. `stays`: no node loses its lease.
async fn handle(all: All, stays: bool, attempt: Attempt) -> Result<(), Failure> {
    let seen = &all[usize::from(attempt.payload[0])];
    seen.begun.fetch_add(1, SeqCst);
    assert_always!(
        attempt.number <= ATTEMPTS,
        "it is attempt {}",
        attempt.number
    );
    let others = seen.running.fetch_add(1, SeqCst);
    a_while(Duration::from_millis(500)).await;
    let token = attempt.token.0;
    let highest = seen.token.fetch_max(token, SeqCst);
    assert_always!(token != highest, "two attempts have one token");
    if stays {
        assert_always!(others == 0 && token > highest, "two attempts run at once");
    } else {
        assert_sometimes!(token < highest, "a stale handler comes to the resource");
    }
    seen.running.fetch_sub(1, SeqCst);
    match random() % 4 {
        0 => Err(Failure::retry("a failure by chance")),
        1 => Err(Failure::snooze(Duration::from_millis(100))),
        _ => Ok(()),
    }
}

/// A store, and three nodes. `stays`: they lose no lease. Returns what the handlers have seen.
fn three_nodes(sim: &mut Simulation, stays: bool) -> All {
    let book = Arc::new(Mutex::new(Book::default()));
    let all: All = Arc::default();
    sim.host("db", move || remote::serve(book.clone()));
    for name in NODES {
        let all = all.clone();
        sim.host(name, move || {
            let all = all.clone();
            async move {
                let backoff = Backoff {
                    attempts: ATTEMPTS,
                    first: Duration::from_millis(100),
                    longest: Duration::from_secs(1),
                };
                let queue = Queue::new(Remote::connect().await);
                let _node = Node::builder(queue)
                    .lease(LEASE)
                    .backoff(backoff)
                    .start(move |attempt| handle(all.clone(), stays, attempt));
                std::future::pending::<()>().await;
            }
        });
    }
    all
}

/// Adds the jobs, and waits until all are done.
async fn add_and_wait(all: All) {
    let queue = Queue::new(Remote::connect().await);
    for number in 0..JOBS {
        // A client that asks again must find the job.
        let delay = Duration::from_secs(8) + Duration::from_nanos(random() % 4_000_000_000);
        let name = format!("job {number}");
        // A client that gets no answer asks again.
        while queue.schedule(&*name, delay, [number as u8]).await.is_err() {}
    }
    sleep(Duration::from_secs(8)).await;
    let live = || async {
        let counts = queue.count().await;
        counts.map_or(1, |counts| counts.live + counts.dead)
    };
    while live().await > 0 {
        sleep(Duration::from_millis(500)).await;
    }
    for seen in &*all {
        assert!(
            seen.begun.load(SeqCst) != 0,
            "a job is gone without an attempt"
        );
    }
}

#[tourbillon_sim::test(seeds = 20, seconds = 300)]
fn three_nodes_run_all_jobs(sim: &mut Simulation) {
    let all = three_nodes(sim, true);
    sim.limit(Duration::from_secs(600));
    sim.client("client", move || add_and_wait(all.clone()));
}

/// Nodes crash, lose their links and stand still for longer than their leases. A stale handler comes
/// to the resource in 2 to 4 of 60 seeds, so fewer seeds may have none.
#[tourbillon_sim::test(seeds = 60, seconds = 300)]
fn jobs_survive_what_happens_to_nodes(sim: &mut Simulation) {
    let mut network = Network::new();
    network.loss(0.01);
    sim.network(network);
    sim.clock_skew(Duration::from_secs(60)).clock_drift(500);
    sim.limit(Duration::from_secs(600));
    let all = three_nodes(sim, false);
    sim.client("client", move || add_and_wait(all.clone()));
    sim.client("operator", || async {
        sleep(Duration::from_secs(6)).await;
        for _ in 0..4 {
            a_while(2 * LEASE).await;
            let name = NODES[random() as usize % NODES.len()];
            match random() % 3 {
                0 => {
                    crash(name);
                    a_while(2 * LEASE).await;
                    restart(name);
                }
                1 => {
                    partition(name, "db");
                    a_while(2 * LEASE).await;
                    repair(name, "db");
                }
                _ => pause(name, Duration::from_nanos(random() % 4_000_000_000)),
            }
        }
    });
}
