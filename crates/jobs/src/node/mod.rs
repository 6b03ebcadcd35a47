//! A node: holds the jobs of the next minutes in timers, and runs their handlers.

mod backoff;
mod ends;
mod errors;
mod executor;
mod failure;
mod handler;
mod handlers;
mod health;
mod held;
mod histogram;
mod interrupt;
mod metrics;
mod run;
pub(crate) mod session;
mod span;
mod stats;
mod take;
mod tasks;

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, watch};
use tourbillon::{task::JoinHandle, time::timeout};

pub use self::{
    backoff::Backoff,
    errors::{Cause, Failed},
    failure::Failure,
    health::{RequestMetrics, StoreMetrics},
    histogram::Histogram,
    interrupt::Interrupt,
    metrics::{KindMetrics, MetricsReader, NodeMetrics},
    stats::NodeStats,
};
use self::{
    errors::{Errors, OnError},
    executor::Executor,
    handlers::{Handler, Handlers},
    stats::{Counters, count},
    tasks::{Kept, Tasks},
};
use crate::{
    job::{DEFAULT_QUEUE, Time, Token},
    queue::{MAX_QUEUE, Queue, is_queue},
    store::{End, Kinds, Store},
};

/// Number of attempts that may wait for the store to take their end, in addition to those whose
/// handlers run. After a crash, these attempts run again.
const ENDING: usize = 1024;

/// The bounds of the window.
const WINDOWS: (Duration, Duration) = (
    Duration::from_millis(100),
    Duration::from_secs(365 * 24 * 3600),
);

/// The longest lease.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// The maximum number of handlers that run at once. [`Node::stop`] counts them in 32 bits.
const MOST_HANDLERS: usize = 1 << 28;

/// What a handler gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// The name of the job.
    pub key: String,
    /// The job's kind. It is empty for a job without one.
    pub kind: String,
    /// The name of the job's queue.
    pub queue: String,
    /// The job's payload.
    pub payload: Vec<u8>,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The fencing token, which rises with each attempt of a key.
    pub token: Token,
    /// The moment for which the job was scheduled. With the key it names an occurrence of a cron
    /// job.
    pub due: Time,
    /// The moment of this attempt, as it was planned.
    pub at: Time,
    /// The W3C `traceparent` of who added the job, if it carries one: see
    /// [`NewJob::traceparent`](crate::NewJob::traceparent). All occurrences of a cron job have the
    /// same: see [`repeats`](Self::repeats).
    pub traceparent: Option<String>,
    /// Whether the job is a cron job. The spans of its attempts should have a link to
    /// [`traceparent`](Self::traceparent), and not be children of it: the trace of one request
    /// would get spans for years.
    pub repeats: bool,
    interrupts: interrupt::Interrupts,
}

impl Attempt {
    /// Returns why the handler should end, if there is a reason.
    pub fn interrupt(&self) -> Option<Interrupt> {
        self.interrupts.get()
    }

    /// Waits until the handler should end. A cancel is noticed within about a second.
    ///
    /// ```
    /// # use tourbillon_jobs::{Attempt, Failure};
    /// # async fn work(_: &[u8]) -> Result<(), Failure> { Ok(()) }
    /// async fn handle(attempt: Attempt) -> Result<(), Failure> {
    ///     let interrupted = async {
    ///         let why = attempt.interrupted().await;
    ///         Err(Failure::retry(format!("{why:?}")))
    ///     };
    ///     futures_lite::future::or(work(&attempt.payload), interrupted).await
    /// }
    /// ```
    pub async fn interrupted(&self) -> Interrupt {
        self.interrupts.wait(false).await
    }

    /// Waits until the node knows that the attempt has lost its job: a client has cancelled or
    /// moved it, or the node has lost its lease.
    ///
    /// A cancel is noticed within about a second, and the loss of a lease at its end. So the token
    /// may be stale for a while before this returns. After it, the end of the attempt is refused,
    /// but for a lost lease only if the job has another holder by then. A handler that still runs
    /// when [`Node::stop`] returns is not told that others may run its job.
    pub async fn stale(&self) -> Interrupt {
        self.interrupts.wait(true).await
    }
}

