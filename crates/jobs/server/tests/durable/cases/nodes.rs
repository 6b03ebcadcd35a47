//! Nodes that hold jobs, share them and give them back.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tourbillon::time::{sleep, timeout};
use tourbillon_jobs::{
    Failure, Node, Queue,
    job::Token,
    store::{Begin, Kinds, Span, Store},
};

use super::SOON;
use crate::support::{self, HOUR, PATIENCE, begun, holds, live, node, start, waiting};

pub async fn options_without_bounds_are_bounded<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(
        queue,
        |node| {
            node.window(Duration::MAX)
                .lease(Duration::MAX)
                .most_held(usize::MAX)
                .concurrency(usize::MAX)
                .attempt_timeout(Duration::MAX)
        },
        |_| Ok(()),
    );
    queue.schedule("bounded", SOON, "").await.unwrap();
    assert_eq!(ran.recv().await.unwrap().key, "bounded");
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_full_node_takes_earlier_jobs_first<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node.most_held(8), |_| Ok(()));
    for number in 0..20 {
        queue
            .schedule(format!("far-{number}"), Duration::from_secs(60), "")
            .await
            .unwrap();
    }
    while node.stats().held < 8 {
        sleep(Duration::from_millis(2)).await;
    }
    queue.schedule("near", SOON, "").await.unwrap();
    assert_eq!(ran.recv().await.unwrap().key, "near");
    // The node does not take this one at once.
    let near = Duration::from_millis(1500);
    queue.schedule("less near", near, "").await.unwrap();
    let attempt = timeout(10 * near, ran.recv()).await.unwrap().unwrap();
    assert_eq!(attempt.key, "less near");
    assert!(node.stats().held <= 10);
    for number in 0..20 {
        queue
            .reschedule(format!("far-{number}"), Duration::ZERO)
            .await
            .unwrap();
    }
    let mut keys = HashSet::new();
    while keys.len() < 20 {
        assert!(keys.insert(ran.recv().await.unwrap().key));
    }
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

pub async fn two_nodes_share_the_jobs<S: Store>(queue: &Queue<S>) {
    let (one, mut first) = node(queue, |node| node, |_| Ok(()));
    let (two, mut second) = node(queue, |node| node, |_| Ok(()));
    for number in 0..200 {
        let delay = Duration::from_millis(number % 20);
        queue
            .schedule(format!("shared-{number}"), delay, "")
            .await
            .unwrap();
    }
    live(queue, 0).await;
    let mut keys = HashSet::new();
    for ran in [&mut first, &mut second] {
        while let Ok(attempt) = ran.try_recv() {
            assert!(keys.insert(attempt.key));
        }
    }
    assert_eq!(keys.len(), 200);
    assert_eq!(one.stats().done + two.stats().done, 200);
    assert!(one.stop(PATIENCE).await && two.stop(PATIENCE).await);
}

pub async fn a_busy_node_leaves_due_jobs_to_others<S: Store>(queue: &Queue<S>) {
    let (busy, gate, mut begins, _) = waiting(queue, |node| node.concurrency(2), |_| Ok(()));
    // Some jobs are due when the node finds them, and others come to be due in its timers.
    for number in 0..10 {
        let (key, later) = (format!("due-{number}"), format!("later-{number}"));
        queue.schedule(key, Duration::ZERO, "").await.unwrap();
        let soon = Duration::from_millis(500);
        queue.schedule(later, soon, "").await.unwrap();
    }
    let begun = [begins.recv().await, begins.recv().await];
    let mut keys = HashSet::from(begun.map(|attempt| attempt.unwrap().key));
    let (idle, mut others) = node(queue, |node| node, |_| Ok(()));
    for _ in 0..18 {
        assert!(keys.insert(others.recv().await.unwrap().key));
    }
    assert_eq!(keys.len(), 20);
    live(queue, 2).await;
    assert_eq!(busy.stats().begun, 2);
    gate.add_permits(2);
    live(queue, 0).await;
    assert!(busy.stop(PATIENCE).await && idle.stop(PATIENCE).await);
}

