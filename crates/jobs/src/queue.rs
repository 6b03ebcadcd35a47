//! The client's side: schedules, moves and cancels jobs.

use std::{
    collections::HashSet,
    error::Error,
    fmt,
    sync::{Arc, Weak},
};

pub use crate::counted::QueueStats;
use crate::{
    batch::{Batcher, Request, Serve},
    counted::Counted,
    job::{Job, LOWEST_PRIORITY, NewJob, When, is_traceparent},
    store::{Cancelled, Counts, Listing, Moved, Replaced, Scheduled, Store, StoreError},
};

/// The length of a key, in bytes.
pub const MAX_KEY: usize = 512;

/// The length of the name of a kind, in bytes.
pub const MAX_KIND: usize = 128;

/// The length of the name of a queue, in bytes.
pub const MAX_QUEUE: usize = 128;

/// The length of a payload, in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// A queue of delayed jobs, in a store.
///
/// Clones refer to the same queue. A queue alone runs no jobs: see [`Node`](crate::Node).
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use std::time::Duration;
/// use tourbillon_jobs::{Queue, sqlite::Sqlite, store::{Cancelled, Scheduled}};
///
/// # let dir = std::env::temp_dir().join(format!("durable-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("jobs.db");
/// let runtime = tourbillon::Runtime::new()?;
/// runtime.block_on(async {
///     let queue = Queue::new(Sqlite::open(&path)?);
///     let made = queue.schedule("reminder/7", Duration::from_secs(3600), "call Ann").await?;
///     assert!(matches!(made, Scheduled::Created { .. }));
///     assert_eq!(queue.cancel("reminder/7").await?, Cancelled::Cancelled);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<S> {
    store: Arc<S>,
    adding: Batcher<NewJob>,
    replacing: Batcher<Replacing>,
    moving: Batcher<(String, When)>,
    cancelling: Batcher<String>,
    pub(crate) counted: Arc<Counted>,
}

impl<S> Clone for Queue<S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            adding: self.adding.clone(),
            replacing: self.replacing.clone(),
            moving: self.moving.clone(),
            cancelling: self.cancelling.clone(),
            counted: self.counted.clone(),
        }
    }
}

