//! What the queue and its nodes need of a store.

use std::{
    collections::HashSet,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::watch;
use tourbillon::time::Instant;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use crate::dead::DEAD_LOOKS;
use crate::job::{Job, NewJob, Repeat, Time, Token, When};
pub use crate::{
    dead::{DeadJobs, DeadPart, MOST_DEAD},
    error::StoreError,
    tls::TlsError,
};

/// The answer to [`Store::schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// The store has the job now.
    Created {
        /// When it is due.
        at: Time,
    },
    /// The store has a job of this key already, or one that is done has kept the key:
    /// [`NewJob::unique_for`]. Nothing was changed.
    Exists {
        /// When that job is due. If it is done, when the key is free.
        at: Time,
    },
    /// The cron pattern has no further occurrence. Nothing was changed.
    Never,
}

/// The answer to [`Store::schedule_or_replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// There was no job of this key. The store has the job now.
    Created {
        /// When it is due.
        at: Time,
    },
    /// The job takes the place of another one, which does not run: no attempt of that one begins
    /// from here on. An attempt whose lease ran out, or was released, does not count: it may still
    /// run, with a stale token.
    Replaced {
        /// When it is due.
        at: Time,
    },
    /// As `Replaced`; but an attempt of the other job was running, which goes on. Its token is
    /// stale, so its end is refused.
    WhileRunning {
        /// When the job is due.
        at: Time,
    },
    /// The cron pattern has no further occurrence. Nothing was changed.
    Never,
}

/// The answer to [`Store::reschedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The job is due at another time now. Its attempts count anew.
    Moved {
        /// When it is due.
        at: Time,
    },
    /// As `Moved`; but an attempt was running, which goes on. The job runs again at `at`.
    WhileRunning {
        /// When it is due.
        at: Time,
    },
    /// The store has no such job.
    NotFound,
    /// The cron pattern has no further occurrence. Nothing was changed.
    Never,
}

/// The answer to [`Store::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// No attempt begins from here on, and none was running. An attempt whose lease ran out, or was
    /// released, does not count: it may still run, with a stale token.
    Cancelled,
    /// No attempt begins from here on, but one was running, and goes on.
    WhileRunning,
    /// The store has no such job.
    NotFound,
}

/// A lease: a node may begin attempts of the jobs that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The number of the lease, which no other lease has or had.
    pub node: i64,
    /// Whether the lease runs out unless it is renewed. If not, [`Store::release`] must finish in
    /// its first poll, because the node's task may end after it.
    pub runs_out: bool,
}

/// A job that a node holds. Its payload comes with [`Begin::Yes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The name of the job.
    pub key: String,
    /// Which handler runs the job. It is empty for a job without a kind.
    pub kind: String,
    /// The name of its queue.
    pub queue: String,
    /// The priority: 0 is the highest.
    pub priority: u8,
    /// The moment for which the job was scheduled.
    pub due: Time,
    /// When the next attempt may begin.
    pub at: Time,
    /// How many attempts have begun.
    pub attempts: u32,
    /// The pattern and the time zone of a cron job.
    pub repeat: Option<Repeat>,
    /// The length of the payload, in bytes.
    pub size: usize,
    /// The token of this holder.
    pub token: Token,
    /// The trace context of who added the job: see [`NewJob::traceparent`].
    pub traceparent: Option<String>,
}

/// Which jobs a node looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Those that are due.
    Due,
    /// Those that are due, and have a higher priority than this one, so a lower number.
    Above(u8),
    /// Those that are not due yet, and are due within this time.
    Within(Duration),
}

/// Of which kinds a node runs jobs. Jobs without a kind have the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Of all.
    #[default]
    All,
    /// Of these.
    Only(Arc<[String]>),
}

impl Kinds {
    /// Names some kinds.
    pub fn only<K: Into<String>>(kinds: impl IntoIterator<Item = K>) -> Self {
        Self::Only(kinds.into_iter().map(Into::into).collect())
    }
}

/// An attempt that a node is about to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub key: String,
    /// The token of this holder.
    pub token: Token,
    /// The next attempt does not begin before this time after the begin of this one, unless this
    /// one ends before.
    pub wait: Duration,
}

