//! Jobs that are in queues.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_lite::future::zip;
use tokio::sync::Semaphore;
use tourbillon::time::sleep;
use tourbillon_jobs::{
    Attempt, NewJob, Node, Queue, QueueError, Time,
    queue::MAX_QUEUE,
    store::{Begin, Kinds, Listing, Span, Store},
};

use super::SOON;
use crate::support::{HOUR, PATIENCE, live, node, start, unbounded_channel, waiting, yes};

/// Adds a job to a queue.
async fn add<S: Store>(queue: &Queue<S>, key: &str, name: &str, at: Duration) {
    let job = NewJob::new(key, at, "").queue(name);
    queue.schedule_job(job).await.unwrap();
}

pub async fn a_node_runs_jobs_of_its_queues<S: Store>(queue: &Queue<S>) {
    let all = [
        ("a", "mails"),
        ("b", "images"),
        ("c", "default"),
        ("d", "f\u{fc}r: x"),
    ];
    for (key, name) in all {
        // A kind and a queue of the same name have nothing to do with each other.
        let job = NewJob::new(key, Time::from_micros(1), "").queue(name);
        queue.schedule_job(job.kind("mails")).await.unwrap();
        assert_eq!(queue.get(key).await.unwrap().unwrap().queue, name);
        let listing = Listing {
            queue: Some(name.into()),
            limit: 10,
            ..Listing::default()
        };
        let listed = queue.list(listing).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|job| (&*job.key, &*job.queue)).collect();
        assert_eq!(listed, [(key, name)]);
    }
    // A look is for one queue, whatever the kinds are.
    let store = queue.store();
    let lease = store.register(HOUR).await.unwrap().node;
    let both = Kinds::only(["mails", ""]);
    for kinds in [Kinds::All, Kinds::only(["mails"]), both] {
        let mut tokens = Vec::new();
        for (key, name) in all {
            let held = store.hold(lease, Span::Due, name, &kinds, 10).await;
            let held = held.unwrap();
            let found: Vec<_> = held.iter().map(|job| (&*job.key, &*job.queue)).collect();
            assert_eq!(found, [(key, name)]);
            tokens.extend(held.into_iter().map(|job| (job.key, job.token)));
            assert!(!store.skipped(Span::Due, name, &kinds).await.unwrap());
        }
        let none = store.hold(lease, Span::Due, "none", &kinds, 10).await;
        assert!(none.unwrap().is_empty());
        store.give_back(tokens).await.unwrap();
    }
    store.release(lease).await.unwrap();

    let (sender, mut ran) = unbounded_channel();
    let handler = move |attempt: Attempt| {
        let _ = sender.send((attempt.key, attempt.queue));
        async { Ok(()) }
    };
    let two = Node::builder(queue.clone())
        .queue("mails", 1)
        .queue("f\u{fc}r: x", 100)
        .window(24 * HOUR)
        .on_other(handler.clone())
        .start_kinds();
    let mut keys = [ran.recv().await.unwrap(), ran.recv().await.unwrap()];
    keys.sort();
    let expected = [("a", "mails"), ("d", "f\u{fc}r: x")];
    assert_eq!(keys, expected.map(|(key, name)| (key.into(), name.into())));
    live(queue, 2).await;
    // It learns of another one at once. A node without a queue has the default one.
    add(queue, "e", "mails", Duration::ZERO).await;
    assert_eq!(ran.recv().await.unwrap().0, "e");
    live(queue, 2).await;
    let default = Node::builder(queue.clone()).on_other(handler).start_kinds();
    assert_eq!(ran.recv().await.unwrap().0, "c");
    live(queue, 1).await;
    assert!(two.stop(PATIENCE).await && default.stop(PATIENCE).await);
    queue.cancel("b").await.unwrap();
    for name in [String::new(), "q".repeat(MAX_QUEUE + 1), "a\nb".into()] {
        let job = NewJob::new("job", HOUR, "").queue(name);
        let refused = queue.schedule_job(job).await;
        assert!(matches!(refused, Err(QueueError::Queue)), "{refused:?}");
    }
}

