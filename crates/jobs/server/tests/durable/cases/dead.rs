//! Dead jobs that are retried and discarded, many at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures_lite::future::or;
use tourbillon::time::sleep;
use tourbillon_jobs::{
    Failure, NewJob, Node, Queue,
    job::{Job, State, Token},
    store::{
        Begin, Cancelled, DeadJobs, DeadPart, End, Finish, Held, Kinds, Listing, Scheduled, Span,
        Start, Store,
    },
};

use super::SOON;
use crate::support::{
    HOUR, PATIENCE, Told, holds, live, node, soon, start, unbounded_channel, yes,
};

/// How long a lease of these tests is.
const LEASE: Duration = Duration::from_secs(600);

fn any() -> DeadJobs {
    DeadJobs {
        limit: 500,
        ..DeadJobs::default()
    }
}

/// Calls this until there are no more. Returns the number of jobs, and of calls.
async fn all<F: Future<Output = DeadPart>>(
    mut which: DeadJobs,
    call: impl Fn(DeadJobs) -> F,
) -> (u64, usize) {
    let (mut changed, mut calls) = (0, 0);
    loop {
        let part = call(which.clone()).await;
        changed += part.changed;
        calls += 1;
        let Some(after) = part.after else {
            return (changed, calls);
        };
        assert!(which.after.is_none_or(|before| before < after), "{after}");
        which.after = Some(after);
    }
}

async fn retry<S: Store>(queue: &Queue<S>, which: DeadJobs) -> (u64, usize) {
    all(which, async |which| queue.retry_dead(which).await.unwrap()).await
}

async fn discard<S: Store>(queue: &Queue<S>, which: DeadJobs) -> (u64, usize) {
    all(which, async |which| {
        queue.discard_dead(which).await.unwrap()
    })
    .await
}

async fn list<S: Store>(queue: &Queue<S>, dead: Option<bool>) -> Vec<Job> {
    let listing = Listing {
        dead,
        limit: 5000,
        beginning: 100,
        ..Listing::default()
    };
    queue.list(listing).await.unwrap()
}

/// Begins an attempt of each job of these queues that is due. Returns each with its payload.
async fn begin_all<S: Store>(queue: &Queue<S>, node: i64, names: &[&str]) -> Vec<(Held, Vec<u8>)> {
    let store = queue.store();
    let mut all = Vec::new();
    for name in names {
        let held = store.hold(node, Span::Due, name, &Kinds::All, 2000);
        all.extend(held.await.unwrap());
    }
    let starts = all.iter().map(|job| start(&job.key, job.token)).collect();
    let begun = store.begin(starts).await.unwrap();
    let read = |begun| match begun {
        Begin::Yes { number: 1, payload } => payload,
        other => panic!("{other:?}"),
    };
    all.into_iter().zip(begun.into_iter().map(read)).collect()
}

/// Adds jobs, of which each dies.
async fn die<S: Store>(queue: &Queue<S>, jobs: Vec<NewJob>) {
    let (store, count) = (queue.store(), jobs.len());
    let added = store.schedule(jobs).await.unwrap();
    assert!(
        added
            .iter()
            .all(|one| matches!(one, Scheduled::Created { .. }))
    );
    let node = store.register(LEASE).await.unwrap().node;
    let begun = begin_all(queue, node, &["default", "mails"]).await;
    let end = |(job, _): (Held, _)| Finish {
        key: job.key,
        token: job.token,
        end: End::Dead {
            error: "bad".into(),
        },
    };
    let ends = store.finish(begun.into_iter().map(end).collect()).await;
    assert_eq!(ends.unwrap(), vec![true; count]);
    store.release(node).await.unwrap();
}

