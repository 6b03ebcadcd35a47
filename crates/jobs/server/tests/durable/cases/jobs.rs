//! Jobs that clients schedule, move, cancel and list.

use std::time::Duration;

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Failure, NewJob, Queue, QueueError, Repeat, When,
    job::State,
    queue::{MAX_KEY, MAX_PAYLOAD},
    store::{Cancelled, Listing, Moved, Scheduled, Store},
};

use super::SOON;
use crate::support::{HOUR, PATIENCE, holds, live, node, waiting};

pub async fn a_job_runs_once_and_not_early<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    let made = queue.schedule("once", SOON, "text").await.unwrap();
    let Scheduled::Created { at } = made else {
        panic!("{made:?}");
    };
    let attempt = ran.recv().await.unwrap();
    assert!(queue.store().now() >= at);
    assert_eq!(
        (attempt.key.as_str(), attempt.payload.as_slice()),
        ("once", &b"text"[..])
    );
    assert_eq!((attempt.number, attempt.due, attempt.at), (1, at, at));
    live(queue, 0).await;
    assert!(ran.try_recv().is_err());
    // The key is free again, and the tokens rise.
    queue.schedule("once", Duration::ZERO, "").await.unwrap();
    assert!(ran.recv().await.unwrap().token > attempt.token);
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_key_has_one_job<S: Store>(queue: &Queue<S>) {
    let first = queue.schedule("one", HOUR, "first").await.unwrap();
    let Scheduled::Created { at } = first else {
        panic!("{first:?}");
    };
    let again = queue.schedule("one", SOON, "second").await.unwrap();
    assert_eq!(again, Scheduled::Exists { at });
    assert_eq!(queue.get("one").await.unwrap().unwrap().payload, b"first");
    queue.cancel("one").await.unwrap();
}

pub async fn bad_input_is_refused<S: Store>(queue: &Queue<S>) {
    for key in [String::new(), "k".repeat(MAX_KEY + 1), "a\nb".into()] {
        let refused = queue.schedule(key, SOON, "").await;
        assert!(matches!(refused, Err(QueueError::Key)), "{refused:?}");
    }
    let refused = queue.schedule("big", SOON, vec![0; MAX_PAYLOAD + 1]).await;
    assert!(matches!(refused, Err(QueueError::Payload(length)) if length == MAX_PAYLOAD + 1));
    let never = Repeat::parse("0 0 30 2 *", "UTC");
    if let Ok(never) = never {
        assert_eq!(
            queue.schedule("never", never.clone(), "").await.unwrap(),
            Scheduled::Never
        );
        // In one batch, the answer of the next job of its key is not affected.
        let both = vec![
            NewJob::new("never", never, ""),
            NewJob::new("never", SOON, ""),
        ];
        let answers = queue.store().schedule(both).await.unwrap();
        assert!(
            matches!(answers[..], [Scheduled::Never, Scheduled::Created { .. }]),
            "{answers:?}"
        );
        queue.cancel("never").await.unwrap();
    }
    assert_eq!(queue.count().await.unwrap().live, 0);
}