pub async fn a_queue_lets_as_many_run_as_it_may<S: Store>(queue: &Queue<S>) {
    let (gated, gate, mut begins, _) = waiting(
        queue,
        |node| node.concurrency(5).queue("mails", 2).queue("default", 10),
        |_| Ok(()),
    );
    // Those of the full queue have a higher priority, and come to be due in the timers all the
    // time. They keep the others from nothing.
    let have_begun = AtomicBool::new(false);
    let mails = async {
        for first in (0..).step_by(20) {
            if have_begun.load(Ordering::SeqCst) {
                break;
            }
            let job = |number| NewJob::new(format!("mail-{number}"), SOON, "");
            let mails = (first..first + 20).map(|number| job(number).queue("mails").priority(0));
            queue.store().schedule(mails.collect()).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    let others = async {
        for _ in 0..2 {
            assert_eq!(begins.recv().await.unwrap().queue, "mails");
        }
        // Some are due and wait.
        sleep(SOON).await;
        for number in 0..3 {
            add(queue, &format!("other-{number}"), "default", Duration::ZERO).await;
        }
        for _ in 0..3 {
            assert_eq!(begins.recv().await.unwrap().queue, "default");
        }
        have_begun.store(true, Ordering::SeqCst);
    };
    zip(others, mails).await;
    assert_eq!(gated.stats().begun, 5);
    gate.add_permits(Semaphore::MAX_PERMITS);
    live(queue, 0).await;
    assert!(gated.stop(PATIENCE).await);

    // While they end, too, no more of them run.
    let running = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let most = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (now, seen) = (running, most.clone());
    let node = Node::builder(queue.clone())
        .queue("mails", 2)
        .queue("default", 4)
        .start(move |attempt: Attempt| {
            let (now, seen) = (now.clone(), seen.clone());
            async move {
                let place = usize::from(attempt.queue == "default");
                let count = now[place].fetch_add(1, Ordering::SeqCst) + 1;
                seen[place].fetch_max(count, Ordering::SeqCst);
                sleep(Duration::from_millis(3)).await;
                now[place].fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
    for number in 0..60 {
        let name = ["mails", "default"][number % 2];
        let at = [Duration::ZERO, SOON][number / 2 % 2];
        add(queue, &format!("job-{number}"), name, at).await;
    }
    live(queue, 0).await;
    let most = most.each_ref().map(|most| most.load(Ordering::SeqCst));
    assert!(most[0] <= 2 && most[1] <= 4, "{most:?}");
    assert!(node.stop(PATIENCE).await);
}

pub async fn a_full_queue_leaves_its_jobs_to_other_nodes<S: Store>(queue: &Queue<S>) {
    let (full, gate, mut begins, _) = waiting(
        queue,
        |node| node.queue("mails", 1).queue("default", 10),
        |_| Ok(()),
    );
    // They come to be due in its timers.
    for number in 0..5 {
        add(queue, &format!("mail-{number}"), "mails", SOON).await;
    }
    assert_eq!(begins.recv().await.unwrap().queue, "mails");
    let (other, mut ran) = node(queue, |node| node.queue("mails", 10), |_| Ok(()));
    for _ in 0..4 {
        ran.recv().await.unwrap();
    }
    live(queue, 1).await;
    assert_eq!(full.stats().begun, 1);
    gate.add_permits(1);
    live(queue, 0).await;
    assert!(full.stop(PATIENCE).await && other.stop(PATIENCE).await);
}

pub async fn nothing_of_a_paused_queue_begins<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    let kinds = [Kinds::All, Kinds::only([""]), Kinds::only(["", "none"])];
    for (key, name) in [("held", "mails"), ("free", "mails"), ("other", "default")] {
        add(queue, key, name, Duration::ZERO).await;
    }
    let lease = store.register(HOUR).await.unwrap().node;
    let mut held = store.hold(lease, Span::Due, "mails", &Kinds::All, 1).await;
    let held = held.as_mut().unwrap().pop().unwrap();
    for _ in 0..2 {
        queue.pause("mails").await.unwrap();
        assert_eq!(queue.paused().await.unwrap(), ["mails"]);
    }
    // What a node holds does not begin, and no node becomes the holder of another one.
    let begin = start(&held.key, held.token);
    let begun = async || store.begin(vec![begin.clone()]).await.unwrap();
    assert_eq!(begun().await, [Begin::Paused]);
    for kinds in &kinds {
        for span in [Span::Due, Span::Above(9), Span::Within(HOUR)] {
            let none = store.hold(lease, span, "mails", kinds, 10).await.unwrap();
            assert!(none.is_empty(), "{none:?}");
            assert!(!store.skipped(span, "mails", kinds).await.unwrap());
        }
    }
    let other = store
        .hold(lease, Span::Due, "default", &Kinds::All, 10)
        .await;
    assert_eq!(other.unwrap()[0].key, "other");
    // It is a pause of this queue alone, and of all its kinds.
    for _ in 0..2 {
        queue.resume("mails").await.unwrap();
        assert!(queue.paused().await.unwrap().is_empty());
    }
    assert_eq!(begun().await, [yes(1)]);
    let free = store.hold(lease, Span::Due, "mails", &kinds[1], 10).await;
    assert_eq!(free.unwrap().len(), 1);
    store.release(lease).await.unwrap();
    for key in ["held", "free", "other"] {
        queue.cancel(key).await.unwrap();
    }
    for name in [String::new(), "q".repeat(MAX_QUEUE + 1), "a\nb".into()] {
        let refused = queue.pause(name).await;
        assert!(matches!(refused, Err(QueueError::Queue)), "{refused:?}");
    }
}

pub async fn a_node_leaves_a_queue_alone_while_it_is_paused<S: Store>(queue: &Queue<S>) {
    let (node, gate, mut begins, mut ends) = waiting(
        queue,
        |node| {
            let node = node.window(24 * HOUR);
            node.queue("mails", 10).queue("default", 10)
        },
        |_| Ok(()),
    );
    // One job runs, and another one waits in a timer of the node, unless the pause takes too long.
    let mut delay = 10 * SOON;
    loop {
        add(queue, "runs", "mails", Duration::ZERO).await;
        assert_eq!(begins.recv().await.unwrap().key, "runs");
        add(queue, "timer", "mails", delay).await;
        queue.pause("mails").await.unwrap();
        if queue.get("timer").await.unwrap().unwrap().attempts == 0 {
            break;
        }
        queue.resume("mails").await.unwrap();
        assert_eq!(begins.recv().await.unwrap().key, "timer");
        gate.add_permits(2);
        for _ in 0..2 {
            ends.recv().await.unwrap();
        }
        live(queue, 0).await;
        delay *= 2;
    }
    add(queue, "due", "mails", Duration::ZERO).await;
    // What runs goes on, and jobs of another queue are not kept waiting.
    gate.add_permits(1);
    assert_eq!(ends.recv().await.unwrap(), ("runs".into(), Some(true)));
    add(queue, "other", "default", 2 * delay).await;
    assert_eq!(begins.recv().await.unwrap().key, "other");
    // The node gives back what it held. It learns of the end of the pause, as it would look by
    // itself after five minutes.
    queue.resume("mails").await.unwrap();
    let mut keys = [(); 2].map(|()| String::new());
    for key in &mut keys {
        *key = begins.recv().await.unwrap().key;
    }
    keys.sort();
    assert_eq!(keys, ["due", "timer"]);
    gate.add_permits(3);
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}