pub async fn dead_jobs_are_retried_by_kind_queue_and_key<S: Store>(queue: &Queue<S>) {
    let new = |key: &str, kind: &str, name: &str| {
        let job = NewJob::new(key, Duration::ZERO, key).kind(kind);
        job.queue(name).priority(2)
    };
    let jobs = vec![
        new("a/1", "mail", "default"),
        new("a/2", "mail", "mails"),
        new("b/1", "mail", "default"),
        new("b/2", "", "default"),
        new("b/%", "", "mails"),
    ];
    die(queue, jobs).await;
    let keys = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.key).collect::<Vec<_>>();
    let before = queue.stats();
    let mut left = vec!["a/1", "a/2", "b/%", "b/1", "b/2"];
    assert_eq!(keys(list(queue, Some(true)).await), left);
    let text = |text: &str| Some(text.to_owned());
    for (which, chosen) in [
        (
            DeadJobs {
                search: "%".into(),
                ..any()
            },
            "b/%",
        ),
        (
            DeadJobs {
                kind: text("mail"),
                queue: text("default"),
                search: "a".into(),
                ..any()
            },
            "a/1",
        ),
        (
            DeadJobs {
                queue: text("mails"),
                ..any()
            },
            "a/2",
        ),
        (
            DeadJobs {
                kind: text(""),
                ..any()
            },
            "b/2",
        ),
        (
            DeadJobs {
                after: text("b/0"),
                ..any()
            },
            "b/1",
        ),
    ] {
        // Nobody is chosen twice.
        for count in [1, 0] {
            assert_eq!(retry(queue, which.clone()).await.0, count, "{which:?}");
        }
        left.retain(|key| *key != chosen);
        assert_eq!(keys(list(queue, Some(true)).await), left);
        let job = queue.get(chosen).await.unwrap().unwrap();
        assert_eq!((job.state, job.attempts), (State::Waiting, 0));
        assert_eq!((job.error, &*job.payload), (None, chosen.as_bytes()));
        assert_eq!((job.priority, job.due), (2, job.at));
        assert!(job.at <= queue.store().now());
    }
    let stats = queue.stats();
    assert_eq!(
        (stats.retried - before.retried, stats.moved),
        (5, before.moved)
    );
    // Each begins with its first attempt, and has what it had.
    let store = queue.store();
    let node = store.register(LEASE).await.unwrap().node;
    let begun = begin_all(queue, node, &["default", "mails"]).await;
    assert_eq!(begun.len(), 5);
    for (job, payload) in begun {
        assert_eq!(payload, job.key.as_bytes());
        queue.cancel(job.key).await.unwrap();
    }
    store.release(node).await.unwrap();
    live(queue, 0).await;
}

pub async fn dead_jobs_are_changed_in_parts<S: Store>(queue: &Queue<S>) {
    let (number, before) = (1100, queue.stats());
    let new = |n: u32| {
        NewJob::new(format!("job-{n:04}"), Duration::ZERO, "").kind(["a", "b"][n as usize % 2])
    };
    die(queue, (0..number).map(new).collect()).await;
    let few = DeadJobs {
        limit: 3,
        search: "job-00".into(),
        ..any()
    };
    let part = queue.retry_dead(few.clone()).await.unwrap();
    let expected = DeadPart {
        changed: 3,
        after: Some("job-0002".into()),
    };
    assert_eq!(part, expected);
    let part = queue
        .discard_dead(DeadJobs { limit: 1, ..few })
        .await
        .unwrap();
    let expected = DeadPart {
        changed: 1,
        after: Some("job-0003".into()),
    };
    assert_eq!(part, expected);
    // A call is bounded, whatever it is asked for.
    let part = queue
        .retry_dead(DeadJobs { limit: 0, ..any() })
        .await
        .unwrap();
    assert!((1..=500).contains(&part.changed), "{part:?}");
    let retried = part.changed;
    let (changed, calls) = retry(
        queue,
        DeadJobs {
            kind: Some("a".into()),
            after: part.after,
            limit: 100,
            ..any()
        },
    )
    .await;
    assert!(calls > 1 && changed > 100, "{changed} {calls}");
    let counts = queue.count().await.unwrap();
    assert_eq!(counts.live, 3 + retried + changed);
    // A retried job waits, and is not discarded.
    let (discarded, _) = discard(queue, any()).await;
    assert_eq!(discarded, counts.dead);
    let counts = queue.count().await.unwrap();
    assert_eq!((counts.live, counts.dead), (3 + retried + changed, 0));
    assert_eq!(discard(queue, any()).await, (0, 1));
    let stats = queue.stats();
    assert_eq!(stats.retried - before.retried, 3 + retried + changed);
    assert_eq!(stats.discarded - before.discarded, 1 + discarded);
    for job in list(queue, None).await {
        queue.cancel(job.key).await.unwrap();
    }
    live(queue, 0).await;
}

/// A call changes 8 MiB of payloads at most, or one job.
pub async fn large_dead_jobs_are_changed_in_small_parts<S: Store>(queue: &Queue<S>) {
    let payload = "x".repeat(1 << 20);
    let new = |n: u32| NewJob::new(format!("large-{n:02}"), Duration::ZERO, payload.as_str());
    die(queue, (0..20).map(new).collect()).await;
    // Redis has them in memory, and removes all at once.
    let calls = match std::any::type_name::<S>().contains("redis") {
        true => 1,
        false => 3,
    };
    assert_eq!(discard(queue, any()).await, (20, calls));
    live(queue, 0).await;
}