impl<S> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The queue did not do what it was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QueueError {
    /// A key has 1 to [`MAX_KEY`] bytes, and no control characters.
    Key,
    /// A payload has at most [`MAX_PAYLOAD`] bytes. This one has more.
    Payload(usize),
    /// The name of a kind has at most [`MAX_KIND`] bytes, and no control characters.
    Kind,
    /// The name of a queue has 1 to [`MAX_QUEUE`] bytes, and no control characters.
    Queue,
    /// A priority is 0, the highest, to [`LOWEST_PRIORITY`]. This one is another number.
    Priority(u8),
    /// A `traceparent` has the form `VERSION-TRACE-PARENT-FLAGS`, of 2, 32, 16 and 2 lower-case
    /// hexadecimal digits. The version is not `ff`, and neither the trace nor the parent is all
    /// zero. For headers there is [`parse_traceparent`](crate::job::parse_traceparent).
    Traceparent,
    /// The arguments of the job cannot be written as JSON.
    Args(Arc<dyn Error + Send + Sync>),
    /// The store's error.
    Store(StoreError),
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => write!(
                f,
                "a key has 1 to {MAX_KEY} bytes, and no control characters"
            ),
            Self::Payload(length) => write!(
                f,
                "a payload has at most {MAX_PAYLOAD} bytes, and this one has {length}"
            ),
            Self::Kind => write!(
                f,
                "the name of a kind has at most {MAX_KIND} bytes, and no control characters"
            ),
            Self::Queue => write!(
                f,
                "the name of a queue has 1 to {MAX_QUEUE} bytes, and no control characters"
            ),
            Self::Priority(priority) => write!(
                f,
                "a priority is 0, the highest, to {LOWEST_PRIORITY}, and this one is {priority}"
            ),
            Self::Traceparent => f.write_str(
                "a traceparent is VERSION-TRACE-PARENT-FLAGS, of 2, 32, 16 and 2 lower-case \
                 hexadecimal digits, its version is not ff, and neither trace nor parent is all \
                 zero",
            ),
            Self::Args(error) => {
                write!(
                    f,
                    "the arguments of the job cannot be written as JSON: {error}"
                )
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for QueueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Args(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl From<StoreError> for QueueError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Request for NewJob {
    type Answer = Scheduled;

    fn key(&self) -> &str {
        &self.key
    }

    fn version(&self) -> u8 {
        self.version()
    }

    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// A job that may take the place of another one.
#[derive(Clone)]
struct Replacing(NewJob);

impl Request for Replacing {
    type Answer = Replaced;

    fn key(&self) -> &str {
        Request::key(&self.0)
    }

    fn version(&self) -> u8 {
        Request::version(&self.0)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Request for (String, When) {
    type Answer = Moved;

    fn key(&self) -> &str {
        &self.0
    }
}

impl Request for String {
    type Answer = Cancelled;

    fn key(&self) -> &str {
        self
    }
}

/// Lets the store serve requests by one of its methods, which may take what is in them.
macro_rules! serves {
    ($($request:ty: $method:ident $(of $content:expr)?,)*) => {
        $(impl<S: Store> Serve<$request> for ByStore<S> {
            async fn serve(
                &self,
                requests: Vec<$request>,
            ) -> Result<Vec<<$request as Request>::Answer>, StoreError> {
                $(let requests = requests.into_iter().map($content).collect();)?
                self.store()?.$method(requests).await
            }

            async fn locked(&self, keys: Vec<String>) -> Result<HashSet<String>, StoreError> {
                self.store()?.locked(keys).await
            }
        })*
    };
}

/// Serves requests while somebody has the queue. So the store ends with the last clone of the queue
/// and the last node, even if the runtime of these tasks goes on and has no thread for them.
struct ByStore<S>(Weak<S>);

impl<S> ByStore<S> {
    fn store(&self) -> Result<Arc<S>, StoreError> {
        self.0.upgrade().ok_or(StoreError::Closed)
    }
}

serves! {
    NewJob: schedule,
    Replacing: schedule_or_replace of |Replacing(job)| job,
    (String, When): reschedule,
    String: cancel,
}

/// Checks a job.
fn job(mut job: NewJob) -> Result<NewJob, QueueError> {
    if job.payload.len() > MAX_PAYLOAD {
        return Err(QueueError::Payload(job.payload.len()));
    }
    if !is_kind(&job.kind) {
        return Err(QueueError::Kind);
    }
    if !is_queue(&job.queue) {
        return Err(QueueError::Queue);
    }
    if job.priority > LOWEST_PRIORITY {
        return Err(QueueError::Priority(job.priority));
    }
    if job
        .traceparent
        .as_deref()
        .is_some_and(|text| !is_traceparent(text))
    {
        return Err(QueueError::Traceparent);
    }
    job.key = key(job.key)?;
    Ok(job)
}

/// Checks a key.
fn key(key: impl Into<String>) -> Result<String, QueueError> {
    let key = key.into();
    let is_good = (1..=MAX_KEY).contains(&key.len()) && !key.contains(char::is_control);
    is_good.then_some(key).ok_or(QueueError::Key)
}

/// Returns whether a text may name a kind. The empty one is that of jobs without a kind.
pub(crate) fn is_kind(kind: &str) -> bool {
    kind.len() <= MAX_KIND && !kind.contains(char::is_control)
}

/// Checks the name of a queue.
fn queue(name: impl Into<String>) -> Result<String, QueueError> {
    let name = name.into();
    is_queue(&name).then_some(name).ok_or(QueueError::Queue)
}

/// Returns whether a text may name a queue.
pub(crate) fn is_queue(name: &str) -> bool {
    (1..=MAX_QUEUE).contains(&name.len()) && !name.contains(char::is_control)
}

impl<S: Store> Queue<S> {
    /// Makes a queue of the jobs in a store.
    ///
    /// Any executor may poll the futures of its methods. In a Tourbillon runtime, requests are sent
    /// by tasks of that runtime, and fail with [`StoreError::Closed`] after its end. Elsewhere the
    /// thread of this library sends them. The store ends when the last clone of the queue and the
    /// last node are gone, unless a request is at the store just then.
    pub fn new(store: S) -> Self {
        let store = Arc::new(store);
        let by_store = || ByStore(Arc::downgrade(&store));
        Self {
            adding: Batcher::start(by_store()),
            replacing: Batcher::start(by_store()),
            moving: Batcher::start(by_store()),
            cancelling: Batcher::start(by_store()),
            counted: Arc::default(),
            store,
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// Returns what this queue and its clones were asked for.
    pub fn stats(&self) -> QueueStats {
        self.counted.read()
    }

    /// Adds a job without a kind. Once this returns, the job survives the process and the machine.
    ///
    /// A queue has at most one job of a key, so a client that got no answer can ask again. A job
    /// that is done has left the queue, and its key is free, unless it
    /// [stays taken](NewJob::unique_for).
    ///
    /// # Errors
    ///
    /// Fails if the key or the payload is out of bounds, or if the store does.
    pub async fn schedule(
        &self,
        name: impl Into<String>,
        when: impl Into<When>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Scheduled, QueueError> {
        self.schedule_job(NewJob::new(name, when, payload)).await
    }

    /// Adds a job, as [`schedule`](Self::schedule) does, which may have a kind, a queue and a
    /// priority, may keep its key for a time after it is done ([`NewJob::unique_for`]), and may
    /// carry the trace context of who adds it ([`NewJob::traceparent`]).
    ///
    /// A kind chooses the handler: only nodes that have one of this kind run the job. See
    /// [`NodeBuilder::on_kind`](crate::node::NodeBuilder::on_kind).
    ///
    /// # Errors
    ///
    /// Fails if the key, the kind, the queue, the priority or the payload is out of bounds, if the
    /// `traceparent` has another form, or if the store fails. While nodes of an earlier version
    /// have leases, stores on servers fail with [`StoreError::EarlierNodes`] for jobs that have a
    /// kind, or another queue or priority than the default, or whose keys are to stay taken. A
    /// lease that has run out counts until a node has taken its jobs over.
    pub async fn schedule_job(&self, new: NewJob) -> Result<Scheduled, QueueError> {
        Ok(self.counted.note(self.adding.call(job(new)?).await)?)
    }

    /// Adds a job, in place of the job of its key, if there is one.
    ///
    /// Nothing of the other job stays: the new one has its own payload, time, kind, queue,
    /// priority, pattern, `unique_for` and `traceparent`, all its attempts, and no error. So this
    /// is [`cancel`](Self::cancel) and [`schedule_job`](Self::schedule_job) in one step, whether
    /// the other job waits for its time or for its next attempt, or is dead. A node that has it in
    /// a timer does not begin it.
    ///
    /// If an attempt of the other job runs at this moment, the answer is
    /// [`Replaced::WhileRunning`]. The attempt goes on, and learns that it is
    /// [cancelled](crate::node::Interrupt::Cancelled). Its token is stale, so how it ends does not
    /// matter, and it is not tried again. The new job runs at its time, also if this attempt still
    /// runs then; its token is higher. So what a client asked for last is never lost. To leave jobs
    /// alone that run, call `schedule_job`.
    ///
    /// A key that a job keeps which is done ([`NewJob::unique_for`]) is no hindrance: the answer is
    /// [`Replaced::Created`], as no job is there.
    ///
    /// A client that got no answer can ask again. If its job has begun meanwhile, it runs once
    /// more.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule_job`](Self::schedule_job) does. Then the other job is as it was, unless
    /// the answer of the store was lost.
    pub async fn schedule_or_replace(&self, new: NewJob) -> Result<Replaced, QueueError> {
        let answer = self.replacing.call(Replacing(job(new)?)).await;
        Ok(self.counted.note(answer)?)
    }

    /// Adds a job of the kind of its arguments, which are its payload, as JSON. See
    /// [`NodeBuilder::on`](crate::node::NodeBuilder::on). To give the job a queue, say, make it by
    /// [`NewJob::with_args`].
    ///
    /// # Errors
    ///
    /// Fails as [`schedule_job`](Self::schedule_job) does, or if the arguments cannot be written as
    /// JSON.
    #[cfg(feature = "json")]
    pub async fn schedule_args<A: crate::JobArgs>(
        &self,
        name: impl Into<String>,
        when: impl Into<When>,
        args: &A,
    ) -> Result<Scheduled, QueueError> {
        self.schedule_job(NewJob::with_args(name, when, args)?)
            .await
    }

    /// Makes a job due at another time, and counts its attempts anew. A dead job lives again.
    ///
    /// With [`When::Cron`] the job gets this pattern; otherwise a cron job goes on with its pattern
    /// after the run at this time.
    ///
    /// # Errors
    ///
    /// Fails if the key is out of bounds, or if the store does.
    pub async fn reschedule(
        &self,
        name: impl Into<String>,
        when: impl Into<When>,
    ) -> Result<Moved, QueueError> {
        let answer = self.moving.call((key(name)?, when.into())).await;
        Ok(self.counted.note(answer)?)
    }

    /// Removes a job. Its key is free from here on, also if the job is done and has kept it.
    ///
    /// # Errors
    ///
    /// Fails if the key is out of bounds, or if the store does.
    pub async fn cancel(&self, name: impl Into<String>) -> Result<Cancelled, QueueError> {
        Ok(self.counted.note(self.cancelling.call(key(name)?).await)?)
    }

    /// Pauses the queue of this name: no attempt of its jobs begins any more, on any node, until
    /// [`resume`](Self::resume). Attempts that run go on, and can fail and snooze. Clients add,
    /// move and cancel jobs as before.
    ///
    /// When this returns, the store has begun the last attempt. So when no job of the queue is
    /// [`Running`](crate::job::State::Running) after that, none runs. A pause outlives all
    /// processes.
    ///
    /// # Errors
    ///
    /// Fails if the name is out of bounds, or if the store does. Then the queue may be paused
    /// already: call this again. While nodes of an earlier version have leases, stores on servers
    /// fail with [`StoreError::EarlierNodes`].
    pub async fn pause(&self, name: impl Into<String>) -> Result<(), QueueError> {
        Ok(self.store.set_paused(queue(name)?, true).await?)
    }

    /// Lets the queue of this name go on after a [`pause`](Self::pause). Jobs that came to be due
    /// meanwhile begin, those of higher priorities and the earliest ones first. Of a cron job, this
    /// is one occurrence.
    ///
    /// # Errors
    ///
    /// Fails as [`pause`](Self::pause) does.
    pub async fn resume(&self, name: impl Into<String>) -> Result<(), QueueError> {
        Ok(self.store.set_paused(queue(name)?, false).await?)
    }

    /// Returns the names of the queues that are paused, in their order.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn paused(&self) -> Result<Vec<String>, QueueError> {
        Ok(self.store.paused().await?)
    }

    /// Returns a job, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the key is out of bounds, or if the store does.
    pub async fn get(&self, name: impl Into<String>) -> Result<Option<Job>, QueueError> {
        Ok(self.store.get(key(name)?).await?)
    }

    /// Returns jobs by their keys.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn list(&self, listing: Listing) -> Result<Vec<Job>, QueueError> {
        Ok(self.store.list(listing).await?)
    }

    /// Counts the jobs.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn count(&self) -> Result<Counts, QueueError> {
        Ok(self.store.count().await?)
    }
}
