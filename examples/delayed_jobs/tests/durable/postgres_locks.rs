//! Rows and tables that other sessions of PostgreSQL have locked.

use std::time::Duration;

use futures_lite::future::zip;
use tourbillon::time::sleep;
use tourbillon_durable::{
    QueueError,
    store::{Cancelled, Listing, Moved, Scheduled, Store, StoreError},
};

use crate::{
    postgres::client,
    server::{Postgres, Server},
    shared::{LEASE, connect, start},
    support::{self, HOUR, live, node, run},
};

#[test]
fn a_job_that_was_locked_when_the_node_looked_is_not_forgotten() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    run(async {
        let queue = connect::<Postgres>(server.port()).await;
        let other = client(&server).await;
        for key in ["locked", "free"] {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'locked' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        // By itself, the node looks again after five minutes.
        let (node, mut ran) = node(&queue, |node| node.window(HOUR), |_| Ok(()));
        assert_eq!(ran.recv().await.unwrap().key, "free");
        live(&queue, 1).await;
        // Let it look at what it is told of as it starts.
        sleep(2 * LEASE).await;
        // Nobody tells of a rollback.
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "locked");
        live(&queue, 0).await;
        assert!(node.stop(HOUR).await);
    });
}

#[test]
fn a_locked_job_keeps_no_other_request_waiting() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    run(async {
        let queue = connect::<Postgres>(server.port()).await;
        let other = client(&server).await;
        for number in 0..20 {
            let key = format!("job-{number}");
            queue.schedule(key, HOUR, "").await.unwrap();
        }
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key IN ('job-7', 'job-11') FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        let ask = |number: usize| {
            let (cancels, moves) = (queue.clone(), queue.clone());
            let key = format!("job-{number}");
            tourbillon::spawn(async move {
                match number % 2 {
                    0 => moves.reschedule(key, 2 * HOUR).await.map(|moved| {
                        assert!(matches!(moved, Moved::Moved { .. }), "{moved:?}");
                    }),
                    _ => cancels.cancel(key).await.map(|cancelled| {
                        assert_eq!(cancelled, Cancelled::Cancelled);
                    }),
                }
            })
        };
        let mut asked: Vec<_> = (0..20).map(|number| Some(ask(number))).collect();
        let locked = asked[7].take().unwrap();
        let refused = asked[11].take().unwrap();
        // Meanwhile all others are answered, in the same call and later.
        for request in asked.into_iter().flatten() {
            request.await.unwrap().unwrap();
        }
        let made = queue.schedule("another", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Created { .. }));
        assert_eq!(queue.cancel("another").await.unwrap(), Cancelled::Cancelled);
        assert_eq!(
            queue
                .list(Listing {
                    limit: 20,
                    ..Listing::default()
                })
                .await
                .unwrap()
                .len(),
            12
        );
        // A caller that is gone needs nothing more.
        refused.abort();
        assert!(!locked.is_finished());
        other.batch_execute("ROLLBACK").await.unwrap();
        locked.await.unwrap().unwrap();
        assert!(queue.get("job-7").await.unwrap().is_none());
    });
}

#[test]
fn a_list_that_waits_keeps_no_client_waiting_and_no_lease() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    run(async {
        let queue = connect::<Postgres>(server.port()).await;
        let other = client(&server).await;
        let lease = queue.store().register(HOUR).await.unwrap();
        // Only reads of this table wait for this lock, and so does what changes it.
        let lock = "BEGIN; LOCK TABLE durable_jobs IN ACCESS EXCLUSIVE MODE";
        other.batch_execute(lock).await.unwrap();
        let lists = queue.clone();
        let list = tourbillon::spawn(async move { lists.list(Listing::default()).await });
        let refused = queue.schedule("job", HOUR, "");
        let renewed = queue.store().renew(lease.node, HOUR);
        let (refused, renewed) = zip(refused, renewed).await;
        assert!(renewed.unwrap());
        // The client gave up after its own limit, not with the list.
        let is_locked = matches!(refused, Err(QueueError::Store(StoreError::Locked)));
        assert!(is_locked, "{refused:?}");
        // The statement of the list ended, and its connection did not.
        let error = list.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("statement timeout"), "{error}");
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(queue.count().await.unwrap().live, 0);
    });
}

#[test]
fn a_locked_job_of_a_lease_that_is_over_keeps_no_other_one_from_the_nodes() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    run(async {
        let queue = connect::<Postgres>(server.port()).await;
        let (store, other) = (queue.store(), client(&server).await);
        for key in ["free", "locked"] {
            queue.schedule(key, HOUR, "").await.unwrap();
        }
        let hold = async || {
            let node = store.register(HOUR).await.unwrap().node;
            let held = support::hold(&**store, node, 2 * HOUR, 10).await;
            let keys = held.into_iter().map(|held| held.key);
            (node, keys.collect::<Vec<_>>())
        };
        let (node, held) = hold().await;
        assert_eq!(held.len(), 2);
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'locked' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        store.release(node).await.unwrap();
        store.free_others().await.unwrap();
        assert_eq!(hold().await.1, ["free"]);
        other.batch_execute("ROLLBACK").await.unwrap();
        store.free_others().await.unwrap();
        assert_eq!(hold().await.1, ["locked"]);
    });
}
