//! Attempts that fail, do not end, or are interrupted, and what follows them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, Failure, Node, Queue, Repeat,
    job::State,
    node::Interrupt,
    store::{Begin, End, Finish, Start, Store},
};

use super::{SOON, quick};
use crate::support::{self, HOUR, PATIENCE, live, node, start, unbounded_channel, yes};

pub async fn a_job_that_fails_is_tried_again_and_dies<S: Store>(queue: &Queue<S>) {
    let heals = Arc::new(AtomicBool::new(false));
    let healed = heals.clone();
    let (node, mut ran) = node(
        queue,
        |node| node.backoff(quick(3)),
        move |attempt| match attempt.key.as_str() {
            _ if healed.load(Ordering::Relaxed) => Ok(()),
            "hopeless" => Err(Failure::give_up("no use")),
            _ => Err(Failure::retry(format!("attempt {}", attempt.number))),
        },
    );
    queue.schedule("failing", SOON, "").await.unwrap();
    let mut attempts = Vec::new();
    for number in 1..=3 {
        let attempt = ran.recv().await.unwrap();
        assert_eq!(attempt.number, number);
        attempts.push(attempt);
    }
    assert!(attempts.is_sorted_by(|a, b| a.token < b.token && a.at < b.at && a.due == b.due));
    queue.schedule("hopeless", SOON, "").await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert_eq!(queue.count().await.unwrap().dead, 2);
    let dead = queue.get("failing").await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts), (State::Dead, 3));
    assert_eq!(dead.error.as_deref(), Some("attempt 3"));
    let hopeless = queue.get("hopeless").await.unwrap().unwrap();
    assert_eq!(hopeless.error.as_deref(), Some("no use"));
    // A dead job lives again when it is moved.
    heals.store(true, Ordering::Relaxed);
    queue.reschedule("failing", Duration::ZERO).await.unwrap();
    assert_eq!(ran.recv().await.unwrap().number, 1);
    queue.cancel("hopeless").await.unwrap();
    live(queue, 0).await;
    assert_eq!(queue.count().await.unwrap().dead, 0);
    assert!(node.stop(PATIENCE).await);
}

/// Begins an attempt on a node that ends then, as if its process had aborted.
pub async fn begin_and_end<S: Store>(queue: &Queue<S>, key: &str, wait: Duration) -> Begin {
    let store = queue.store();
    let node = store.register(HOUR).await.unwrap().node;
    let held = support::hold(&**store, node, 2 * HOUR, 10).await;
    let held = held.iter().find(|held| held.key == key).unwrap();
    let start = Start {
        wait,
        ..start(key, held.token)
    };
    let begun = store.begin(vec![start]).await.unwrap();
    store.release(node).await.unwrap();
    begun.into_iter().next().unwrap()
}

pub async fn an_attempt_that_snoozes_does_not_count<S: Store>(queue: &Queue<S>) {
    let calls = Arc::new(AtomicU32::new(0));
    let (sender, mut ends) = unbounded_channel();
    let (node, mut ran) = node(
        queue,
        |node| {
            node.backoff(quick(2)).on_end(move |ended| {
                let _ = sender.send(ended.clone());
            })
        },
        move |attempt| match calls.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => Err(Failure::snooze(Duration::from_millis(2))),
            1 => Err(Failure::retry("on purpose")),
            // After as many attempts as there may be, and more.
            3 | 4 => Err(Failure::snooze(Duration::ZERO)),
            5 => Err(Failure::snooze(2 * HOUR)),
            _ if attempt.key == "cron" => Err(Failure::snooze(HOUR)),
            _ => Ok(()),
        },
    );
    queue.schedule("job", Duration::ZERO, "").await.unwrap();
    let mut attempts = Vec::new();
    for number in [1, 1, 2, 2, 2, 2] {
        let attempt = ran.recv().await.unwrap();
        assert_eq!(attempt.number, number);
        attempts.push(attempt);
        let ended = ends.recv().await.unwrap();
        assert_eq!(ended.accepted, Some(true));
        let snoozes = matches!(ended.end, End::Snooze { .. });
        assert_eq!(snoozes, attempts.len() != 2);
    }
    assert!(attempts.is_sorted_by(|a, b| a.token < b.token && a.at < b.at && a.due == b.due));
    let (stats, job) = (node.stats(), queue.get("job").await.unwrap().unwrap());
    assert_eq!((stats.begun, stats.failed, stats.snoozed), (6, 1, 5));
    assert_eq!((job.state, job.attempts), (State::Waiting, 1));
    assert_eq!(job.error.as_deref(), Some("on purpose"));
    assert!(job.at.since(attempts[5].at) >= 2 * HOUR);
    assert_eq!(job.due, attempts[0].due);
    // A move wakes it, and counts anew.
    queue.reschedule("job", Duration::ZERO).await.unwrap();
    assert_eq!(ran.recv().await.unwrap().number, 1);
    live(queue, 0).await;
    // A cron job snoozes within an occurrence.
    let each = Repeat::parse("* * * * * *", "UTC").unwrap();
    queue.schedule("cron", each, "").await.unwrap();
    let occurrence = ran.recv().await.unwrap().due;
    // The end of the job before came first.
    while !matches!(ends.recv().await.unwrap().end, End::Snooze { .. }) {}
    let job = queue.get("cron").await.unwrap().unwrap();
    assert_eq!((job.due, job.attempts), (occurrence, 0));
    assert!(job.at.since(job.due) >= HOUR);
    queue.cancel("cron").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}