/// The end of an attempt, for [`NodeBuilder::on_end`].
///
/// If the last attempt of a job began and never ended, a node holds the job once more, and ends it
/// without calling the handler. Then the token is one that no handler got.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The name of the job.
    pub key: String,
    /// The job's kind. It is empty for a job without one.
    pub kind: String,
    /// The token of the attempt.
    pub token: Token,
    /// How the attempt ended.
    pub end: End,
    /// Whether the store took the end. If not, the job was cancelled or moved meanwhile, or has
    /// another holder. `None` if an answer was lost, or if an earlier request with it failed in
    /// part: the store may have taken the end.
    pub accepted: Option<bool>,
    /// The trace context of who added the job, if it carries one: see
    /// [`NewJob::traceparent`](crate::NewJob::traceparent).
    pub traceparent: Option<String>,
}

/// An attempt that is past its time limit and blocks its thread, for [`NodeBuilder::on_blocked`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Blocked {
    /// The name of the job.
    pub key: String,
    /// The number of the attempt.
    pub number: u32,
    /// The token of the attempt.
    pub token: Token,
}

type OnEnd = dyn Fn(&Ended) + Send + Sync;

type OnBlocked = dyn Fn(&Blocked) + Send + Sync;

/// State that a node's parts share.
struct Shared<S> {
    store: Arc<S>,
    options: NodeBuilder<S>,
    /// The user's runtime, on which handlers run.
    runtime: Executor,
    /// Whether a thread of this runtime is free, as far as the node knows.
    has_thread: watch::Sender<bool>,
    /// What runs on the library's thread.
    tasks: Tasks,
    handlers: Arc<Handlers>,
    /// Of which kinds there are handlers.
    kinds: Kinds,
    ends: ends::Ends,
    /// `None` if nobody is to be told.
    errors: Option<Arc<Errors>>,
    /// Permits of the handlers that run at once.
    calls: Arc<Semaphore>,
    /// Permits of the attempts that have begun, each until the store has taken its end. There are
    /// more of them than of handlers, so that a slow commit does not make other jobs late.
    attempts: Arc<Semaphore>,
    held: held::Table,
    running: interrupt::Running,
    counters: Arc<Counters>,
    /// Becomes `true` when the node is to begin nothing more.
    stopping: watch::Sender<bool>,
    /// The last field, as it has to be dropped after the other references to the same.
    _kept: Kept,
}

impl<S> Shared<S> {
    /// Lets no further attempts begin, and tells those that run.
    fn stop(&self) {
        self.stopping.send_replace(true);
        self.running.stop();
    }

    /// Waits until all attempts have ended, for `limit` at most. Then lets the session give the
    /// other jobs back. Returns whether all have ended.
    async fn end_attempts(&self, limit: Duration) -> bool {
        let all = u32::try_from(self.options.most_attempts()).unwrap_or(u32::MAX);
        let ended = timeout(limit, self.attempts.acquire_many(all)).await;
        self.held.end();
        ended.is_ok()
    }
}

/// The options of a [`Node`].
pub struct NodeBuilder<S> {
    queue: Queue<S>,
    window: Duration,
    lease: Duration,
    most_held: usize,
    concurrency: usize,
    /// The names of the queues, and how many of their attempts run at once.
    queues: Vec<(String, usize)>,
    attempt_timeout: Duration,
    backoff: Backoff,
    on_end: Option<Arc<OnEnd>>,
    on_blocked: Option<Arc<OnBlocked>>,
    on_error: Option<Arc<OnError>>,
    spans: span::Spans,
    handlers: Handlers,
}

impl<S> NodeBuilder<S> {
    /// Returns how many attempts may have begun whose end the store has not taken.
    fn most_attempts(&self) -> usize {
        self.concurrency + ENDING
    }
}