/// The answer to [`Store::begin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The attempt begins.
    Yes {
        /// The number of the job's attempts, this one included.
        number: u32,
        /// The job's payload.
        payload: Vec<u8>,
    },
    /// By the store's clock, the job is not due yet.
    Early,
    /// The queue of the job is paused. The node still holds the job.
    Paused,
    /// The node holds the job no longer.
    No,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The job is done, and leaves the store. It may keep its key: [`NewJob::unique_for`].
    Done,
    /// This occurrence of a cron job is over. `error` says why it failed, if it did.
    Next {
        /// The next occurrence.
        at: Time,
        /// The time of the store's clock from which it was computed.
        counted: Time,
        /// The error of the last attempt.
        error: Option<String>,
    },
    /// The attempt failed, and another one follows.
    Retry {
        /// The time until the next attempt.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// The attempt does not count, and another one follows. The job keeps its error.
    Snooze {
        /// The time until the next attempt.
        delay: Duration,
    },
    /// The attempt failed, and no other one follows.
    Dead {
        /// Why it failed.
        error: String,
    },
}

/// The end of an attempt, as a node reports it.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The job.
    pub key: String,
    /// The token of the attempt.
    pub token: Token,
    /// How the attempt ended.
    pub end: End,
}

/// A moment at which a timer has to run.
#[derive(Clone, Copy, Debug)]
pub enum Deadline {
    /// A time of the machine's wall clock, which is the store's clock.
    Wall(SystemTime),
    /// An instant of this process. The store's clock is of another machine.
    Monotonic(Instant),
}

/// Which jobs to list, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Only jobs whose key contains this text.
    pub search: String,
    /// Only jobs of this kind.
    pub kind: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only dead jobs, or only the others.
    pub dead: Option<bool>,
    /// Only keys greater than this one: the last key of the page before.
    pub after: Option<String>,
    /// The maximum number of jobs.
    pub limit: usize,
    /// How many bytes of each payload and of each error the list has, at most. The rest is left
    /// out, so that a list of large jobs is small. [`Store::get`] returns a whole job.
    pub beginning: usize,
}

/// How many jobs a store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that are not dead.
    pub live: u64,
    /// Dead jobs.
    pub dead: u64,
}