pub async fn an_attempt_that_does_not_end_counts_and_waits<S: Store>(queue: &Queue<S>) {
    queue.schedule("cut off", Duration::ZERO, "").await.unwrap();
    for number in 1..4 {
        let begun = begin_and_end(queue, "cut off", Duration::ZERO).await;
        assert_eq!(begun, yes(number));
        let job = queue.get("cut off").await.unwrap().unwrap();
        assert_eq!((job.state, job.attempts), (State::Waiting, number));
    }
    let now = queue.store().now();
    let begun = begin_and_end(queue, "cut off", HOUR).await;
    assert_eq!(begun, yes(4));
    let job = queue.get("cut off").await.unwrap().unwrap();
    assert!(job.at >= now.after(HOUR) && job.due < now, "{job:?}");
    assert_eq!(begin_and_end(queue, "cut off", HOUR).await, Begin::Early);
    queue.cancel("cut off").await.unwrap();
}

pub async fn a_job_whose_last_attempt_does_not_end_dies<S: Store>(queue: &Queue<S>) {
    let yearly = Repeat::parse("0 0 1 1 *", "UTC").unwrap();
    queue.schedule("yearly", yearly, "").await.unwrap();
    queue.reschedule("yearly", Duration::ZERO).await.unwrap();
    queue.schedule("once", Duration::ZERO, "").await.unwrap();
    for number in 1..4 {
        for key in ["once", "yearly"] {
            let begun = begin_and_end(queue, key, Duration::ZERO).await;
            assert_eq!(begun, yes(number));
        }
    }
    let (sender, mut ends) = unbounded_channel();
    let (node, mut ran) = node(
        queue,
        |node| {
            node.backoff(quick(3)).on_end(move |ended| {
                let _ = sender.send((ended.key.clone(), ended.accepted));
            })
        },
        |_| Ok(()),
    );
    live(queue, 1).await;
    let mut ended = [ends.recv().await.unwrap(), ends.recv().await.unwrap()];
    ended.sort();
    let accepted = |key: &str| (key.to_owned(), Some(true));
    assert_eq!(ended, [accepted("once"), accepted("yearly")]);
    // No handler ran.
    assert!(ran.try_recv().is_err());
    let dead = queue.get("once").await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts), (State::Dead, 3));
    let error = dead.error.unwrap();
    assert!(error.contains("attempt 3 is the last one"), "{error}");
    // A cron job waits for its next occurrence, with all attempts.
    let next = queue.get("yearly").await.unwrap().unwrap();
    assert_eq!((next.state, next.attempts), (State::Waiting, 0));
    assert!(next.at > queue.store().now() && next.error.is_some());
    // A job that was moved has all attempts again.
    queue.reschedule("once", Duration::ZERO).await.unwrap();
    assert_eq!(ran.recv().await.unwrap().number, 1);
    live(queue, 1).await;
    queue.cancel("yearly").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_panic_and_a_timeout_are_failures<S: Store>(queue: &Queue<S>) {
    let node = Node::builder(queue.clone())
        .backoff(quick(1))
        .attempt_timeout(Duration::from_millis(20))
        .start(|attempt: Attempt| async move {
            if attempt.key == "panics" {
                panic!("on purpose");
            }
            sleep(HOUR).await;
            Ok(())
        });
    queue.schedule("panics", SOON, "").await.unwrap();
    queue.schedule("hangs", SOON, "").await.unwrap();
    live(queue, 0).await;
    for (key, error) in [
        ("panics", "the handler panicked: on purpose"),
        ("hangs", "it took longer than 20ms"),
    ] {
        let job = queue.get(key).await.unwrap().unwrap();
        assert_eq!(
            (job.state, job.error.as_deref()),
            (State::Dead, Some(error))
        );
        queue.cancel(key).await.unwrap();
    }
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_handler_learns_of_a_cancel_and_of_the_stop<S: Store>(queue: &Queue<S>) {
    let (sender, mut told) = unbounded_channel();
    let (began, mut begins) = unbounded_channel();
    let node = Node::builder(queue.clone()).start(move |attempt: Attempt| {
        let sender = sender.clone();
        assert_eq!(attempt.interrupt(), None);
        let _ = began.send(());
        async move {
            let why = match attempt.key.as_str() {
                "stays" => attempt.stale().await,
                _ => attempt.interrupted().await,
            };
            assert_eq!(attempt.interrupt(), Some(why));
            let _ = sender.send((attempt.key, why));
            Ok(())
        }
    });
    let jobs = ["cancelled", "moved", "stopped", "stays"];
    for key in jobs {
        queue.schedule(key, Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
    }
    queue.cancel("cancelled").await.unwrap();
    let cancelled = ("cancelled".to_owned(), Interrupt::Cancelled);
    assert_eq!(told.recv().await.unwrap(), cancelled);
    queue.reschedule("moved", HOUR).await.unwrap();
    let moved = ("moved".to_owned(), Interrupt::Cancelled);
    assert_eq!(told.recv().await.unwrap(), moved);
    // The others are not told until the node stops.
    assert!(told.is_empty());
    let stopping = tourbillon::spawn(node.stop(PATIENCE));
    let stopped = ("stopped".to_owned(), Interrupt::NodeStops);
    assert_eq!(told.recv().await.unwrap(), stopped);
    assert!(told.is_empty());
    queue.cancel("stays").await.unwrap();
    let stays = ("stays".to_owned(), Interrupt::Cancelled);
    assert_eq!(told.recv().await.unwrap(), stays);
    assert!(stopping.await.unwrap());
    queue.cancel("moved").await.unwrap();
    live(queue, 0).await;
}

pub async fn an_error_may_have_any_character<S: Store>(queue: &Queue<S>) {
    let (node, _ran) = node(
        queue,
        |node| node,
        |_| Err(Failure::give_up("a\0b\u{1f300}")),
    );
    queue.schedule("zero", SOON, "").await.unwrap();
    live(queue, 0).await;
    let error = queue.get("zero").await.unwrap().unwrap().error.unwrap();
    // PostgreSQL refuses texts with this character.
    assert_eq!(error.replace('\0', "\u{fffd}"), "a\u{fffd}b\u{1f300}");
    queue.cancel("zero").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_cron_job_runs_again_and_again<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(
        queue,
        |node| node.backoff(quick(2)),
        // An occurrence that fails for good does not end the job.
        |_| Err(Failure::retry("on purpose")),
    );
    let repeat = Repeat::parse("* * * * * *", "Europe/Paris").unwrap();
    queue
        .schedule("cron", repeat.clone(), "tick")
        .await
        .unwrap();
    let mut dues = Vec::new();
    for number in [1, 2, 1, 2] {
        let attempt = ran.recv().await.unwrap();
        assert_eq!(
            (attempt.number, attempt.payload.as_slice()),
            (number, &b"tick"[..])
        );
        assert_eq!(attempt.due.as_micros() % 1_000_000, 0);
        dues.push(attempt.due);
    }
    assert!(dues[0] == dues[1] && dues[1] < dues[2] && dues[2] == dues[3]);
    let job = queue.get("cron").await.unwrap().unwrap();
    assert_eq!(job.repeat, Some(repeat));
    queue.cancel("cron").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_stale_token_begins_and_ends_nothing<S: Store>(queue: &Queue<S>) {
    queue.schedule("job", Duration::ZERO, "").await.unwrap();
    let store = queue.store();
    let hold = async || {
        let node = store.register(HOUR).await.unwrap().node;
        let held = support::hold(&**store, node, HOUR, 10).await;
        (node, held)
    };
    let begin = async |token| store.begin(vec![start("job", token)]).await.unwrap();
    let finish = async |token| {
        let finish = Finish {
            key: "job".into(),
            token,
            end: End::Done,
        };
        store.finish(vec![finish]).await.unwrap()
    };
    let (one, held) = hold().await;
    let old = held[0].token;
    assert_eq!(begin(old).await, [yes(1)]);
    let (two, held) = hold().await;
    assert!(held.is_empty());
    // The first node is taken for dead while its attempt runs.
    store.release(one).await.unwrap();
    let (three, held) = hold().await;
    let new = held[0].token;
    assert!(new > old);
    assert_eq!(begin(old).await, [Begin::No]);
    assert_eq!(finish(old).await, [false]);
    assert_eq!(begin(new).await, [yes(2)]);
    assert_eq!(finish(new).await, [true]);
    assert_eq!(queue.count().await.unwrap().live, 0);
    for node in [two, three] {
        store.release(node).await.unwrap();
    }
}
