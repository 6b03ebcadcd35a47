//! What a node tells of its attempts: failures and metrics.

use std::time::Duration;

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, Failure, NewJob, Node, Queue, Time,
    node::{Cause, Failed, NodeMetrics},
    store::{Replaced, Store},
};

use super::quick;
use crate::support::{HOUR, PATIENCE, live, new, soon, unbounded_channel, waiting};

/// A failure without its token and its times.
type Known = (String, u32, bool, Cause, String);

fn known(failed: &Failed) -> Known {
    (
        failed.key.clone(),
        failed.number,
        failed.is_final,
        failed.cause,
        failed.error.clone(),
    )
}

async fn handle(attempt: Attempt) -> Result<(), Failure> {
    match attempt.key.as_str() {
        "fails" => Err(Failure::retry("on purpose")),
        "gives up" => Err(Failure::give_up("for good")),
        "panics" => panic!("a bomb"),
        "hangs" => {
            sleep(HOUR).await;
            Ok(())
        }
        "snoozes" if attempt.number == 1 && attempt.at == attempt.due => {
            Err(Failure::snooze(Duration::from_millis(1)))
        }
        _ => Ok(()),
    }
}

pub async fn each_failure_is_told<S: Store>(queue: &Queue<S>) {
    const LIMIT: Duration = Duration::from_millis(20);
    let (sender, mut told) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .backoff(quick(2))
        .attempt_timeout(LIMIT)
        .queue("mails", 10)
        .on_error(move |failed| {
            let _ = sender.send(failed.clone());
        })
        .on_kind("work", handle)
        .start_kinds();
    // The kinds of its handlers have their counters before the first attempt.
    assert_eq!(node.metrics().kinds.len(), 1);
    let keys = ["fails", "gives up", "hangs", "panics", "snoozes", "works"];
    for key in keys {
        let job = new(key, Duration::ZERO).kind("work").queue("mails");
        queue.schedule_job(job).await.unwrap();
    }
    live(queue, 0).await;
    let reader = node.metrics_reader();
    assert!(node.stop(PATIENCE).await);
    // 1. Each attempt that failed is told once, and no other one.
    let mut failures = Vec::new();
    while let Some(failed) = told.recv().await {
        assert_eq!((&*failed.kind, &*failed.queue), ("work", "mails"));
        let took = failed.duration.unwrap();
        assert!(
            failed.cause != Cause::TimeLimit || took >= LIMIT,
            "{took:?}"
        );
        failures.push(failed);
    }
    failures.sort_by_key(|failed| (failed.key.clone(), failed.number));
    let of = |key: &str, number, is_final, cause, error: &str| -> Known {
        (key.to_owned(), number, is_final, cause, error.to_owned())
    };
    let late = "it took longer than 20ms";
    let bomb = "the handler panicked: a bomb";
    let expected = [
        of("fails", 1, false, Cause::Error, "on purpose"),
        of("fails", 2, true, Cause::Error, "on purpose"),
        of("gives up", 1, true, Cause::Error, "for good"),
        of("hangs", 1, false, Cause::TimeLimit, late),
        of("hangs", 2, true, Cause::TimeLimit, late),
        of("panics", 1, false, Cause::Panic, bomb),
        of("panics", 2, true, Cause::Panic, bomb),
    ];
    assert_eq!(failures.iter().map(known).collect::<Vec<_>>(), expected);
    assert!(failures[0].token < failures[1].token && failures[0].due == failures[1].due);
    // 2. They are counted in the one queue and kind.
    let metrics = reader.read();
    let [work] = &metrics.kinds[..] else {
        panic!("{metrics:?}");
    };
    assert_eq!(
        (&*work.queue, work.kind.as_deref()),
        ("mails", Some("work"))
    );
    let counted = [work.begun, work.done, work.snoozed, work.failed, work.dead];
    assert_eq!(counted, [10, 2, 1, 7, 4]);
    assert_eq!((work.panicked, work.timed_out), (2, 2));
    assert_eq!((work.running, work.stale), (0, 0));
    assert_eq!((work.lateness.count(), work.duration.count()), (10, 10));
    assert!(work.duration.sum() >= 2 * LIMIT, "{:?}", work.duration);
    let total = metrics.total;
    assert_eq!([total.failed, total.panics, total.untold], [7, 0, 0]);
    assert_eq!(total.leases, total.leases_lost + 1);
    // 3. So are the requests.
    let store = &metrics.store;
    assert!(store.is_up && !store.has_lease, "{store:?}");
    let requests = |name: &str| {
        let mut requests = store.requests.iter().filter(|it| it.name == name);
        requests.next().unwrap().duration.count()
    };
    assert!(requests("register") > 0 && requests("hold") > 0);
    assert!(requests("begin") > 0 && requests("finish") > 0);
    for key in keys {
        queue.cancel(key).await.unwrap();
    }
}