/// The node has nothing to look for by itself.
pub async fn a_node_learns_of_a_retried_job_at_once<S: Store>(queue: &Queue<S>) {
    die(queue, vec![NewJob::new("dead", Duration::ZERO, "")]).await;
    // Before the node's first look: nobody tells it of a job that is due so late.
    queue.schedule("timer", HOUR / 2, "").await.unwrap();
    let (node, mut ran) = node(queue, |node| node.window(HOUR), |_| Ok(()));
    holds(&node).await;
    assert_eq!(retry(queue, any()).await.0, 1);
    assert_eq!(ran.recv().await.unwrap().key, "dead");
    queue.cancel("timer").await.unwrap();
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

/// Jobs in each other state, and keys that are kept.
pub async fn only_dead_jobs_are_retried_and_discarded<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let lease = store.register(LEASE).await.unwrap();
    for key in ["begun", "failed", "held", "kept", "replaced"] {
        let job = NewJob::new(key, Duration::ZERO, "").unique_for(HOUR);
        queue.schedule_job(job).await.unwrap();
    }
    let held = store.hold(lease.node, Span::Due, "default", &Kinds::All, 10);
    let tokens: HashMap<_, _> = held
        .await
        .unwrap()
        .into_iter()
        .map(|job| (job.key, job.token))
        .collect();
    assert_eq!(tokens.len(), 5);
    let end = |key: &str, end| Finish {
        key: key.into(),
        token: tokens[key],
        end,
    };
    let starts = ["begun", "failed", "kept", "replaced"].map(|key| start(key, tokens[key]));
    let begun = store.begin(starts.to_vec()).await.unwrap();
    assert_eq!(begun, [yes(1), yes(1), yes(1), yes(1)]);
    let error = "failed".to_owned();
    let retried = End::Retry {
        delay: HOUR,
        error: error.clone(),
    };
    let ends = vec![
        end("failed", retried),
        end("kept", End::Done),
        end("replaced", End::Dead { error }),
    ];
    assert_eq!(store.finish(ends).await.unwrap(), [true; 3]);
    queue
        .schedule_or_replace(NewJob::new("replaced", HOUR, "new"))
        .await
        .unwrap();
    queue.schedule("waits", HOUR, "").await.unwrap();
    let before = list(queue, None).await;
    assert_eq!(before.len(), 5);
    assert_eq!(retry(queue, any()).await, (0, 1));
    assert_eq!(discard(queue, any()).await, (0, 1));
    assert_eq!(list(queue, None).await, before);
    // Who holds a job still does, and a key that is kept is still taken.
    let current = ["begun", "held"].map(|key| (key.to_owned(), tokens[key]));
    assert_eq!(
        store.are_current(current.to_vec()).await.unwrap(),
        [true, true]
    );
    assert!(store.finish(vec![end("begun", End::Done)]).await.unwrap()[0]);
    let taken = queue.schedule("kept", HOUR, "").await.unwrap();
    assert!(matches!(taken, Scheduled::Exists { .. }), "{taken:?}");
    for key in ["begun", "failed", "held", "kept", "replaced", "waits"] {
        queue.cancel(key).await.unwrap();
    }
    store.release(lease.node).await.unwrap();
    live(queue, 0).await;
}

/// An attempt that began before the job died ends late.
pub async fn a_former_attempt_does_not_end_a_retried_job<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let lease = store.register(LEASE).await.unwrap();
    let hold = async || {
        let held = store.hold(lease.node, Span::Due, "default", &Kinds::All, 10);
        let mut held = held.await.unwrap();
        assert_eq!(held.len(), 1, "{held:?}");
        held.remove(0).token
    };
    let start = |token| Start {
        key: "fenced".into(),
        token,
        wait: HOUR,
    };
    let finish = async |token, end| {
        let finish = Finish {
            key: "fenced".into(),
            token,
            end,
        };
        store.finish(vec![finish]).await.unwrap()[0]
    };
    let dead = || End::Dead {
        error: "bad".into(),
    };
    queue.schedule("fenced", Duration::ZERO, "").await.unwrap();
    let first = hold().await;
    assert_eq!(store.begin(vec![start(first)]).await.unwrap(), [yes(1)]);
    // It hangs, and somebody moves the job. The next attempt is the last one.
    queue.reschedule("fenced", Duration::ZERO).await.unwrap();
    let second = hold().await;
    assert_eq!(store.begin(vec![start(second)]).await.unwrap(), [yes(1)]);
    assert!(finish(second, dead()).await);
    assert_eq!(retry(queue, any()).await.0, 1);
    for token in [first, second] {
        for end in [End::Done, dead()] {
            assert!(!finish(token, end).await);
        }
        assert_eq!(store.begin(vec![start(token)]).await.unwrap(), [Begin::No]);
    }
    let job = queue.get("fenced").await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.attempts, job.error),
        (State::Waiting, 0, None)
    );
    let third = hold().await;
    assert!(third > second);
    assert_eq!(store.begin(vec![start(third)]).await.unwrap(), [yes(1)]);
    for token in [first, second] {
        assert!(!finish(token, End::Done).await);
    }
    // Nor does anybody else touch it while it runs.
    assert_eq!(
        retry(queue, any()).await.0 + discard(queue, any()).await.0,
        0
    );
    assert!(finish(third, End::Done).await);
    store.release(lease.node).await.unwrap();
    live(queue, 0).await;
}