/// A store of jobs.
///
/// A store decides alone what happened: a request is acknowledged only after its change is on the
/// disk. `DESIGN.md` has the states of a job and the promises.
pub trait Store: Send + Sync + 'static {
    /// Adds jobs, and answers for each of them. All of one call are added, or none is.
    fn schedule(
        &self,
        jobs: Vec<NewJob>,
    ) -> impl Future<Output = Result<Vec<Scheduled>, StoreError>> + Send;

    /// Adds jobs, each in place of the job of its key, if there is one. This is
    /// [`cancel`](Self::cancel) and [`schedule`](Self::schedule) in one step, for each job: nobody
    /// finds the key without a job in between. It goes in this order, so of several jobs of a key
    /// the last one stays.
    fn schedule_or_replace(
        &self,
        jobs: Vec<NewJob>,
    ) -> impl Future<Output = Result<Vec<Replaced>, StoreError>> + Send;

    /// Makes jobs due at other times, in this order. Dead jobs live again.
    fn reschedule(
        &self,
        moves: Vec<(String, When)>,
    ) -> impl Future<Output = Result<Vec<Moved>, StoreError>> + Send;

    /// Removes jobs. Their keys are free from here on, also those that are kept. A job that is done
    /// is not found.
    fn cancel(
        &self,
        keys: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Cancelled>, StoreError>> + Send;

    /// Makes a part of the dead jobs due at once, each if it is dead at this moment. Their attempts
    /// count anew, as after [`reschedule`](Self::reschedule).
    ///
    /// This is one change of a bounded size. Leaves jobs alone that somebody has locked.
    fn retry_dead(
        &self,
        which: DeadJobs,
    ) -> impl Future<Output = Result<DeadPart, StoreError>> + Send;

    /// Removes a part of the dead jobs, as [`retry_dead`](Self::retry_dead) makes them due.
    fn discard_dead(
        &self,
        which: DeadJobs,
    ) -> impl Future<Output = Result<DeadPart, StoreError>> + Send;

    /// Pauses a queue, or lets it go on. Once it is paused, no attempt of its jobs begins, and no
    /// node becomes the holder of one. What it was before does not matter.
    ///
    /// Fails with [`StoreError::EarlierNodes`] while nodes have leases that know no pauses.
    fn set_paused(
        &self,
        queue: String,
        is_paused: bool,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the names of the queues that are paused, in their order.
    fn paused(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Returns those of these keys whose jobs somebody has locked at this moment. Does not wait for
    /// them. It is asked for after [`StoreError::Locked`], so that the others are done without
    /// them.
    fn locked(
        &self,
        _keys: Vec<String>,
    ) -> impl Future<Output = Result<HashSet<String>, StoreError>> + Send {
        async { Ok(HashSet::new()) }
    }

    /// Returns a job.
    fn get(&self, key: String) -> impl Future<Output = Result<Option<Job>, StoreError>> + Send;

    /// Returns jobs by their keys.
    fn list(&self, listing: Listing) -> impl Future<Output = Result<Vec<Job>, StoreError>> + Send;

    /// Counts the jobs.
    fn count(&self) -> impl Future<Output = Result<Counts, StoreError>> + Send;

    /// Grants a new lease of this length.
    fn register(&self, length: Duration) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Extends a lease to this length from now. Returns `false` if this lease is over.
    fn renew(
        &self,
        node: i64,
        length: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Takes the jobs from all leases that ran out, in parts. The future may be dropped in between,
    /// and a later call goes on.
    fn free_others(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        async { Ok(()) }
    }

    /// Ends a lease. Its jobs may have other holders from here on.
    fn release(&self, node: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes a node the holder of at most `most` jobs of this span, this queue and these kinds that
    /// have no holder. Those of the highest priority come first, of one priority those of the kind
    /// with the earliest job, and of one kind the earliest. Returns fewer than `most` only if there
    /// are no more, or if others are locked: see [`skipped`](Self::skipped). Returns none if the
    /// lease is over, or if the queue is paused.
    fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Held>, StoreError>> + Send;

    /// Returns whether a job of this span, this queue and these kinds has no holder, although
    /// [`hold`](Self::hold) has just returned all that it could take: somebody has locked it. Of a
    /// queue that is paused, none has.
    fn skipped(
        &self,
        _span: Span,
        _queue: &str,
        _kinds: &Kinds,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        async { Ok(false) }
    }

    /// Takes jobs from the holder that has these tokens. They may have other holders from here on.
    ///
    /// Returns those that it has left to the holder, because somebody has locked them.
    fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> impl Future<Output = Result<Vec<(String, Token)>, StoreError>> + Send;

    /// Begins attempts, if the jobs are due, these are still their tokens, and their queues are not
    /// paused.
    ///
    /// The number of each attempt and the earliest time of the next one are on the disk before this
    /// returns. So an attempt counts although its process never reports its end.
    fn begin(
        &self,
        attempts: Vec<Start>,
    ) -> impl Future<Output = Result<Vec<Begin>, StoreError>> + Send;

    /// Returns for each attempt whether its token is still the job's.
    fn are_current(
        &self,
        attempts: Vec<(String, Token)>,
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Ends attempts. Returns `false` for each token that is not the job's any more.
    fn finish(
        &self,
        attempts: Vec<Finish>,
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Counts times again that the store, or a node, counted from the store's clock, if this clock
    /// was put back since, as it was ahead. Times that a client gave stay. Jobs that run are left
    /// alone, and other ones lose their holders. Also forgets the keys that are free again.
    fn recount(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns a receiver that learns when a job without a holder came to be due soon, or a queue
    /// goes on.
    fn changes(&self) -> Changes;

    /// Returns a time that the store's clock has reached.
    fn now(&self) -> Time;

    /// Returns when a timer for a time of the store's clock has to run.
    fn deadline(&self, at: Time) -> Deadline;
}

/// The end of a [`Changes`] that a store holds.
#[derive(Debug)]
pub struct Changed(watch::Sender<()>);

impl Changed {
    /// Makes a sender without receivers.
    #[expect(clippy::new_without_default, reason = "a store makes one, explicitly")]
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Tells all receivers.
    pub fn tell(&self) {
        self.0.send_replace(());
    }

    /// Makes a receiver of later changes.
    pub fn receiver(&self) -> Changes {
        Changes(self.0.subscribe())
    }
}

/// Learns when a job without a holder came to be due soon: see [`Store::changes`].
#[derive(Debug)]
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Waits for a change since the last call, or since the receiver was made. Waits for ever if
    /// the store has ended.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
