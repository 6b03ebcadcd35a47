//! Jobs that have kinds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, Failure, JobArgs, NewJob, Node, Queue, QueueError, Repeat, Time,
    job::State,
    queue::MAX_KIND,
    store::{Kinds, Listing, Scheduled, Span, Store},
};

use super::quick;
use crate::support::{HOUR, PATIENCE, live, node, unbounded_channel};

/// Adds a job of a kind that is due now.
async fn add<S: Store>(queue: &Queue<S>, key: &str, kind: &str) {
    let job = NewJob::new(key, Duration::ZERO, "").kind(kind);
    queue.schedule_job(job).await.unwrap();
}

/// Returns a listing of jobs of a kind.
fn of_kind(kind: &str) -> Listing {
    Listing {
        kind: Some(kind.into()),
        limit: 10,
        ..Listing::default()
    }
}

pub async fn a_node_runs_jobs_of_its_kinds<S: Store>(queue: &Queue<S>) {
    for (key, kind) in [("a", "mail"), ("b", "image"), ("c", ""), ("d", "f\u{fc}r")] {
        add(queue, key, kind).await;
        assert_eq!(queue.get(key).await.unwrap().unwrap().kind, kind);
        let listed = queue.list(of_kind(kind)).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|job| (&*job.key, &*job.kind)).collect();
        assert_eq!(listed, [(key, kind)]);
    }
    let (sender, mut ran) = unbounded_channel();
    let handler = move |attempt: Attempt| {
        let _ = sender.send(attempt);
        async { Ok(()) }
    };
    let start = |node: tourbillon_jobs::node::NodeBuilder<S>| node.window(24 * HOUR);
    let mail = start(Node::builder(queue.clone()))
        .on_kind("mail", handler.clone())
        .on_kind("f\u{fc}r", handler.clone())
        .start_kinds();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let attempt = ran.recv().await.unwrap();
        keys.push((attempt.key, attempt.kind));
    }
    keys.sort();
    let expected = [("a", "mail"), ("d", "f\u{fc}r")];
    assert_eq!(keys, expected.map(|(key, kind)| (key.into(), kind.into())));
    live(queue, 2).await;
    // A node without kinds runs jobs without a kind, and leaves the others.
    let none = start(Node::builder(queue.clone())).start(handler.clone());
    assert_eq!(ran.recv().await.unwrap().key, "c");
    live(queue, 1).await;
    assert_eq!(queue.get("b").await.unwrap().unwrap().state, State::Waiting);
    // A node with a handler for the others runs all.
    let other = start(Node::builder(queue.clone()))
        .on_other(handler)
        .start_kinds();
    assert_eq!(ran.recv().await.unwrap().kind, "image");
    live(queue, 0).await;
    // It learns of the first job of a kind at once, although it has looked for all others.
    add(queue, "first", "new kind").await;
    assert_eq!(ran.recv().await.unwrap().key, "first");
    live(queue, 0).await;
    for node in [mail, none, other] {
        assert!(node.stop(PATIENCE).await);
    }
}

pub async fn a_job_keeps_its_kind<S: Store>(queue: &Queue<S>) {
    // Attempts that fail, a move, a death, a revival, and another occurrence.
    let (sender, mut ran) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .backoff(quick(2))
        .on_kind("mail", move |attempt| {
            let ends = match (attempt.due, attempt.key.as_str()) {
                (_, "cron") => Ok(()),
                (due, _) if due < Time::from_micros(2) => Err(Failure::retry("on purpose")),
                _ => Ok(()),
            };
            let _ = sender.send(attempt.key);
            async { ends }
        })
        .start_kinds();
    let job = NewJob::new("dies", Time::from_micros(1), "").kind("mail");
    queue.schedule_job(job).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ran.recv().await.unwrap(), "dies");
    }
    while queue.count().await.unwrap().dead == 0 {
        sleep(Duration::from_millis(2)).await;
    }
    let dead = queue.get("dies").await.unwrap().unwrap();
    assert_eq!((dead.state, &*dead.kind), (State::Dead, "mail"));
    queue.reschedule("dies", HOUR).await.unwrap();
    queue.reschedule("dies", Duration::ZERO).await.unwrap();
    assert_eq!(ran.recv().await.unwrap(), "dies");
    live(queue, 0).await;
    let each = Repeat::parse("* * * * * *", "UTC").unwrap();
    let job = NewJob::new("cron", each, "").kind("mail");
    queue.schedule_job(job).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ran.recv().await.unwrap(), "cron");
    }
    queue.cancel("cron").await.unwrap();
    assert!(node.stop(PATIENCE).await);
    assert_eq!(queue.count().await.unwrap().live, 0);
}

