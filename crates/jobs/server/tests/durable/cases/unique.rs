//! Keys that jobs keep after they are done.

use std::time::Duration;

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Failure, NewJob, Queue, Time,
    store::{Cancelled, Counts, Listing, Moved, Replaced, Scheduled, Store},
};

use super::quick;
use crate::support::{HOUR, PATIENCE, live, new, node, soon, waiting};

/// Returns a job that is due at once, and keeps its key.
fn job(time: Duration) -> NewJob {
    new("unique", Duration::ZERO).unique_for(time)
}

/// Schedules a job whose key is taken. Returns the time of the answer.
#[track_caller]
fn exists(made: Scheduled) -> Time {
    match made {
        Scheduled::Exists { at } => at,
        other => panic!("{other:?}"),
    }
}

/// Runs a job that keeps its key for this time.
async fn is_done<S: Store>(queue: &Queue<S>, time: Duration) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    let made = queue.schedule_job(job(time)).await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_job_that_is_done_keeps_its_key<S: Store>(queue: &Queue<S>) {
    let before = queue.store().now();
    is_done(queue, HOUR).await;
    // A job that keeps no key may ask for it, too.
    for again in [job(HOUR), new("unique", HOUR), job(Duration::from_secs(1))] {
        let free = exists(queue.schedule_job(again).await.unwrap());
        assert!(free >= before.after(HOUR), "{free:?}");
        assert!(free <= queue.store().now().after(2 * HOUR), "{free:?}");
    }
    // Several jobs of one call, of which one has another key.
    let jobs = ["unique", "other", "unique"].map(|key| new(key, HOUR));
    let made = queue.store().schedule(jobs.into()).await.unwrap();
    let are_made: Vec<_> = made
        .iter()
        .map(|made| matches!(made, Scheduled::Created { .. }))
        .collect();
    assert_eq!(are_made, [false, true, false]);
    assert_eq!(queue.cancel("other").await.unwrap(), Cancelled::Cancelled);
    // The job is gone nevertheless.
    assert_eq!(queue.get("unique").await.unwrap(), None);
    assert_eq!(queue.count().await.unwrap(), Counts::default());
    for dead in [None, Some(true), Some(false)] {
        let listing = Listing {
            dead,
            limit: 10,
            ..Listing::default()
        };
        assert_eq!(queue.list(listing).await.unwrap(), []);
    }
    let moved = queue.reschedule("unique", HOUR).await.unwrap();
    assert_eq!(moved, Moved::NotFound);
    assert_eq!(queue.count().await.unwrap(), Counts::default());
    // A cancel frees the key.
    assert_eq!(queue.cancel("unique").await.unwrap(), Cancelled::NotFound);
    let made = queue.schedule("unique", HOUR, "").await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    assert_eq!(queue.cancel("unique").await.unwrap(), Cancelled::Cancelled);
}

pub async fn a_key_is_free_after_its_time<S: Store>(queue: &Queue<S>) {
    let time = Duration::from_millis(200);
    let before = queue.store().now();
    is_done(queue, time).await;
    let free = async {
        loop {
            // The new job keeps its key, too.
            match queue.schedule_job(job(HOUR)).await.unwrap() {
                Scheduled::Created { at } => break at,
                Scheduled::Exists { .. } => sleep(Duration::from_millis(5)).await,
                made => panic!("{made:?}"),
            }
        }
    };
    let at = soon("for a key to be free", free).await;
    assert!(at >= before.after(time), "{at:?}");
    assert_eq!(queue.count().await.unwrap().live, 1);
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    ran.recv().await.unwrap();
    live(queue, 0).await;
    exists(queue.schedule("unique", HOUR, "").await.unwrap());
    assert!(node.stop(PATIENCE).await);
    queue.cancel("unique").await.unwrap();
}

pub async fn a_replacement_does_not_wait_for_a_key<S: Store>(queue: &Queue<S>) {
    is_done(queue, HOUR).await;
    let made = queue.schedule_or_replace(new("unique", HOUR)).await;
    assert!(matches!(made, Ok(Replaced::Created { .. })), "{made:?}");
    // Nothing of the other job stays: the new one keeps no key.
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    queue.reschedule("unique", Duration::ZERO).await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    let made = queue.schedule("unique", HOUR, "").await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    // A job that takes the place of another one may keep its key.
    let made = queue.schedule_or_replace(job(HOUR)).await;
    assert!(matches!(made, Ok(Replaced::Replaced { .. })), "{made:?}");
    ran.recv().await.unwrap();
    live(queue, 0).await;
    exists(queue.schedule("unique", HOUR, "").await.unwrap());
    assert!(node.stop(PATIENCE).await);
    queue.cancel("unique").await.unwrap();
}

pub async fn only_a_job_that_is_done_keeps_its_key<S: Store>(queue: &Queue<S>) {
    // One that is cancelled does not, whether it runs or not.
    queue.schedule_job(job(HOUR)).await.unwrap();
    assert_eq!(queue.cancel("unique").await.unwrap(), Cancelled::Cancelled);
    let (running, gate, mut ran, mut ends) = waiting(queue, |node| node, |_| Ok(()));
    queue.schedule_job(job(HOUR)).await.unwrap();
    ran.recv().await.unwrap();
    let cancelled = queue.cancel("unique").await.unwrap();
    assert_eq!(cancelled, Cancelled::WhileRunning);
    gate.add_permits(1);
    assert_eq!(ends.recv().await.unwrap().1, Some(false));
    // It is not due: the node that still runs would begin it, and its handler wait at the gate.
    let later = new("unique", HOUR).unique_for(HOUR);
    let made = queue.schedule_job(later).await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    assert_eq!(queue.cancel("unique").await.unwrap(), Cancelled::Cancelled);
    assert!(running.stop(PATIENCE).await);
    // One that is dead has its key until it is cancelled, and keeps it if it is done then.
    let fails = |attempt: &tourbillon_jobs::Attempt| match attempt.number {
        1 if attempt.payload == b"" => Err(Failure::retry("bad")),
        _ => Ok(()),
    };
    let (mortal, mut ran) = node(queue, |node| node.backoff(quick(1)), fails);
    queue.schedule_job(job(HOUR)).await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert_eq!(queue.count().await.unwrap().dead, 1);
    exists(queue.schedule("unique", HOUR, "").await.unwrap());
    assert_eq!(queue.cancel("unique").await.unwrap(), Cancelled::Cancelled);
    let made = queue.schedule_job(job(HOUR)).await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert!(mortal.stop(PATIENCE).await);
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    queue.reschedule("unique", Duration::ZERO).await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    let is_revived = async {
        while queue.count().await.unwrap().dead > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon("for no dead job", is_revived).await;
    exists(queue.schedule("unique", HOUR, "").await.unwrap());
    queue.cancel("unique").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}
