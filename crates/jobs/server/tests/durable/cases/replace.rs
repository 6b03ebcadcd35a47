//! Jobs that take the place of others.

use std::time::Duration;

use tourbillon_jobs::{
    Backoff, Failure, NewJob, Queue, QueueError, Repeat, Time, When,
    job::State,
    node::Interrupt,
    queue::MAX_PAYLOAD,
    store::{Begin, Cancelled, End, Finish, Kinds, Replaced, Scheduled, Span, Start, Store},
};

use super::{SOON, quick};
use crate::support::{HOUR, PATIENCE, holds, live, node, waiting};

/// How long a lease of these tests is.
const LEASE: Duration = Duration::from_secs(600);

async fn replace<S: Store>(queue: &Queue<S>, job: NewJob) -> Replaced {
    queue.schedule_or_replace(job).await.unwrap()
}

pub async fn nothing_of_a_replaced_job_stays<S: Store>(queue: &Queue<S>) {
    let made = replace(queue, NewJob::new("key", HOUR, "first")).await;
    let Replaced::Created { at } = made else {
        panic!("{made:?}");
    };
    assert_eq!(queue.get("key").await.unwrap().unwrap().at, at);
    // Any job may take the place of any other one.
    let cron = Repeat::parse("0 9 1 1 *", "Europe/Paris").unwrap();
    let later = When::At(Time::from_micros(7_229_214_000_000_001));
    let other = NewJob::new("key", cron.clone(), "second").kind("mail");
    let other = other.queue("mails").priority(0);
    let third = NewJob::new("key", later, "").priority(9);
    for job in [other.clone(), third, other, NewJob::new("key", HOUR, "5")] {
        let (repeat, payload) = (job.when.repeat().cloned(), job.payload.clone());
        let (kind, name, priority) = (job.kind.clone(), job.queue.clone(), job.priority);
        let made = replace(queue, job).await;
        let Replaced::Replaced { at } = made else {
            panic!("{made:?}");
        };
        let found = queue.get("key").await.unwrap().unwrap();
        assert_eq!((found.at, found.due), (at, at));
        assert_eq!((found.payload, found.repeat), (payload, repeat));
        let lane = (found.kind, found.queue, found.priority);
        assert_eq!(lane, (kind, name, priority));
    }
    assert_eq!(queue.count().await.unwrap().live, 1);
    // `schedule` still leaves it alone.
    let again = queue.schedule("key", SOON, "").await.unwrap();
    assert!(matches!(again, Scheduled::Exists { .. }), "{again:?}");
    // What cannot be added replaces nothing.
    if let Ok(never) = Repeat::parse("0 0 30 2 *", "UTC") {
        let never = replace(queue, NewJob::new("key", never, "")).await;
        assert_eq!(never, Replaced::Never);
    }
    let large = NewJob::new("key", SOON, vec![0; MAX_PAYLOAD + 1]);
    let refused = queue.schedule_or_replace(large).await;
    assert!(
        matches!(refused, Err(QueueError::Payload(_))),
        "{refused:?}"
    );
    assert_eq!(queue.get("key").await.unwrap().unwrap().payload, b"5");
    assert_eq!(queue.cancel("key").await.unwrap(), Cancelled::Cancelled);
}

/// Jobs of one call of the store go in their order.
pub async fn the_last_job_of_a_key_stays<S: Store>(queue: &Queue<S>) {
    let jobs = (0..10).map(|n| NewJob::new(["even", "odd"][n % 2], HOUR, n.to_string()));
    let answers = queue.store().schedule_or_replace(jobs.collect()).await;
    for (number, answer) in answers.unwrap().into_iter().enumerate() {
        match answer {
            Replaced::Created { .. } => assert!(number < 2, "{number}"),
            Replaced::Replaced { .. } => assert!(number >= 2, "{number}"),
            other => panic!("{other:?}"),
        }
    }
    for (key, payload) in [("even", b"8"), ("odd", b"9")] {
        assert_eq!(queue.get(key).await.unwrap().unwrap().payload, payload);
        queue.cancel(key).await.unwrap();
    }
}

pub async fn a_node_runs_the_job_that_replaced_the_one_in_its_timer<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    let before = Duration::from_secs(60);
    queue.schedule("timer", before, "old").await.unwrap();
    holds(&node).await;
    let job = NewJob::new("timer", SOON, "new").priority(0);
    let made = replace(queue, job).await;
    let Replaced::Replaced { at } = made else {
        panic!("{made:?}");
    };
    let attempt = ran.recv().await.unwrap();
    assert_eq!((attempt.at, &attempt.payload[..]), (at, &b"new"[..]));
    assert!(queue.store().now() >= at);
    live(queue, 0).await;
    assert!(ran.try_recv().is_err());
    assert!(node.stop(PATIENCE).await);
}

