//! What each store has to do. `embedded.rs` and `postgres.rs` call these.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{
    Semaphore,
    mpsc::{UnboundedReceiver, unbounded_channel},
};
use tourbillon::time::{sleep, timeout};
use tourbillon_durable::{
    Attempt, Backoff, Failure, Node, Queue, QueueError, Repeat, When,
    job::{State, Token},
    node::Interrupt,
    queue::{MAX_KEY, MAX_PAYLOAD},
    store::{Begin, Cancelled, Listing, Moved, Scheduled, Span, Start, Store, StoreError},
};

use crate::support::{self, HOUR, live, node, start, yes};

const SOON: Duration = Duration::from_millis(30);

/// Returns a backoff of few attempts that follow each other quickly.
fn quick(attempts: u32) -> Backoff {
    Backoff {
        attempts,
        first: Duration::from_millis(2),
        longest: Duration::from_millis(5),
    }
}

/// Runs each case, and prints its name, so that a hang shows where it is.
macro_rules! run_each {
    ($queue:ident: $($case:ident,)*) => {
        $(eprintln!("{}", stringify!($case));
        $case(&$queue).await;)*
    };
}

pub async fn all<S: Store>(queue: Queue<S>) {
    run_each! {
        queue:
        a_job_runs_once_and_not_early,
        a_key_has_one_job,
        bad_input_is_refused,
        a_cancelled_job_does_not_run,
        a_job_can_be_cancelled_while_it_runs,
        a_moved_job_runs_at_its_new_time,
        a_job_that_is_moved_while_it_runs_runs_again,
        a_job_that_fails_is_tried_again_and_dies,
        an_attempt_that_does_not_end_counts_and_waits,
        a_job_whose_last_attempt_does_not_end_dies,
        a_panic_and_a_timeout_are_failures,
        a_handler_learns_of_a_cancel_and_of_the_stop,
        an_error_may_have_any_character,
        options_without_bounds_are_bounded,
        a_cron_job_runs_again_and_again,
        a_full_node_takes_earlier_jobs_first,
        two_nodes_share_the_jobs,
        a_busy_node_leaves_due_jobs_to_others,
        a_node_that_comes_later_gets_its_share,
        a_job_that_is_given_back_has_no_holder,
        a_stopped_node_gives_its_jobs_back,
        a_node_that_was_released_gets_no_jobs,
        jobs_are_listed_by_their_keys,
        a_list_has_the_beginnings_of_large_jobs,
    }
}

async fn a_job_runs_once_and_not_early<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn a_key_has_one_job<S: Store>(queue: &Queue<S>) {
    let first = queue.schedule("one", HOUR, "first").await.unwrap();
    let Scheduled::Created { at } = first else {
        panic!("{first:?}");
    };
    let again = queue.schedule("one", SOON, "second").await.unwrap();
    assert_eq!(again, Scheduled::Exists { at });
    assert_eq!(queue.get("one").await.unwrap().unwrap().payload, b"first");
    queue.cancel("one").await.unwrap();
}

async fn bad_input_is_refused<S: Store>(queue: &Queue<S>) {
    for key in [String::new(), "k".repeat(MAX_KEY + 1), "a\nb".into()] {
        let refused = queue.schedule(key, SOON, "").await;
        assert!(matches!(refused, Err(QueueError::Key)), "{refused:?}");
    }
    let refused = queue.schedule("big", SOON, vec![0; MAX_PAYLOAD + 1]).await;
    assert!(matches!(refused, Err(QueueError::Payload(length)) if length == MAX_PAYLOAD + 1));
    let never = Repeat::parse("0 0 30 2 *", "UTC");
    if let Ok(never) = never {
        assert_eq!(
            queue.schedule("never", never, "").await.unwrap(),
            Scheduled::Never
        );
    }
    assert_eq!(queue.count().await.unwrap().live, 0);
}

async fn a_cancelled_job_does_not_run<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

/// Starts a node whose handlers wait for permits.
fn waiting<S: Store>(
    queue: &Queue<S>,
) -> (
    Node<S>,
    Arc<Semaphore>,
    tokio::sync::mpsc::UnboundedReceiver<Attempt>,
    tokio::sync::mpsc::UnboundedReceiver<Option<bool>>,
) {
    let gate = Arc::new(Semaphore::new(0));
    let (sender, ran) = unbounded_channel();
    let (accepted, ends) = unbounded_channel();
    let opened = gate.clone();
    let node = Node::builder(queue.clone())
        .on_end(move |ended| {
            let _ = accepted.send(ended.accepted);
        })
        .start(move |attempt| {
            let _ = sender.send(attempt);
            let gate = opened.clone();
            async move {
                gate.acquire().await.map_err(Failure::retry)?.forget();
                Ok(())
            }
        });
    (node, gate, ran, ends)
}