/// The payload of an attempt that has ended, and whether the store took the job as done.
type Ran = (String, bool);

/// Clients add jobs that are done and others that die, and replace and cancel them, while dead jobs
/// are retried and discarded all the time. A good job never dies, so nobody but its own client may
/// touch it: it runs once, and the store takes its end.
pub async fn good_jobs_are_safe_from_those_who_retry_and_discard<S: Store>(queue: &Queue<S>) {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 24;
    let payloads: Arc<Mutex<HashMap<Token, String>>> = Arc::default();
    let of_handler = payloads.clone();
    let (senders, receivers): (Vec<_>, Vec<Told<Ran>>) =
        (0..CLIENTS).map(|_| unbounded_channel()).unzip();
    let node = Node::builder(queue.clone())
        .on_end(move |end| {
            let payload = payloads.lock().unwrap()[&end.token].clone();
            let is_done = end.accepted == Some(true) && matches!(end.end, End::Done);
            let number: usize = end.key.strip_prefix("job-").unwrap().parse().unwrap();
            let _ = senders[number].send((payload, is_done));
        })
        .start(move |attempt| {
            let payload = String::from_utf8(attempt.payload.clone()).unwrap();
            let is_good = payload.starts_with("good") && attempt.number == 1;
            of_handler.lock().unwrap().insert(attempt.token, payload);
            async move { is_good.then_some(()).ok_or_else(|| Failure::give_up("bad")) }
        });
    let client = async |(number, mut ran): (usize, Told<Ran>)| {
        let key = format!("job-{number}");
        let key = key.as_str();
        for round in 0..ROUNDS {
            let bad = format!("bad-{round}");
            let job = NewJob::new(key, Duration::ZERO, bad.as_str());
            queue.schedule_or_replace(job).await.unwrap();
            // It dies. Others retry or discard it at any time from here on.
            loop {
                let (payload, _) = ran.recv().await.unwrap();
                assert!(payload.starts_with("bad"), "{key}: {payload} ran twice");
                if payload == bad {
                    break;
                }
            }
            // So that some are dead for a while.
            if round % 4 == 1 {
                sleep(Duration::from_millis(10)).await;
            }
            let good = format!("good-{round}");
            let delay = [Duration::ZERO, SOON][round % 2];
            let job = NewJob::new(key, delay, good.as_str());
            if round % 3 == 0 {
                queue.cancel(key).await.unwrap();
                let made = queue.schedule_job(job).await.unwrap();
                assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
            } else {
                queue.schedule_or_replace(job).await.unwrap();
            }
            loop {
                let (payload, is_done) = ran.recv().await.unwrap();
                if payload == good {
                    assert!(is_done, "{key}: {payload} is not done");
                    break;
                }
            }
            assert_eq!(queue.cancel(key).await.unwrap(), Cancelled::NotFound);
        }
    };
    let mut clients: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|one| Box::pin(client(one)))
        .collect();
    let clients = std::future::poll_fn(|context| {
        clients.retain_mut(|one| one.as_mut().poll(context).is_pending());
        match clients.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    });
    let (mut retried, mut discarded) = (0, 0);
    let others = async {
        loop {
            for _ in 0..3 {
                retried += retry(queue, any()).await.0;
            }
            discarded += discard(queue, any()).await.0;
        }
    };
    soon("for the clients", or(clients, others)).await;
    assert!(retried > 0 && discarded > 0, "{retried} {discarded}");
    assert!(node.stop(PATIENCE).await);
    for job in list(queue, None).await {
        queue.cancel(job.key).await.unwrap();
    }
}
