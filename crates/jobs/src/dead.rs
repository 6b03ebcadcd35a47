//! Dead jobs, retried and discarded many at a time.

use crate::{
    queue::{Queue, QueueError},
    store::Store,
};

/// How many jobs one call of [`Queue::retry_dead`] or [`Queue::discard_dead`] changes, at most.
pub const MOST_DEAD: usize = 500;

/// At how many dead jobs one such call looks, at most, if its filter leaves jobs out.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const DEAD_LOOKS: usize = 1000;

/// Which dead jobs to retry or to discard, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct DeadJobs {
    /// Only jobs whose key contains this text.
    pub search: String,
    /// Only jobs of this kind.
    pub kind: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only keys greater than this one: [`DeadPart::after`] of the call before.
    pub after: Option<String>,
    /// The maximum number of jobs. Zero counts as [`MOST_DEAD`], and so does a greater number. A
    /// store may change fewer: Redis changes 200, and the others 8 MiB of payloads.
    pub limit: usize,
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
impl DeadJobs {
    /// Returns the maximum number of jobs.
    pub(crate) fn most(&self) -> usize {
        match self.limit {
            0 => MOST_DEAD,
            limit => limit.min(MOST_DEAD),
        }
    }
}

/// What one call of [`Queue::retry_dead`] or [`Queue::discard_dead`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadPart {
    /// How many jobs it has changed.
    pub changed: u64,
    /// The key that it has reached. Behind it there may be more, which another call with this as
    /// [`DeadJobs::after`] changes. `None` if there are no more. In PostgreSQL, jobs that another
    /// session has locked are left as they are: begin again from the first key for these.
    pub after: Option<String>,
}

impl<S: Store> Queue<S> {
    /// Retries a part of the dead jobs: makes them due at once, with all their attempts. The first
    /// one of each has the number 1. They keep their keys, payloads, kinds, queues and priorities,
    /// but not their errors. This is [`reschedule`](Self::reschedule) for many jobs.
    ///
    /// **Only a job that is dead is touched.** The store looks at this in the step that changes the
    /// job. So one that waits or runs, or that a client has scheduled anew meanwhile, stays as it
    /// is. An attempt from before cannot end a retried job, as its token is stale.
    ///
    /// One call changes at most [`MOST_DEAD`] jobs, and looks at a bounded number. So repeat it from
    /// [`DeadPart::after`] until there is no more. The calls go by keys, in one direction: a job
    /// that dies again behind them is not retried once more, and one that dies before them is. A
    /// call that failed can be repeated.
    ///
    #[cfg_attr(feature = "sqlite", doc = "```")]
    #[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
    /// # use tourbillon_jobs::{Queue, sqlite::Sqlite};
    /// use tourbillon_jobs::store::DeadJobs;
    ///
    /// # let path = std::env::temp_dir().join(format!("retry-{}.db", std::process::id()));
    /// # tourbillon::Runtime::new()?.block_on(async {
    /// # let queue = Queue::new(Sqlite::open(&path)?);
    /// let mut mails = DeadJobs {
    ///     kind: Some("mail".into()),
    ///     ..DeadJobs::default()
    /// };
    /// let mut retried = 0;
    /// loop {
    ///     let part = queue.retry_dead(mails.clone()).await?;
    ///     retried += part.changed;
    ///     if part.after.is_none() {
    ///         break;
    ///     }
    ///     mails.after = part.after;
    /// }
    /// # assert_eq!(retried, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn retry_dead(&self, which: DeadJobs) -> Result<DeadPart, QueueError> {
        let answer = self.store().retry_dead(which).await;
        Ok(self.counted.note_retried(answer)?)
    }

    /// Discards a part of the dead jobs: removes them, so that their keys are free. This is
    /// [`cancel`](Self::cancel) for many jobs, and takes parts and leaves jobs alone as
    /// [`retry_dead`](Self::retry_dead) does.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn discard_dead(&self, which: DeadJobs) -> Result<DeadPart, QueueError> {
        let answer = self.store().discard_dead(which).await;
        Ok(self.counted.note_discarded(answer)?)
    }
}
