//! What the clients of a queue asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Cancelled, DeadPart, Moved, Replaced, Scheduled, StoreError};

/// What a [`Queue`](crate::Queue) and its clones were asked for since the queue was made, by the
/// answers. Requests that are out of bounds do not count, as the store was not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Jobs that were added.
    pub created: u64,
    /// Jobs that were not added, as their keys are taken.
    pub existing: u64,
    /// Jobs that took the place of another one, which did not run.
    pub replaced: u64,
    /// Jobs that took the place of another one while it ran.
    pub replaced_running: u64,
    /// Jobs that were moved.
    pub moved: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Dead jobs that were retried by [`retry_dead`](crate::Queue::retry_dead).
    pub retried: u64,
    /// Dead jobs that were removed by [`discard_dead`](crate::Queue::discard_dead).
    pub discarded: u64,
    /// Moves and cancels of jobs that were not there.
    pub missing: u64,
    /// Jobs and moves whose cron patterns have no further occurrence.
    pub never: u64,
    /// Requests that failed at the store.
    pub failed: u64,
}

/// The counters of a queue.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    created: AtomicU64,
    existing: AtomicU64,
    replaced: AtomicU64,
    replaced_running: AtomicU64,
    moved: AtomicU64,
    cancelled: AtomicU64,
    retried: AtomicU64,
    discarded: AtomicU64,
    missing: AtomicU64,
    never: AtomicU64,
    failed: AtomicU64,
}

/// An answer to a client.
pub(crate) trait Answer {
    /// Returns the counter of such answers.
    fn counter<'a>(&self, counted: &'a Counted) -> &'a AtomicU64;
}

impl Answer for Scheduled {
    fn counter<'a>(&self, counted: &'a Counted) -> &'a AtomicU64 {
        match self {
            Self::Created { .. } => &counted.created,
            Self::Exists { .. } => &counted.existing,
            Self::Never => &counted.never,
        }
    }
}

impl Answer for Replaced {
    fn counter<'a>(&self, counted: &'a Counted) -> &'a AtomicU64 {
        match self {
            Self::Created { .. } => &counted.created,
            Self::Replaced { .. } => &counted.replaced,
            Self::WhileRunning { .. } => &counted.replaced_running,
            Self::Never => &counted.never,
        }
    }
}

impl Answer for Moved {
    fn counter<'a>(&self, counted: &'a Counted) -> &'a AtomicU64 {
        match self {
            Self::Moved { .. } | Self::WhileRunning { .. } => &counted.moved,
            Self::NotFound => &counted.missing,
            Self::Never => &counted.never,
        }
    }
}

impl Answer for Cancelled {
    fn counter<'a>(&self, counted: &'a Counted) -> &'a AtomicU64 {
        match self {
            Self::Cancelled | Self::WhileRunning => &counted.cancelled,
            Self::NotFound => &counted.missing,
        }
    }
}

impl Counted {
    /// Counts an answer.
    pub(crate) fn note<A: Answer>(&self, answer: Result<A, StoreError>) -> Result<A, StoreError> {
        let counter = match &answer {
            Ok(answer) => answer.counter(self),
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Counts the jobs that were retried.
    pub(crate) fn note_retried(
        &self,
        answer: Result<DeadPart, StoreError>,
    ) -> Result<DeadPart, StoreError> {
        self.note_part(&self.retried, answer)
    }

    /// Counts the dead jobs that were removed.
    pub(crate) fn note_discarded(
        &self,
        answer: Result<DeadPart, StoreError>,
    ) -> Result<DeadPart, StoreError> {
        self.note_part(&self.discarded, answer)
    }

    fn note_part(
        &self,
        counter: &AtomicU64,
        answer: Result<DeadPart, StoreError>,
    ) -> Result<DeadPart, StoreError> {
        match &answer {
            Ok(part) => counter.fetch_add(part.changed, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
        answer
    }

    pub(crate) fn read(&self) -> QueueStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueStats {
            created: read(&self.created),
            existing: read(&self.existing),
            replaced: read(&self.replaced),
            replaced_running: read(&self.replaced_running),
            moved: read(&self.moved),
            cancelled: read(&self.cancelled),
            retried: read(&self.retried),
            discarded: read(&self.discarded),
            missing: read(&self.missing),
            never: read(&self.never),
            failed: read(&self.failed),
        }
    }
}