async fn a_job_can_be_cancelled_while_it_runs<S: Store>(queue: &Queue<S>) {
    let (node, gate, mut ran, mut ends) = waiting(queue);
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
    assert_eq!(ends.recv().await.unwrap(), Some(false));
    assert!(node.stop(HOUR).await);
}

async fn a_moved_job_runs_at_its_new_time<S: Store>(queue: &Queue<S>) {
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
    while node.stats().held == 0 {
        sleep(Duration::from_millis(2)).await;
    }
    queue.reschedule("moved", HOUR).await.unwrap();
    queue.reschedule("moved", SOON).await.unwrap();
    ran.recv().await.unwrap();
    live(queue, 0).await;
    assert_eq!(
        queue.reschedule("moved", SOON).await.unwrap(),
        Moved::NotFound
    );
    assert!(node.stop(HOUR).await);
}

async fn a_job_that_is_moved_while_it_runs_runs_again<S: Store>(queue: &Queue<S>) {
    let (node, gate, mut ran, mut ends) = waiting(queue);
    queue.schedule("again", SOON, "").await.unwrap();
    let first = ran.recv().await.unwrap();
    let moved = queue.reschedule("again", SOON).await.unwrap();
    assert!(matches!(moved, Moved::WhileRunning { .. }), "{moved:?}");
    let second = ran.recv().await.unwrap();
    assert!(second.token > first.token);
    gate.add_permits(2);
    let ends = [ends.recv().await.unwrap(), ends.recv().await.unwrap()];
    assert_eq!(
        ends.iter()
            .filter(|&&accepted| accepted == Some(true))
            .count(),
        1
    );
    live(queue, 0).await;
    assert!(node.stop(HOUR).await);
}

async fn a_job_that_fails_is_tried_again_and_dies<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