pub async fn a_node_that_comes_later_gets_its_share<S: Store>(queue: &Queue<S>) {
    for number in 0..400 {
        queue
            .schedule(format!("overdue-{number}"), Duration::ZERO, "")
            .await
            .unwrap();
    }
    let gate = Arc::new(Semaphore::new(0));
    let start = || {
        let gate = gate.clone();
        Node::builder(queue.clone()).concurrency(4).start(move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.map_err(Failure::retry)?.forget();
                Ok(())
            }
        })
    };
    let four = async |node: &Node<S>| {
        begun(node, 4).await;
        // It holds as many as it can run, and as many again.
        assert!(node.stats().held <= 8, "{:?}", node.stats());
    };
    let first = start();
    four(&first).await;
    let second = start();
    four(&second).await;
    gate.add_permits(400);
    live(queue, 0).await;
    assert_eq!(first.stats().done + second.stats().done, 400);
    assert!(first.stop(PATIENCE).await && second.stop(PATIENCE).await);
}

pub async fn a_job_that_is_given_back_has_no_holder<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    queue
        .schedule("mine", Duration::ZERO, "text")
        .await
        .unwrap();
    queue.schedule("later", HOUR, "").await.unwrap();
    let one = store.register(HOUR).await.unwrap().node;
    let due = store
        .hold(one, Span::Due, "default", &Kinds::All, 10)
        .await
        .unwrap();
    assert_eq!(
        (due.len(), due[0].key.as_str(), due[0].size),
        (1, "mine", 4)
    );
    let within = Span::Within(2 * HOUR);
    let later = store
        .hold(one, within, "default", &Kinds::All, 10)
        .await
        .unwrap();
    assert_eq!((later.len(), later[0].key.as_str()), (1, "later"));
    let other = store.register(HOUR).await.unwrap().node;
    let stale = Token(due[0].token.0 - 1);
    store.give_back(vec![("mine".into(), stale)]).await.unwrap();
    assert!(
        store
            .hold(other, Span::Due, "default", &Kinds::All, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let mine = ("mine".to_owned(), due[0].token);
    store.give_back(vec![mine]).await.unwrap();
    let again = store
        .hold(other, Span::Due, "default", &Kinds::All, 10)
        .await
        .unwrap();
    assert!(
        again.len() == 1 && again[0].token > due[0].token,
        "{again:?}"
    );
    // The old token begins nothing.
    let starts = vec![start("mine", due[0].token), start("mine", again[0].token)];
    let payload = b"text".to_vec();
    let begun = Begin::Yes { number: 1, payload };
    assert_eq!(store.begin(starts).await.unwrap(), [Begin::No, begun]);
    store.release(one).await.unwrap();
    store.release(other).await.unwrap();
    queue.cancel("mine").await.unwrap();
    queue.cancel("later").await.unwrap();
}

pub async fn a_stopped_node_gives_its_jobs_back<S: Store>(queue: &Queue<S>) {
    // Later than the end of the test, but soon enough that the store tells the node of the job.
    let later = Duration::from_secs(500);
    let start = || node(queue, |node| node.window(2 * later), |_| Ok(()));
    let (one, mut first) = start();
    queue.schedule("given back", later, "").await.unwrap();
    holds(&one).await;
    assert!(one.stop(PATIENCE).await);
    let (two, mut second) = start();
    holds(&two).await;
    queue.reschedule("given back", SOON).await.unwrap();
    assert_eq!(second.recv().await.unwrap().key, "given back");
    assert!(first.try_recv().is_err());
    live(queue, 0).await;
    assert!(two.stop(PATIENCE).await);
}

/// A request of the node may arrive after its release.
pub async fn a_node_that_was_released_gets_no_jobs<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let released = store.register(HOUR).await.unwrap().node;
    queue.schedule("free", HOUR, "").await.unwrap();
    store.release(released).await.unwrap();
    let held = support::hold(&**store, released, 2 * HOUR, 10).await;
    assert!(held.is_empty(), "{held:?}");
    let other = store.register(HOUR).await.unwrap().node;
    let held = support::hold(&**store, other, 2 * HOUR, 10).await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].key, "free");
    store.release(other).await.unwrap();
    queue.cancel("free").await.unwrap();
}
