//! A plain program for tokio: its handlers run on tokio's runtime, and nothing of it is in one of
//! Tourbillon's.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use futures_lite::future::block_on;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Notify, mpsc, oneshot},
};
use tourbillon_jobs::{
    Attempt, Backoff, Failure, Node, Queue,
    node::Interrupt,
    sqlite::Sqlite,
    store::{Cancelled, Listing, Moved, Scheduled},
};

const HOUR: Duration = Duration::from_secs(3600);

/// How long a test waits for progress. Only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A store in a directory of its own, which is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("jobs-on-tokio-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Opens the store. Whoever had it open has ended.
    fn open(&self) -> Queue<Sqlite> {
        Queue::new(Sqlite::open(self.0.join("jobs.db")).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_time();
    builder.build().unwrap()
}

/// Runs a test on both kinds of tokio's runtime.
fn on_tokio<F: Future<Output = ()>>(test: impl Fn(Queue<Sqlite>) -> F) {
    let current = Builder::new_current_thread().enable_time().build();
    for runtime in [current.unwrap(), runtime(2)] {
        let place = Place::new();
        runtime.block_on(async {
            let ended = tokio::time::timeout(PATIENCE, test(place.open())).await;
            assert!(ended.is_ok(), "the test hangs");
        });
    }
}

/// Starts a node that hands each attempt to the test.
fn node(queue: &Queue<Sqlite>) -> (Node<Sqlite>, mpsc::UnboundedReceiver<Attempt>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let node = Node::builder(queue.clone()).start(move |attempt| {
        let _ = sender.send(attempt);
        async { Ok(()) }
    });
    (node, receiver)
}

async fn live(queue: &Queue<Sqlite>, live: u64) {
    while queue.count().await.unwrap().live != live {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn handlers_run_on_tokio() {
    on_tokio(|queue| async move {
        let here = Handle::current().id();
        let (ran, mut runs) = mpsc::unbounded_channel();
        let backoff = Backoff {
            attempts: 2,
            first: Duration::from_millis(2),
            longest: Duration::from_millis(2),
        };
        let options = Node::builder(queue.clone()).backoff(backoff);
        let node = options.start(move |attempt| {
            let ran = ran.clone();
            async move {
                // These need a runtime of tokio's.
                assert_eq!(Handle::current().id(), here);
                tokio::time::sleep(Duration::from_millis(1)).await;
                let number = tokio::spawn(async move { attempt.number }).await?;
                let _ = ran.send(number);
                match number {
                    1 => Err(Failure::retry("once more")),
                    _ => Ok(()),
                }
            }
        });
        let delay = Duration::from_millis(5);
        queue.schedule("job", delay, "").await.unwrap();
        assert_eq!((runs.recv().await, runs.recv().await), (Some(1), Some(2)));
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Uses all that a queue has.
async fn use_all_of(queue: &Queue<Sqlite>) {
    for key in ["one", "two"] {
        let made = queue.schedule(key, HOUR, "hello").await.unwrap();
        assert!(matches!(made, Scheduled::Created { .. }));
    }
    assert_eq!(queue.get("one").await.unwrap().unwrap().payload, b"hello");
    let moved = queue.reschedule("one", 2 * HOUR).await.unwrap();
    assert!(matches!(moved, Moved::Moved { .. }));
    let all = Listing {
        limit: 10,
        ..Listing::default()
    };
    assert_eq!(queue.list(all).await.unwrap().len(), 2);
    assert_eq!(queue.count().await.unwrap().live, 2);
    for key in ["one", "two"] {
        assert_eq!(queue.cancel(key).await.unwrap(), Cancelled::Cancelled);
    }
}

#[test]
fn a_queue_works_on_any_executor() {
    let place = Place::new();
    // It is made outside of any runtime.
    let queue = place.open();
    block_on(use_all_of(&queue));
    runtime(1).block_on(use_all_of(&queue));
    let ours = tourbillon::Runtime::new().unwrap();
    ours.block_on(use_all_of(&queue));
    // It is served by a runtime of Tourbillon's, and ends with it.
    let other = Place::new();
    let queue = ours.block_on(async { other.open() });
    runtime(1).block_on(use_all_of(&queue));
    block_on(use_all_of(&queue));
    drop(ours);
    assert!(block_on(queue.schedule("late", HOUR, "")).is_err());
}

#[test]
fn nodes_on_both_runtimes_share_the_jobs() {
    let place = Place::new();
    let (theirs, ours) = (runtime(1), tourbillon::Runtime::new().unwrap());
    let queue = place.open();
    let counts = Arc::new([const { AtomicU32::new(0) }; 2]);
    // A handler waits until the other node has begun a job, too, so that both have to.
    let start = |number: usize| {
        let counts = counts.clone();
        let options = Node::builder(queue.clone()).concurrency(1);
        options.start(move |_| {
            counts[number].fetch_add(1, Relaxed);
            let counts = counts.clone();
            let (sender, receiver) = oneshot::channel();
            thread::spawn(move || {
                while counts[1 - number].load(Relaxed) == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let _ = sender.send(());
            });
            async { receiver.await.map_err(Failure::retry) }
        })
    };
    let first = theirs.block_on(async { start(0) });
    let second = ours.block_on(async { start(1) });
    theirs.block_on(async {
        for number in 0..100 {
            let key = format!("job-{number}");
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        live(&queue, 0).await;
    });
    let ran: u32 = counts.iter().map(|count| count.load(Relaxed)).sum();
    assert_eq!(ran, 100);
    assert!(block_on(first.stop(PATIENCE)) && block_on(second.stop(PATIENCE)));
}

#[test]
fn the_end_of_the_runtime_cuts_handlers_off_and_frees_the_store() {
    let place = Place::new();
    let before = runtime(2);
    before.block_on(async {
        let queue = place.open();
        let began = Arc::new(Notify::new());
        let begins = began.clone();
        let node = Node::builder(queue.clone()).start(move |_| {
            begins.notify_one();
            std::future::pending()
        });
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        began.notified().await;
        // It goes on without this.
        drop(node);
    });
    drop(before);
    // The store is free at once. The attempt counts.
    runtime(1).block_on(async {
        let queue = place.open();
        let (node, mut ran) = node(&queue);
        let attempt = ran.recv().await.unwrap();
        assert_eq!((&*attempt.key, attempt.number), ("job", 2));
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_handler_learns_that_its_node_stops() {
    on_tokio(|queue| async move {
        let (began, mut begins) = mpsc::unbounded_channel();
        let node = Node::builder(queue.clone()).start(move |attempt| {
            let _ = began.send(());
            async move {
                assert_eq!(attempt.interrupted().await, Interrupt::NodeStops);
                Ok(())
            }
        });
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        assert!(node.stop(PATIENCE).await);
        assert_eq!(queue.count().await.unwrap().live, 0);
    });
}

#[test]
fn a_handler_that_blocks_all_threads_is_reported() {
    let place = Place::new();
    let runtime = runtime(1);
    let queue = place.open();
    let (blocked, reports) = std::sync::mpsc::channel();
    let (goes_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let options = Node::builder(queue.clone())
        .attempt_timeout(Duration::from_millis(10))
        .on_blocked(move |report| drop(blocked.send(report.key.clone())));
    let node = runtime.block_on(async {
        options.start(move |_| {
            let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
            async { Ok(()) }
        })
    });
    block_on(queue.schedule("job", Duration::ZERO, "")).unwrap();
    assert_eq!(reports.recv_timeout(PATIENCE).unwrap(), "job");
    // Its thread is taken, and the queue works.
    assert_eq!(node.stats().blocked, 1);
    block_on(queue.schedule("other", HOUR, "")).unwrap();
    goes_on.send(()).unwrap();
    runtime.block_on(live(&queue, 1));
    assert!(block_on(node.stop(PATIENCE)));
}

#[test]
#[should_panic(expected = "in no runtime")]
fn a_node_needs_a_runtime() {
    node(&Place::new().open());
}