impl<S: Store> NodeBuilder<S> {
    /// Sets how far ahead the node takes jobs from the store into its timers. The default is 2
    /// minutes. A window of less than 100 ms counts as 100 ms, and one of more than 365 days as 365
    /// days.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window.clamp(WINDOWS.0, WINDOWS.1);
        self
    }

    /// Sets how long the node may be silent until others take its jobs. The default is 10 s. The
    /// embedded store needs no leases. A lease of more than a day counts as a day.
    ///
    /// # Panics
    ///
    /// Panics if it is shorter than 100 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        assert!(
            lease >= Duration::from_millis(100),
            "a lease has at least 100 ms"
        );
        self.lease = lease.min(LONGEST_LEASE);
        self
    }

    /// Sets how many jobs the node holds at once. The default is 100,000. Jobs that are due within
    /// a second may exceed this by up to a quarter. Of the jobs that are due, a node holds at most
    /// twice as many as handlers can begin, and gives others back.
    ///
    /// # Panics
    ///
    /// Panics if it is below 4.
    pub fn most_held(mut self, most: usize) -> Self {
        assert!(most >= 4, "a node holds at least 4 jobs");
        self.most_held = most;
        self
    }

    /// Sets how many handlers run at once. The default is 256. Attempts whose handler has returned
    /// and whose end is on its way to the store do not count, up to 1024 of them. More than 2²⁸
    /// handlers count as 2²⁸.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        assert!(handlers > 0, "a node runs at least one handler");
        self.concurrency = handlers.min(MOST_HANDLERS);
        self
    }

    /// Adds a queue: the node runs its jobs, at most `most` of them at once. Without any, the node
    /// has the [default queue](crate::job::DEFAULT_QUEUE) alone, without a limit of its own. The
    /// limit of all queues together is that of [`concurrency`](Self::concurrency).
    ///
    /// Other nodes have limits of their own. Have few queues: the node looks for jobs of each.
    ///
    /// # Panics
    ///
    /// Panics if the node has this queue already, if `most` is 0, or if the name is out of bounds:
    /// see [`MAX_QUEUE`].
    pub fn queue(mut self, name: impl Into<String>, most: usize) -> Self {
        let name = name.into();
        assert!(
            is_queue(&name),
            "the name of a queue has 1 to {MAX_QUEUE} bytes, and no control characters"
        );
        assert!(most > 0, "a node runs at least one job of a queue");
        let is_new = self.queues.iter().all(|(other, _)| *other != name);
        assert!(is_new, "the node has the queue `{name}` already");
        self.queues.push((name, most));
        self
    }

    /// Sets how long an attempt may take. Then its future is dropped, and the attempt has failed.
    /// The default is 15 minutes; with `Duration::MAX` there is no limit.
    ///
    /// The future of a handler that blocks its thread cannot be dropped. The node keeps its job,
    /// and reports it: see [`on_blocked`](Self::on_blocked).
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.attempt_timeout = limit;
        self
    }

    /// Sets the number of attempts, and the waits between them.
    ///
    /// # Panics
    ///
    /// Panics if there are no attempts.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        assert!(backoff.attempts > 0, "a job has at least one attempt");
        self.backoff = backoff;
        self
    }

    /// Calls `f` when the store has answered to the end of an attempt.
    pub fn on_end(mut self, f: impl Fn(&Ended) + Send + Sync + 'static) -> Self {
        self.on_end = Some(Arc::new(f));
        self
    }

    /// Calls `f` when an attempt is past its time limit by a second and blocks its thread. `f` may
    /// block, too. [`NodeStats::blocked`] counts these attempts.
    ///
    /// No other attempt of the job begins, as the handler may still have effects: the node keeps
    /// the job until the handler gives its thread up, or until a client moves or cancels it. What
    /// the handler returns counts. If it waits instead, the attempt has failed.
    pub fn on_blocked(mut self, f: impl Fn(&Blocked) + Send + Sync + 'static) -> Self {
        self.on_blocked = Some(Arc::new(f));
        self
    }

    /// Starts the node, with a handler of the jobs without a kind, beside those that
    /// [`on_kind`](Self::on_kind) and the like have added.
    ///
    /// # Panics
    ///
    /// Panics as [`start_kinds`](Self::start_kinds) does, or if there is a handler of the jobs
    /// without a kind already.
    pub fn start<F, R>(self, handler: F) -> Node<S>
    where
        F: Fn(Attempt) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.on_kind("", handler).start_kinds()
    }

    /// Starts the node. It runs jobs of its queues and of the kinds of which it has a handler, and
    /// leaves the others in the store.
    ///
    /// A handler runs each attempt in a task of its own on the current runtime, which is one of
    /// Tourbillon, or of tokio with the feature `tokio`. A panic counts as a failure.
    ///
    /// A thread of the library keeps the lease, the timers, the time limits and the ends of
    /// attempts, also while handlers block all threads of the current runtime.
    ///
    /// When that runtime shuts down, the node stops. A handler that blocks its thread has the time
    /// of a [lease](Self::lease) to end. After that its job is another node's, although the handler
    /// may still run. A runtime of tokio does not tell that it shuts down while handlers block all
    /// its threads: then the node stops when one of them returns.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, or if there is no handler.
    pub fn start_kinds(mut self) -> Node<S> {
        let kinds = self.handlers.kinds();
        let has_handler = kinds != Kinds::only::<String>([]);
        assert!(has_handler, "a node has at least one handler");
        if self.queues.is_empty() {
            self.queues.push((DEFAULT_QUEUE.into(), usize::MAX));
        }
        let runtime = Executor::current();
        let store = self.queue.store().clone();
        let tasks = Tasks::new();
        let handlers = Arc::new(std::mem::take(&mut self.handlers));
        let kept = tasks.keep((
            self.queue.clone(),
            handlers.clone(),
            self.on_end.clone(),
            self.on_blocked.clone(),
            self.on_error.clone(),
            self.spans.clone(),
        ));
        let counters = Arc::new(Counters::default());
        for (queue, _) in &self.queues {
            for kind in handlers.own() {
                counters.kinds.get(queue, kind, true);
            }
        }
        let errors = self.on_error.clone();
        let shared = Arc::new(Shared {
            ends: ends::Ends::start(store.clone(), counters.clone(), &tasks, kept.clone()),
            errors: errors.map(|on_error| Errors::new(on_error, counters.clone())),
            store,
            runtime,
            has_thread: watch::Sender::new(true),
            tasks,
            handlers,
            kinds,
            calls: Arc::new(Semaphore::new(self.concurrency)),
            attempts: Arc::new(Semaphore::new(self.most_attempts())),
            held: held::Table::new(&self.queues),
            running: interrupt::Running::default(),
            counters,
            stopping: watch::Sender::new(false),
            options: self,
            _kept: kept,
        });
        let running = shared.tasks.spawn(session::run(shared.clone()));
        shared.tasks.end_with(&shared.runtime);
        Node { shared, running }
    }
}