pub async fn jobs_of_a_kind_wait_for_no_other_kind<S: Store>(queue: &Queue<S>) {
    // The backlog of a kind that no node has is earlier than the job.
    let at = Time::from_micros(1_000_000);
    for number in 0..200 {
        let job = NewJob::new(format!("old-{number}"), at, "").kind("image");
        queue.schedule_job(job).await.unwrap();
    }
    let (none, mut ran) = node(queue, |node| node.most_held(4), |_| Ok(()));
    add(queue, "job", "").await;
    assert_eq!(ran.recv().await.unwrap().key, "job");
    assert!(none.stop(PATIENCE).await);
    live(queue, 200).await;

    // A node of both kinds takes the kind with the earliest job first.
    let (store, later) = (queue.store(), Time::from_micros(2_000_000));
    let lease = store.register(HOUR).await.unwrap().node;
    for (key, at) in [("mail-1", Time::from_micros(1)), ("mail-2", later)] {
        let job = NewJob::new(key, at, "").kind("mail");
        queue.schedule_job(job).await.unwrap();
    }
    let both = Kinds::only(["mail", "image", "none"]);
    // A look in PostgreSQL may have the kinds in another order now and then.
    let mut first = 0;
    for _ in 0..20 {
        let held = store
            .hold(lease, Span::Due, "default", &both, 1)
            .await
            .unwrap();
        first += usize::from(held[0].key == "mail-1");
        let held = held.into_iter().map(|job| (job.key, job.token));
        store.give_back(held.collect()).await.unwrap();
    }
    assert!(first > 9, "{first}");
    let mut keys = Vec::new();
    for (kinds, count) in [(&both, 101), (&Kinds::All, 101), (&both, 0)] {
        let held = store
            .hold(lease, Span::Due, "default", kinds, 101)
            .await
            .unwrap();
        assert_eq!(held.len(), count);
        keys.extend(held.into_iter().map(|job| (job.kind, job.key)));
    }
    assert!(
        keys.iter()
            .all(|(kind, key)| (kind == "mail") == key.starts_with("mail"))
    );
    let images = Kinds::only(["image"]);
    assert!(
        store
            .hold(lease, Span::Due, "default", &images, 1)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!store.skipped(Span::Due, "default", &images).await.unwrap());
    store.release(lease).await.unwrap();
    // They are free again, each as one of its kind: after a release, and when they are given back.
    let lease = store.register(HOUR).await.unwrap().node;
    let mail = Kinds::only(["mail"]);
    for _ in 0..2 {
        let held = store
            .hold(lease, Span::Due, "default", &mail, 10)
            .await
            .unwrap();
        assert_eq!(held.len(), 2);
        let held = held.into_iter().map(|job| (job.key, job.token));
        store.give_back(held.collect()).await.unwrap();
    }
    store.release(lease).await.unwrap();
    for (_, key) in keys {
        queue.cancel(key).await.unwrap();
    }
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

impl JobArgs for Mail {
    const KIND: &'static str = "mail";
}

pub async fn a_handler_gets_its_arguments<S: Store>(queue: &Queue<S>) {
    let (sender, mut ran) = unbounded_channel();
    let node = Node::builder(queue.clone())
        .on(move |mail: Mail, attempt: Attempt| {
            let _ = sender.send((mail.to, attempt.kind));
            async { Ok(()) }
        })
        .start_kinds();
    let mail = Mail {
        to: "j\u{fc}rg@example.org".into(),
    };
    queue
        .schedule_args("m", Duration::ZERO, &mail)
        .await
        .unwrap();
    let expected = (mail.to.clone(), "mail".to_owned());
    assert_eq!(ran.recv().await.unwrap(), expected);
    live(queue, 0).await;
    // Such a job may have what others may have.
    let job = NewJob::with_args("m", Duration::ZERO, &mail).unwrap();
    queue.schedule_job(job.unique_for(HOUR)).await.unwrap();
    assert_eq!(ran.recv().await.unwrap(), expected);
    live(queue, 0).await;
    let again = queue.schedule_args("m", Duration::ZERO, &mail).await;
    assert!(matches!(again, Ok(Scheduled::Exists { .. })), "{again:?}");
    queue.cancel("m").await.unwrap();
    // What has other arguments dies at once, and says why.
    let job = NewJob::new("bad", Duration::ZERO, r#"{"from": "ann"}"#).kind("mail");
    queue.schedule_job(job).await.unwrap();
    live(queue, 0).await;
    let dead = queue.get("bad").await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts), (State::Dead, 1));
    let error = dead.error.unwrap();
    assert!(
        error.contains("`mail`") && error.contains("`to`"),
        "{error}"
    );
    queue.cancel("bad").await.unwrap();
    for kind in ["k".repeat(MAX_KIND + 1), "a\nb".into()] {
        let job = NewJob::new("job", HOUR, "").kind(kind);
        let refused = queue.schedule_job(job).await;
        assert!(matches!(refused, Err(QueueError::Kind)), "{refused:?}");
    }
    assert!(node.stop(PATIENCE).await);
}
