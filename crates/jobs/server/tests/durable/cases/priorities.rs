//! Jobs that have priorities.

use std::time::Duration;

use tourbillon::time::{Instant, sleep};
use tourbillon_jobs::{
    Attempt, Failure, NewJob, Node, Queue, QueueError, Repeat, Time,
    job::State,
    store::{Kinds, Listing, Span, Store},
};

use super::quick;
use crate::support::{HOUR, PATIENCE, live, node, unbounded_channel};

/// Returns when the job of a priority is due: those of higher ones are due later.
fn at(priority: u8, from: Time) -> Time {
    from.after(Duration::from_secs(u64::from(9 - priority)))
}

pub async fn jobs_of_a_higher_priority_come_first<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let ages_ago = Time::from_micros(1);
    let soon = store.now().after(HOUR);
    let within = Span::Within(2 * HOUR);
    let of = |names: &[&str]| Kinds::only(names.iter().copied());
    for (from, span) in [(ages_ago, Span::Due), (soon, within)] {
        for priority in [7, 0, 4, 9] {
            for kind in ["", "mail"] {
                let key = format!("{kind}-{priority}");
                let job = NewJob::new(key, at(priority, from), "");
                let job = job.kind(kind).priority(priority);
                queue.schedule_job(job).await.unwrap();
            }
        }
        let lease = store.register(HOUR).await.unwrap().node;
        // Each look takes half of the jobs of one priority, if it is of both kinds.
        for (kinds, copies) in [
            (Kinds::All, 2),
            (of(&["", "mail", "none"]), 2),
            (of(&["mail"]), 1),
        ] {
            let mut all = Vec::new();
            for priority in [0, 4, 7, 9] {
                for _ in 0..copies {
                    let held = store.hold(lease, span, "default", &kinds, 1).await.unwrap();
                    assert_eq!(held.len(), 1);
                    assert_eq!(held[0].priority, priority, "{kinds:?} {span:?}");
                    assert_eq!(held[0].at, at(priority, from));
                    all.extend(held.into_iter().map(|job| (job.key, job.token)));
                }
            }
            assert!(
                store
                    .hold(lease, span, "default", &kinds, 1)
                    .await
                    .unwrap()
                    .is_empty()
            );
            assert!(!store.skipped(span, "default", &kinds).await.unwrap());
            store.give_back(all).await.unwrap();
            // Several priorities in one look, and only the highest ones.
            let above = match span {
                Span::Due => [Span::Above(0), Span::Above(5), Span::Above(9), span],
                span => [span; 4],
            };
            for (span, found) in above.into_iter().zip([0, 2, 3, 4]) {
                let most = if span == within { found * copies } else { 100 };
                let held = store
                    .hold(lease, span, "default", &kinds, most)
                    .await
                    .unwrap();
                let mut priorities: Vec<_> = held.iter().map(|job| job.priority).collect();
                priorities.sort_unstable();
                priorities.dedup();
                assert_eq!(held.len(), found * copies);
                assert_eq!(priorities, [0, 4, 7, 9][..found]);
                let held = held.into_iter().map(|job| (job.key, job.token));
                store.give_back(held.collect()).await.unwrap();
            }
        }
        store.release(lease).await.unwrap();
        let listing = Listing {
            kind: Some("mail".into()),
            limit: 10,
            ..Listing::default()
        };
        let listed = queue.list(listing).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|job| job.priority).collect();
        assert_eq!(listed, [0, 4, 7, 9]);
        for job in queue.list(all()).await.unwrap() {
            queue.cancel(job.key).await.unwrap();
        }
    }
    let refused = queue
        .schedule_job(NewJob::new("job", HOUR, "").priority(10))
        .await;
    assert!(
        matches!(refused, Err(QueueError::Priority(10))),
        "{refused:?}"
    );
}

/// Returns a listing of all jobs.
fn all() -> Listing {
    Listing {
        limit: 100,
        ..Listing::default()
    }
}