/// A running node.
///
/// Dropping it lets the node run until the runtime ends. [`stop`](Node::stop) ends it.
pub struct Node<S> {
    shared: Arc<Shared<S>>,
    running: JoinHandle<Option<()>>,
}

impl<S> fmt::Debug for Node<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl<S: Store> Node<S> {
    /// Returns the options of a node for the jobs of a queue.
    pub fn builder(queue: Queue<S>) -> NodeBuilder<S> {
        NodeBuilder {
            queue,
            window: Duration::from_secs(120),
            lease: Duration::from_secs(10),
            most_held: 100_000,
            concurrency: 256,
            queues: Vec::new(),
            attempt_timeout: Duration::from_secs(15 * 60),
            backoff: Backoff::default(),
            on_end: None,
            on_blocked: None,
            on_error: None,
            spans: Default::default(),
            handlers: Handlers::default(),
        }
    }

    /// Begins nothing more, waits for the attempts that run, and gives the other jobs back. The
    /// attempts learn of this: see [`Attempt::interrupted`].
    ///
    /// Returns whether all attempts ended within `limit`. The other attempts continue, and the
    /// store gives their jobs to other nodes. What is left of `limit` is for the calls of
    /// [`on_error`](NodeBuilder::on_error), whose ends the result does not tell.
    pub async fn stop(self, limit: Duration) -> bool {
        self.shared.stop();
        let shared = self.shared.clone();
        // Handlers may block the thread of the caller's timers.
        let ending = async move {
            let began = Instant::now();
            let ended = shared.end_attempts(limit).await;
            if let Some(errors) = &shared.errors {
                let _ = timeout(limit.saturating_sub(began.elapsed()), errors.told()).await;
            }
            ended
        };
        let ended = self.shared.tasks.spawn(ending).await;
        let _ = self.running.await;
        matches!(ended, Ok(Some(true)))
    }
}