pub async fn an_attempt_that_never_ended_is_told<S: Store>(queue: &Queue<S>) {
    queue.schedule("lost", Duration::ZERO, "").await.unwrap();
    let begun = super::attempts::begin_and_end(queue, "lost", Duration::ZERO).await;
    assert_eq!(begun, crate::support::yes(1));
    let (sender, mut told) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .backoff(quick(1))
        .on_error(move |failed| {
            let _ = sender.send(failed.clone());
        })
        .start(|_| async { Ok(()) });
    let failed = told.recv().await.unwrap();
    assert_eq!((&*failed.key, failed.cause), ("lost", Cause::CutOff));
    assert_eq!((failed.number, failed.is_final), (1, true));
    assert_eq!(failed.duration, None);
    live(queue, 0).await;
    let reader = node.metrics_reader();
    assert!(node.stop(PATIENCE).await);
    let kind = &reader.read().kinds[0];
    assert_eq!((kind.begun, kind.dead), (0, 1));
    queue.cancel("lost").await.unwrap();
}

pub async fn times_of_attempts_are_measured<S: Store>(queue: &Queue<S>) {
    const LATE: i64 = 3_000_000;
    const TAKES: Duration = Duration::from_millis(30);
    let node = Node::builder(queue.clone()).start(|_| async {
        sleep(TAKES).await;
        Ok(())
    });
    let now = queue.store().now();
    // Whoever adds it has waited for so long, say.
    let at = Time::from_micros(now.as_micros() - LATE);
    queue
        .schedule_job(NewJob::new("late", at, ""))
        .await
        .unwrap();
    live(queue, 0).await;
    let kind = node.metrics().kinds.remove(0);
    assert_eq!((&*kind.queue, kind.kind.as_deref()), ("default", Some("")));
    // The store's clock is known up to some milliseconds.
    let least = Duration::from_millis(2500);
    assert!((least..HOUR).contains(&kind.lateness.sum()), "{kind:?}");
    assert!((TAKES..HOUR).contains(&kind.duration.sum()), "{kind:?}");
    let within_a_second = kind.lateness.buckets();
    let mut within_a_second = within_a_second.filter(|it| it.0 == Duration::from_secs(1));
    assert_eq!(within_a_second.next().unwrap().1, 0);
    assert!(node.stop(PATIENCE).await);
}

pub async fn an_attempt_that_is_replaced_is_counted<S: Store>(queue: &Queue<S>) {
    let before = queue.stats();
    let (node, gate, mut begins, mut ends) =
        waiting(queue, |node| node, |_| Err(Failure::give_up("on purpose")));
    queue.schedule("job", Duration::ZERO, "").await.unwrap();
    begins.recv().await.unwrap();
    let running = |metrics: NodeMetrics| metrics.kinds[0].running;
    assert_eq!(running(node.metrics()), 1);
    queue.schedule("job", HOUR, "").await.unwrap();
    let replaced = queue.schedule_or_replace(new("job", HOUR)).await.unwrap();
    assert!(matches!(replaced, Replaced::WhileRunning { .. }));
    let replaced = queue.schedule_or_replace(new("job", 2 * HOUR)).await;
    assert!(matches!(replaced, Ok(Replaced::Replaced { .. })));
    soon("for the node to learn of it", async {
        while node.stats().cancelled == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    gate.add_permits(1);
    assert_eq!(ends.recv().await.unwrap().1, Some(false));
    queue.reschedule("job", 3 * HOUR).await.unwrap();
    queue.cancel("job").await.unwrap();
    queue.cancel("job").await.unwrap();
    assert!(queue.cancel("").await.is_err());
    let metrics = node.metrics();
    assert_eq!((metrics.kinds[0].stale, metrics.total.stale), (1, 1));
    // The job is not dead, as the end was refused.
    assert_eq!((metrics.kinds[0].dead, metrics.total.dead), (0, 0));
    assert_eq!(running(metrics), 0);
    let after = queue.stats();
    assert_eq!(after.created - before.created, 1);
    assert_eq!(after.existing - before.existing, 1);
    assert_eq!(after.replaced_running - before.replaced_running, 1);
    assert_eq!(after.replaced - before.replaced, 1);
    assert_eq!(after.moved - before.moved, 1);
    assert_eq!(after.cancelled - before.cancelled, 1);
    assert_eq!(after.missing - before.missing, 1);
    assert_eq!(after.failed, before.failed);
    assert!(node.stop(PATIENCE).await);
}