/// Begins an attempt on a node that ends then, as if its process had aborted.
async fn begin_and_end<S: Store>(queue: &Queue<S>, key: &str, wait: Duration) -> Begin {
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

async fn an_attempt_that_does_not_end_counts_and_waits<S: Store>(queue: &Queue<S>) {
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

async fn a_job_whose_last_attempt_does_not_end_dies<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn a_panic_and_a_timeout_are_failures<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn a_handler_learns_of_a_cancel_and_of_the_stop<S: Store>(queue: &Queue<S>) {
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
    let stopping = tourbillon::spawn(node.stop(HOUR));
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

async fn an_error_may_have_any_character<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn options_without_bounds_are_bounded<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn a_cron_job_runs_again_and_again<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn a_full_node_takes_earlier_jobs_first<S: Store>(queue: &Queue<S>) {
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
    assert!(node.stop(HOUR).await);
}

async fn two_nodes_share_the_jobs<S: Store>(queue: &Queue<S>) {
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
    assert!(one.stop(HOUR).await && two.stop(HOUR).await);
}

async fn a_busy_node_leaves_due_jobs_to_others<S: Store>(queue: &Queue<S>) {
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let (sender, mut ran) = unbounded_channel();
    let busy = Node::builder(queue.clone())
        .concurrency(2)
        .start(move |attempt: Attempt| {
            let (gate, sender) = (opened.clone(), sender.clone());
            async move {
                let _ = sender.send(attempt.key);
                gate.acquire().await.map_err(Failure::retry)?.forget();
                Ok(())
            }
        });
    // Some jobs are due when the node finds them, and others come to be due in its timers.
    for number in 0..10 {
        let (key, later) = (format!("due-{number}"), format!("later-{number}"));
        queue.schedule(key, Duration::ZERO, "").await.unwrap();
        let soon = Duration::from_millis(500);
        queue.schedule(later, soon, "").await.unwrap();
    }
    let mut keys = HashSet::from([ran.recv().await.unwrap(), ran.recv().await.unwrap()]);
    let (idle, mut others) = node(queue, |node| node, |_| Ok(()));
    for _ in 0..18 {
        assert!(keys.insert(others.recv().await.unwrap().key));
    }
    assert_eq!(keys.len(), 20);
    live(queue, 2).await;
    assert_eq!(busy.stats().begun, 2);
    gate.add_permits(2);
    live(queue, 0).await;
    assert!(busy.stop(HOUR).await && idle.stop(HOUR).await);
}

async fn a_node_that_comes_later_gets_its_share<S: Store>(queue: &Queue<S>) {
    for number in 0..400 {
        queue
            .schedule(format!("overdue-{number}"), Duration::ZERO, "")
            .await
            .unwrap();
    }
    let start = || {
        Node::builder(queue.clone())
            .concurrency(4)
            .start(|_| async {
                sleep(Duration::from_millis(10)).await;
                Ok(())
            })
    };
    let first = start();
    while first.stats().begun < 8 {
        sleep(Duration::from_millis(2)).await;
    }
    // It holds as many as it can run, and as many again.
    assert!(first.stats().held <= 8, "{:?}", first.stats());
    let second = start();
    live(queue, 0).await;
    let shares = (first.stats().done, second.stats().done);
    assert!(shares.0 + shares.1 == 400 && shares.1 > 0, "{shares:?}");
    assert!(first.stop(HOUR).await && second.stop(HOUR).await);
}

async fn a_job_that_is_given_back_has_no_holder<S: Store>(queue: &Queue<S>) {
    let store = queue.store();
    queue
        .schedule("mine", Duration::ZERO, "text")
        .await
        .unwrap();
    queue.schedule("later", HOUR, "").await.unwrap();
    let one = store.register(HOUR).await.unwrap().node;
    let due = store.hold(one, Span::Due, 10).await.unwrap();
    assert_eq!(
        (due.len(), due[0].key.as_str(), due[0].size),
        (1, "mine", 4)
    );
    let within = Span::Within(2 * HOUR);
    let later = store.hold(one, within, 10).await.unwrap();
    assert_eq!((later.len(), later[0].key.as_str()), (1, "later"));
    let other = store.register(HOUR).await.unwrap().node;
    let stale = Token(due[0].token.0 - 1);
    store.give_back(vec![("mine".into(), stale)]).await.unwrap();
    assert!(store.hold(other, Span::Due, 10).await.unwrap().is_empty());
    let mine = ("mine".to_owned(), due[0].token);
    store.give_back(vec![mine]).await.unwrap();
    let again = store.hold(other, Span::Due, 10).await.unwrap();
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

async fn a_stopped_node_gives_its_jobs_back<S: Store>(queue: &Queue<S>) {
    // Later than the end of the test, but soon enough that the store tells the node of the job.
    let later = Duration::from_secs(500);
    let start = || node(queue, |node| node.window(2 * later), |_| Ok(()));
    let held = async |node: &Node<S>| {
        while node.stats().held == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let (one, mut first) = start();
    queue.schedule("given back", later, "").await.unwrap();
    held(&one).await;
    assert!(one.stop(HOUR).await);
    let (two, mut second) = start();
    held(&two).await;
    queue.reschedule("given back", SOON).await.unwrap();
    assert_eq!(second.recv().await.unwrap().key, "given back");
    assert!(first.try_recv().is_err());
    live(queue, 0).await;
    assert!(two.stop(HOUR).await);
}

/// A request of the node may arrive after its release.
async fn a_node_that_was_released_gets_no_jobs<S: Store>(queue: &Queue<S>) {
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

async fn jobs_are_listed_by_their_keys<S: Store>(queue: &Queue<S>) {
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

/// Schedules jobs until the store refuses one. `acknowledged` jobs are there before. The refused
/// job leaves nothing behind. Then all jobs run, and make room. Returns the node and its attempts.
pub async fn fill_and_run<S: Store>(
    queue: &Queue<S>,
    mut acknowledged: u64,
    delay: Duration,
) -> (Node<S>, UnboundedReceiver<Attempt>) {
    loop {
        let key = format!("job-{acknowledged}");
        match queue.schedule(key, delay, vec![1; 1000]).await {
            Ok(_) => acknowledged += 1,
            Err(QueueError::Store(StoreError::Full)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(acknowledged > 20, "{acknowledged}");
    assert_eq!(queue.count().await.unwrap().live, acknowledged);
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    for _ in 0..acknowledged {
        ran.recv().await.unwrap();
    }
    live(queue, 0).await;
    (node, ran)
}

async fn a_list_has_the_beginnings_of_large_jobs<S: Store>(queue: &Queue<S>) {
    // Each of its characters has two bytes.
    let error = "\u{e4}".repeat(3000);
    let (said, payload) = (error.clone(), vec![1; MAX_PAYLOAD]);
    let (node, _ran) = node(queue, |node| node, move |_| Err(Failure::give_up(&said)));
    for key in ["large", "larger"] {
        let payload = payload.clone();
        queue.schedule(key, Duration::ZERO, payload).await.unwrap();
    }
    live(queue, 0).await;
    assert!(node.stop(HOUR).await);
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