/// The holder of a job has no power over the one that replaced it: its token is stale.
pub async fn the_token_of_a_replaced_job_is_stale<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let lease = store.register(LEASE).await.unwrap();
    let hold = async || {
        let held = store.hold(lease.node, Span::Due, "default", &Kinds::All, 10);
        let mut held = held.await.unwrap();
        assert_eq!(held.len(), 1, "{held:?}");
        held.remove(0)
    };
    let start = |token| Start {
        key: "fenced".into(),
        token,
        wait: HOUR,
    };
    let done = |token| Finish {
        key: "fenced".into(),
        token,
        end: End::Done,
    };
    queue.schedule("fenced", Duration::ZERO, "").await.unwrap();
    let first = hold().await.token;
    let job = NewJob::new("fenced", Duration::ZERO, "new");
    let made = replace(queue, job.clone()).await;
    assert!(matches!(made, Replaced::Replaced { .. }), "{made:?}");
    // The old holder begins nothing, ends nothing, and gives nothing back.
    assert_eq!(store.begin(vec![start(first)]).await.unwrap(), [Begin::No]);
    assert_eq!(store.finish(vec![done(first)]).await.unwrap(), [false]);
    let second = hold().await;
    assert!(second.token > first);
    store
        .give_back(vec![("fenced".into(), first)])
        .await
        .unwrap();
    assert_eq!(
        store
            .are_current(vec![
                ("fenced".into(), first),
                ("fenced".into(), second.token)
            ])
            .await
            .unwrap(),
        [false, true]
    );
    let begun = store.begin(vec![start(second.token)]).await.unwrap();
    let payload = b"new".to_vec();
    assert_eq!(begun, [Begin::Yes { number: 1, payload }]);
    // Now an attempt runs. Its end is refused, whatever it is, and the new job is as it was.
    let made = replace(queue, job).await;
    let Replaced::WhileRunning { at } = made else {
        panic!("{made:?}");
    };
    assert_eq!(
        store.finish(vec![done(second.token)]).await.unwrap(),
        [false]
    );
    let found = queue.get("fenced").await.unwrap().unwrap();
    assert_eq!((found.state, found.attempts), (State::Waiting, 0));
    assert_eq!((found.at, found.due), (at, at));
    let third = hold().await;
    assert!(third.token > second.token);
    assert_eq!(third.attempts, 0);
    queue.cancel("fenced").await.unwrap();
    store.release(lease.node).await.unwrap();
}

pub async fn a_job_that_is_replaced_while_it_runs_ends_without_effect<S: Store>(queue: &Queue<S>) {
    let fails = |_: &_| Err(Failure::retry("failed"));
    let (node, gate, mut ran, mut ends) = waiting(queue, |node| node, fails);
    queue.schedule("running", SOON, "old").await.unwrap();
    let first = ran.recv().await.unwrap();
    let made = replace(queue, NewJob::new("running", HOUR, "new")).await;
    assert!(matches!(made, Replaced::WhileRunning { .. }), "{made:?}");
    assert_eq!(first.interrupted().await, Interrupt::Cancelled);
    gate.add_permits(1);
    // It has failed, but the new job is not tried again for that.
    assert_eq!(ends.recv().await.unwrap().1, Some(false));
    let found = queue.get("running").await.unwrap().unwrap();
    assert_eq!((found.state, found.attempts), (State::Waiting, 0));
    assert_eq!((found.error, &found.payload[..]), (None, &b"new"[..]));
    queue.cancel("running").await.unwrap();
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_job_that_failed_or_died_is_replaced<S: Store>(queue: &Queue<S>) {
    let fails = |attempt: &tourbillon_jobs::Attempt| match &attempt.payload[..] {
        b"good" => Ok(()),
        _ => Err(Failure::retry("bad")),
    };
    let backoff = Backoff {
        first: HOUR,
        longest: HOUR,
        ..Backoff::default()
    };
    for backoff in [backoff, quick(1)] {
        let (node, mut ran) = node(queue, |node| node.backoff(backoff), fails);
        queue.schedule("bad", Duration::ZERO, "").await.unwrap();
        ran.recv().await.unwrap();
        while queue.get("bad").await.unwrap().unwrap().error.is_none() {
            tourbillon::time::sleep(Duration::from_millis(2)).await;
        }
        let made = replace(queue, NewJob::new("bad", Duration::ZERO, "good")).await;
        assert!(matches!(made, Replaced::Replaced { .. }), "{made:?}");
        assert_eq!(ran.recv().await.unwrap().number, 1);
        live(queue, 0).await;
        assert_eq!(queue.count().await.unwrap().dead, 0);
        assert!(node.stop(PATIENCE).await);
    }
}
