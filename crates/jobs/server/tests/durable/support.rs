//! Directories, waits and handlers for tests.

use std::{future::Future, panic::Location, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{
    Semaphore,
    mpsc::{self, UnboundedReceiver, UnboundedSender},
};
use tourbillon::{Runtime, runtime::Builder, time::timeout};
use tourbillon_jobs::{
    Attempt, Failure, Node, Queue, When,
    job::{NewJob, Token},
    node::NodeBuilder,
    sqlite::Sqlite,
    store::{Begin, Held, Kinds, Span, Start, Store},
};
use tourbillon_support::HANGS;
use tourbillon_support::dir;
pub use tourbillon_support::{HOUR, PATIENCE, eventually};

/// A directory that is removed in the end.
pub struct Dir(dir::Dir);

impl Dir {
    pub fn new() -> Self {
        Self(dir::Dir::new())
    }

    /// The path of a store in the directory.
    pub fn store(&self) -> PathBuf {
        self.join("jobs.db")
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }
}

/// Returns whether a million jobs are to be measured, in place of all cases. This takes minutes.
pub fn measures_a_million() -> bool {
    std::env::var_os("DURABLE_MILLION").is_some_and(|value| value == "1")
}

/// Runs a test in a runtime of its own.
pub fn run<F: Future<Output = ()>>(test: F) {
    run_in(Runtime::new().unwrap(), test);
}

/// Runs a test in a runtime.
fn run_in<F: Future<Output = ()>>(runtime: Runtime, test: F) {
    let patience = match measures_a_million() {
        true => 10 * HANGS,
        false => HANGS,
    };
    runtime.block_on(async {
        let ended = timeout(patience, test).await;
        assert!(ended.is_ok(), "the test hangs");
    });
}

/// Runs a test on an embedded store in a directory of its own.
pub fn on_file(test: impl AsyncFnOnce(Queue<Sqlite>)) {
    let dir = Dir::new();
    run(async { test(Queue::new(Sqlite::open(dir.store()).unwrap())).await });
}

/// Runs a test as [`on_file`] does. The runtime has two threads, of which the test may block one.
pub fn on_file_with_two_threads(test: impl AsyncFnOnce(Queue<Sqlite>)) {
    let dir = Dir::new();
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    run_in(runtime, async {
        test(Queue::new(Sqlite::open(dir.store()).unwrap())).await;
    });
}

/// Waits for this. Fails if it takes longer than [`PATIENCE`], and says where the test waits.
#[track_caller]
pub fn soon<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    let place = Location::caller();
    async move {
        let waited = timeout(PATIENCE, future).await;
        waited.unwrap_or_else(|_| panic!("{place} waits in vain: {what}"))
    }
}

/// What a test is told.
pub struct Told<T>(UnboundedReceiver<T>);

impl<T> Told<T> {
    /// Waits for the next message. Fails if none comes. Returns `None` if none can come any more.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = Option<T>> {
        soon("for a message", self.0.recv())
    }

    pub fn try_recv(&mut self) -> Result<T, mpsc::error::TryRecvError> {
        self.0.try_recv()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Makes a channel, whose receiver waits as long as a test may wait.
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, Told<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Told(receiver))
}

/// Starts a node that hands each attempt to the test. The handler ends as `end` says.
pub fn node<S: Store>(
    queue: &Queue<S>,
    options: impl FnOnce(NodeBuilder<S>) -> NodeBuilder<S>,
    end: impl Fn(&Attempt) -> Result<(), Failure> + Send + Sync + 'static,
) -> (Node<S>, Told<Attempt>) {
    let (sender, receiver) = unbounded_channel();
    let node = options(Node::builder(queue.clone())).start(move |attempt| {
        let ended = end(&attempt);
        let _ = sender.send(attempt);
        async { ended }
    });
    (node, receiver)
}

/// A node whose attempts wait at a gate, which lets one through for each permit; its attempts, as
/// they begin; the key of each attempt that has ended, and whether the store has taken the end.
pub type Waiting<S> = (
    Node<S>,
    Arc<Semaphore>,
    Told<Attempt>,
    Told<(String, Option<bool>)>,
);

/// Starts a node whose attempts wait at a gate, and then end as `end` says.
pub fn waiting<S: Store>(
    queue: &Queue<S>,
    options: impl FnOnce(NodeBuilder<S>) -> NodeBuilder<S>,
    end: impl Fn(&Attempt) -> Result<(), Failure> + Send + Sync + 'static,
) -> Waiting<S> {
    let gate = Arc::new(Semaphore::new(0));
    let (began, begins) = unbounded_channel();
    let (ended, ends) = unbounded_channel();
    let opened = gate.clone();
    let node = options(Node::builder(queue.clone()))
        .on_end(move |end| {
            let _ = ended.send((end.key.clone(), end.accepted));
        })
        .start(move |attempt| {
            let result = end(&attempt);
            let _ = began.send(attempt);
            let gate = opened.clone();
            async move {
                gate.acquire().await.map_err(Failure::retry)?.forget();
                result
            }
        });
    (node, gate, begins, ends)
}

/// The end of an attempt: the job `fails` dies at once, and any other one is done.
pub fn fails_by_key(attempt: &Attempt) -> Result<(), Failure> {
    match attempt.key.as_str() {
        "fails" => Err(Failure::give_up("on purpose")),
        _ => Ok(()),
    }
}

/// Waits until a node has begun this many attempts.
#[track_caller]
pub fn begun<S: Store>(node: &Node<S>, count: u64) -> impl Future<Output = ()> {
    soon("for attempts to begin", async move {
        while node.stats().begun < count {
            tourbillon::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// Waits until a node holds a job.
#[track_caller]
pub fn holds<S: Store>(node: &Node<S>) -> impl Future<Output = ()> {
    soon("for a node to hold a job", async move {
        while node.stats().held == 0 {
            tourbillon::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// Returns a job without a payload.
pub fn new(key: impl Into<String>, when: impl Into<When>) -> NewJob {
    NewJob::new(key, when, "")
}

/// Returns what begins an attempt, after which the job does not wait.
pub fn start(key: &str, token: Token) -> Start {
    Start {
        key: key.into(),
        token,
        wait: Duration::ZERO,
    }
}

/// Returns the answer to an attempt that begins, of a job without a payload.
pub fn yes(number: u32) -> Begin {
    Begin::Yes {
        number,
        payload: Vec::new(),
    }
}

/// Makes a node the holder of at most `most` jobs that are due within a time.
pub async fn hold<S: Store>(store: &S, node: i64, within: Duration, most: usize) -> Vec<Held> {
    let all = &Kinds::All;
    let mut held = store
        .hold(node, Span::Due, "default", all, most)
        .await
        .unwrap();
    if held.len() < most {
        let (span, rest) = (Span::Within(within), most - held.len());
        held.extend(store.hold(node, span, "default", all, rest).await.unwrap());
    }
    held
}

/// Waits until the store has exactly `live` live jobs.
#[track_caller]
pub fn live<S: Store>(queue: &Queue<S>, live: u64) -> impl Future<Output = ()> {
    soon("for the number of live jobs", async move {
        while queue.count().await.unwrap().live != live {
            tourbillon::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Runs a job, which is moved before.
pub async fn works<S: Store>(queue: &Queue<S>) {
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    queue.schedule("job", HOUR, "").await.unwrap();
    queue.reschedule("job", Duration::ZERO).await.unwrap();
    assert_eq!(ran.recv().await.unwrap().key, "job");
    live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}