pub async fn a_job_keeps_its_queue_and_priority<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    // Each part of its life leaves it where only a look for high priorities finds it.
    let is_found = async |key: &str| {
        let job = queue.get(key).await.unwrap().unwrap();
        assert_eq!((job.priority, job.queue.as_str()), (2, "mails"));
        queue.reschedule(key, Time::from_micros(1)).await.unwrap();
        let lease = store.register(HOUR).await.unwrap().node;
        for (above, found) in [(2, false), (3, true)] {
            let span = Span::Above(above);
            for (queue, found) in [("default", false), ("mails", found)] {
                let held = store.hold(lease, span, queue, &Kinds::All, 1).await;
                assert_eq!(!held.unwrap().is_empty(), found);
            }
        }
        store.release(lease).await.unwrap();
    };
    let (node, mut ran) = node(
        queue,
        |node| node.backoff(quick(2)).queue("mails", 5),
        |attempt| match attempt.key.as_str() {
            "dies" => Err(Failure::retry("on purpose")),
            "snoozes" => Err(Failure::snooze(HOUR)),
            _ => Ok(()),
        },
    );
    let each = Repeat::parse("* * * * * *", "UTC").unwrap();
    for job in [
        NewJob::new("dies", Duration::ZERO, ""),
        NewJob::new("snoozes", Duration::ZERO, ""),
        NewJob::new("cron", each, ""),
    ] {
        let job = job.priority(2).queue("mails");
        queue.schedule_job(job).await.unwrap();
    }
    let mut occurrences = 0;
    while occurrences < 2 {
        occurrences += u32::from(ran.recv().await.unwrap().key == "cron");
    }
    let state = async |key: &str| queue.get(key).await.unwrap().unwrap().state;
    while state("dies").await != State::Dead || state("snoozes").await != State::Waiting {
        sleep(Duration::from_millis(2)).await;
    }
    assert!(node.stop(PATIENCE).await);
    for key in ["dies", "snoozes", "cron"] {
        is_found(key).await;
        queue.cancel(key).await.unwrap();
    }
}

/// How many jobs are before another one, and how many handlers run.
const BACKLOG: usize = 20_000;
const HANDLERS: usize = 32;

pub async fn a_job_overtakes_a_backlog_of_a_lower_priority<S: Store>(queue: &Queue<S>) {
    add_low(queue, BACKLOG, Time::from_micros(1)).await;
    let overtaken = overtakes(queue, "high").await;
    // What began after the answer: what the node held, what it had asked for, and what ran.
    assert!(overtaken <= 8 * HANDLERS as u64, "{overtaken}");
    for first in (0..BACKLOG).step_by(PART) {
        let keys = (first..first + PART).map(low).collect();
        queue.store().cancel(keys).await.unwrap();
    }
    live(queue, 0).await;
}

/// Prints how long a job waits behind a million ones, which are due at one instant: first while the
/// node has as many of them in its timers as it may, and then for a node that finds all of them due.
pub async fn a_job_overtakes_a_million<S: Store>(queue: &Queue<S>) {
    let instant = queue.store().now().after(Duration::from_secs(240));
    add_low(queue, 1_000_000, instant).await;
    eprintln!(
        "added {:?} before they are due",
        instant.since(queue.store().now())
    );
    for key in ["first", "second"] {
        overtakes(queue, key).await;
    }
}

/// How many jobs are added at once.
const PART: usize = 500;

fn low(number: usize) -> String {
    format!("low-{number}")
}

/// Adds jobs that are due at this time.
async fn add_low<S: Store>(queue: &Queue<S>, count: usize, at: Time) {
    for first in (0..count).step_by(PART) {
        let job = |number| NewJob::new(low(number), at, "");
        let jobs: Vec<_> = (first..first + PART).map(job).collect();
        // A server that syncs each write may be late for it on a busy disk.
        while let Err(error) = queue.store().schedule(jobs.clone()).await {
            eprintln!("{error}");
        }
    }
}

/// Adds a job of a high priority while a node runs many of a lower one. Returns how many of these
/// begin between the answer and the job.
async fn overtakes<S: Store>(queue: &Queue<S>, key: &str) -> u64 {
    let (sender, mut ran) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .concurrency(HANDLERS)
        .start(move |attempt: Attempt| {
            let _ = sender.send(attempt.key);
            async {
                sleep(Duration::from_millis(2)).await;
                Ok(())
            }
        });
    for _ in 0..1000 {
        ran.recv().await.unwrap();
    }
    let (start, job) = (Instant::now(), NewJob::new(key, Duration::ZERO, ""));
    queue.schedule_job(job.priority(0)).await.unwrap();
    let (begun, answer) = (node.stats().begun, start.elapsed());
    let mut number = 1000;
    while ran.recv().await.unwrap() != key {
        number += 1;
    }
    let (overtaken, begin) = (number - begun.min(number), start.elapsed());
    eprintln!("{key}: the answer after {answer:?}, the begin after {begin:?}, {overtaken} between");
    assert!(node.stop(PATIENCE).await);
    overtaken
}