pub async fn a_cancelled_job_does_not_run<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    let delay = Duration::from_millis(300);
    // On a slow machine the job may be over before the cancel. Then try again.
    loop {
        queue.schedule("cancelled", delay, "").await.unwrap();
        // Wait until the node holds it, so that the cancel has to reach a timer.
        while node.stats().held == 0 && ran.is_empty() {
            sleep(Duration::from_millis(2)).await;
        }
        if queue.cancel("cancelled").await.unwrap() == Cancelled::Cancelled {
            break;
        }
        ran.recv().await.unwrap();
        live(queue, 0).await;
    }
    sleep(delay + Duration::from_millis(100)).await;
    assert!(ran.try_recv().is_err());
    assert_eq!(
        queue.cancel("cancelled").await.unwrap(),
        Cancelled::NotFound
    );
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_job_can_be_cancelled_while_it_runs<S: Store>(queue: &Queue<S>) {
    let (node, gate, mut ran, mut ends) = waiting(queue, |node| node, |_| Ok(()));
    queue.schedule("running", SOON, "").await.unwrap();
    ran.recv().await.unwrap();
    assert_eq!(
        queue.get("running").await.unwrap().unwrap().state,
        State::Running
    );
    assert_eq!(
        queue.cancel("running").await.unwrap(),
        Cancelled::WhileRunning
    );
    gate.add_permits(1);
    // The store refuses the end, as the token is stale.
    assert_eq!(ends.recv().await.unwrap().1, Some(false));
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_moved_job_runs_at_its_new_time<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    queue.schedule("moved", HOUR, "").await.unwrap();
    // Move the job from beyond the window to soon.
    let Moved::Moved { at } = queue.reschedule("moved", SOON).await.unwrap() else {
        panic!("nothing ran it");
    };
    let attempt = ran.recv().await.unwrap();
    assert_eq!(attempt.at, at);
    assert!(queue.store().now() >= at);
    live(queue, 0).await;
    // Move the job from a timer to later, and back.
    queue
        .schedule("moved", Duration::from_secs(60), "")
        .await
        .unwrap();
    holds(&node).await;
    queue.reschedule("moved", HOUR).await.unwrap();
    queue.reschedule("moved", SOON).await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert_eq!(
        queue.reschedule("moved", SOON).await.unwrap(),
        Moved::NotFound
    );
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_job_that_is_moved_while_it_runs_runs_again<S: Store>(queue: &Queue<S>) {
    let (node, gate, mut ran, mut ends) = waiting(queue, |node| node, |_| Ok(()));
    queue.schedule("again", SOON, "").await.unwrap();
    let first = ran.recv().await.unwrap();
    let moved = queue.reschedule("again", SOON).await.unwrap();
    assert!(matches!(moved, Moved::WhileRunning { .. }), "{moved:?}");
    let second = ran.recv().await.unwrap();
    assert!(second.token > first.token);
    gate.add_permits(2);
    let ends = [ends.recv().await.unwrap().1, ends.recv().await.unwrap().1];
    assert_eq!(
        ends.iter()
            .filter(|&&accepted| accepted == Some(true))
            .count(),
        1
    );
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

pub async fn jobs_are_listed_by_their_keys<S: Store>(queue: &Queue<S>) {
    for key in ["b/2", "a/1", "c%_3", "B", "b/1"] {
        queue.schedule(key, When::In(HOUR), "").await.unwrap();
    }
    let list = async |listing: Listing| -> Vec<String> {
        let found = queue.list(listing).await.unwrap();
        found.into_iter().map(|job| job.key).collect()
    };
    let all = Listing {
        limit: 10,
        ..Listing::default()
    };
    // The keys are in the order of their bytes, in each store.
    assert_eq!(list(all.clone()).await, ["B", "a/1", "b/1", "b/2", "c%_3"]);
    let search = |text: &str| Listing {
        search: text.into(),
        ..all.clone()
    };
    assert_eq!(list(search("b/")).await, ["b/1", "b/2"]);
    // No character has a special meaning in a search.
    assert_eq!(list(search("%_")).await, ["c%_3"]);
    let page = Listing {
        after: Some("a/1".into()),
        limit: 2,
        ..all.clone()
    };
    assert_eq!(list(page).await, ["b/1", "b/2"]);
    let dead = Listing {
        dead: Some(true),
        ..all
    };
    assert!(list(dead).await.is_empty());
    for key in ["b/2", "a/1", "c%_3", "B", "b/1"] {
        assert_eq!(queue.cancel(key).await.unwrap(), Cancelled::Cancelled);
    }
}

pub async fn a_list_has_the_beginnings_of_large_jobs<S: Store>(queue: &Queue<S>) {
    // Each of its characters has two bytes.
    let error = "\u{e4}".repeat(3000);
    let (said, payload) = (error.clone(), vec![1; MAX_PAYLOAD]);
    let (node, _ran) = node(queue, |node| node, move |_| Err(Failure::give_up(&said)));
    for key in ["large", "larger"] {
        let payload = payload.clone();
        queue.schedule(key, Duration::ZERO, payload).await.unwrap();
    }
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
    for beginning in [0, 1, 5, 1000, 6000, 1 << 40] {
        let listing = Listing {
            limit: 10,
            beginning,
            ..Listing::default()
        };
        let found = queue.list(listing).await.unwrap();
        assert_eq!(found.len(), 2);
        for job in found {
            assert_eq!(job.payload.len(), beginning.min(MAX_PAYLOAD), "{beginning}");
            let said = job.error.unwrap();
            assert!(error.starts_with(&said));
            // A character is not divided.
            assert_eq!(said.len(), (beginning & !1).min(6000), "{beginning}");
        }
    }
    for key in ["large", "larger"] {
        let job = queue.get(key).await.unwrap().unwrap();
        assert_eq!(
            (job.payload, job.error),
            (payload.clone(), Some(error.clone()))
        );
        queue.cancel(key).await.unwrap();
    }
}
