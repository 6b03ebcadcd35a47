//! Jobs that carry a trace context.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, Failure, NewJob, Queue, QueueError, Repeat, Time,
    node::NodeBuilder,
    store::{Listing, Replaced, Scheduled, Store},
};

use super::quick;
use crate::{
    support::{HOUR, PATIENCE, Told, live, new, node, soon},
    trace::{OTHER, TRACE},
};

/// Whether an attempt failed or ended, the key of its job, and its trace context.
type Report = (&'static str, String, Option<String>);

/// Returns an end for each attempt: the first one of an occurrence fails, the second one snoozes,
/// and the third one is the last.
fn ends() -> impl Fn(&Attempt) -> Result<(), Failure> + Send + Sync + 'static {
    let counts: Mutex<HashMap<(String, Time), u32>> = Mutex::default();
    move |attempt| {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry((attempt.key.clone(), attempt.due));
        let count = count.or_default();
        *count += 1;
        match *count {
            1 => Err(Failure::retry("on purpose")),
            2 => Err(Failure::snooze(Duration::from_millis(1))),
            _ => Ok(()),
        }
    }
}

/// Returns the next attempt of a job.
async fn next(ran: &mut Told<Attempt>, key: &str) -> Attempt {
    loop {
        let attempt = ran.recv().await.unwrap();
        if attempt.key == key {
            return attempt;
        }
    }
}

pub async fn a_job_carries_its_traceparent<S: Store>(queue: &Queue<S>) {
    let trace = async |key: &str| queue.get(key).await.unwrap().unwrap().traceparent;
    let job = |key: &str| new(key, HOUR).traceparent(TRACE);
    for key in ["moved", "replaced", "renewed"] {
        queue.schedule_job(job(key)).await.unwrap();
        assert_eq!(trace(key).await.as_deref(), Some(TRACE));
    }
    let listing = Listing {
        limit: 10,
        ..Listing::default()
    };
    let listed = queue.list(listing).await.unwrap();
    assert_eq!(listed.len(), 3);
    for job in listed {
        assert_eq!(job.traceparent.as_deref(), Some(TRACE), "{}", job.key);
    }
    // Nothing of a job that is replaced stays.
    let replaced = [
        new("replaced", HOUR),
        new("renewed", HOUR).traceparent(OTHER),
    ];
    for job in replaced {
        let replaced = queue.schedule_or_replace(job).await.unwrap();
        assert!(matches!(replaced, Replaced::Replaced { .. }));
    }
    // One that is there already keeps its own.
    queue.schedule_job(new("moved", HOUR)).await.unwrap();
    queue.schedule_job(job("replaced")).await.unwrap();
    // Each attempt of an occurrence has it, and so has the next occurrence.
    let each = Repeat::parse("* * * * * *", "UTC").unwrap();
    let cron = new("cron", each).traceparent(OTHER);
    queue.schedule_job(cron).await.unwrap();
    let told: Arc<Mutex<BTreeSet<Report>>> = Arc::default();
    let (failures, all) = (told.clone(), told.clone());
    let tells = |node: NodeBuilder<S>| {
        node.backoff(quick(3))
            .on_error(move |failed| {
                let (key, trace) = (failed.key.clone(), failed.traceparent.clone());
                failures.lock().unwrap().insert(("failed", key, trace));
            })
            .on_end(move |ended| {
                let (key, trace) = (ended.key.clone(), ended.traceparent.clone());
                all.lock().unwrap().insert(("ended", key, trace));
            })
    };
    let (node, mut ran) = node(queue, tells, ends());
    let mut occurrences = BTreeSet::new();
    let mut attempts = 0;
    while occurrences.len() < 2 {
        let attempt = next(&mut ran, "cron").await;
        assert_eq!(attempt.traceparent.as_deref(), Some(OTHER));
        assert!(attempt.repeats);
        occurrences.insert(attempt.due);
        attempts += 1;
    }
    assert!(attempts > 3, "{attempts}");
    queue.cancel("cron").await.unwrap();
    let expected = [
        ("moved", Some(TRACE)),
        ("replaced", None),
        ("renewed", Some(OTHER)),
    ];
    for (key, expected) in expected {
        queue.reschedule(key, Duration::ZERO).await.unwrap();
        for _ in 0..3 {
            let attempt = next(&mut ran, key).await;
            assert_eq!(attempt.traceparent.as_deref(), expected, "{key}");
            assert!(!attempt.repeats);
        }
    }
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
    // Those who report failures and ends have it, too.
    let mut reports = BTreeSet::new();
    for what in ["ended", "failed"] {
        for (key, trace) in [("cron", Some(OTHER))].into_iter().chain(expected) {
            reports.insert((what, key.to_owned(), trace.map(str::to_owned)));
        }
    }
    assert_eq!(*told.lock().unwrap(), reports);
    let bad = new("bad", HOUR).traceparent(TRACE.replace('4', "g"));
    let refused = queue.schedule_job(bad).await.unwrap_err();
    assert!(matches!(refused, QueueError::Traceparent), "{refused}");
}

pub async fn a_job_that_is_done_leaves_no_traceparent<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    let job = |time| NewJob::new("kept", Duration::ZERO, "").unique_for(time);
    let first = job(Duration::from_millis(1)).traceparent(TRACE);
    queue.schedule_job(first).await.unwrap();
    let traceparent = next(&mut ran, "kept").await.traceparent;
    assert_eq!(traceparent.as_deref(), Some(TRACE));
    live(queue, 0).await;
    // The next job of the key has none, whether the key is free by itself or the job replaces it.
    let free = async {
        while let Scheduled::Exists { .. } = queue.schedule_job(job(HOUR)).await.unwrap() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon("for a key to be free", free).await;
    assert_eq!(next(&mut ran, "kept").await.traceparent, None);
    live(queue, 0).await;
    let replaces = job(HOUR).traceparent(OTHER);
    queue.schedule_or_replace(replaces).await.unwrap();
    let traceparent = next(&mut ran, "kept").await.traceparent;
    assert_eq!(traceparent.as_deref(), Some(OTHER));
    live(queue, 0).await;
    queue.schedule_or_replace(job(HOUR)).await.unwrap();
    assert_eq!(next(&mut ran, "kept").await.traceparent, None);
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
    queue.cancel("kept").await.unwrap();
}
