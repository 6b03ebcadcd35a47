//! The handle of a job.

use std::{fmt, ops::Deref, sync::Arc, time::SystemTime};

use jiff::Zoned;
use tourbillon::timer::{Cancel, Outcome};

use crate::{driver::Driver, job::End, schedule::Schedule};

/// A handle to a callback that runs on a [`Schedule`].
///
/// Any thread may call any method, and none of them waits. Dropping a `CronJob` detaches it: the
/// job continues until its runtime is shut down. See [`cancel_on_drop`](CronJob::cancel_on_drop).
///
/// A run that panics counts as a run, and the job continues.
pub struct CronJob(Arc<Driver>);

impl CronJob {
    pub(crate) fn new(driver: Arc<Driver>) -> Self {
        Self(driver)
    }

    /// Cancels the job. No further run begins, and waiting runs are dropped. A run in progress
    /// continues to its end.
    ///
    /// Returns [`Cancel::Cancelled`] if no run was in progress; the callback has then been dropped.
    /// Returns [`Cancel::AfterRun`] if a run was in progress or had been handed to a worker.
    /// Returns [`Cancel::Over`] if the job had ended already.
    pub fn cancel(&self) -> Cancel {
        self.0.cancel()
    }

    /// Returns the time of the next occurrence. Occurrences that wait for a run to end do not
    /// count. Returns `None` if the job has ended.
    pub fn next_at(&self) -> Option<SystemTime> {
        self.0.with_job(|job| job.next_at())
    }

    /// Returns the time of the next occurrence in the job's time zone. See
    /// [`next_at`](CronJob::next_at).
    pub fn next_zoned(&self) -> Option<Zoned> {
        self.0.with_job(|job| job.schedule().zoned(job.next_at()?))
    }

    /// Returns the schedule of the job.
    pub fn schedule(&self) -> Schedule {
        self.0.with_job(|job| job.schedule().clone())
    }

    /// Returns whether a run is in progress, or has been handed to a worker.
    pub fn is_running(&self) -> bool {
        self.num_running() > 0
    }

    /// Returns the number of runs that are in progress or have been handed to a worker. More than
    /// one is possible only with [`Overlap::Both`](crate::Overlap::Both).
    pub fn num_running(&self) -> usize {
        self.0.with_job(|job| job.num_running())
    }

    /// Returns the number of runs that have begun.
    pub fn runs(&self) -> u64 {
        self.0.with_job(|job| job.started())
    }

    /// Returns the number of occurrences that did not run because of the job's
    /// [`Overlap`](crate::Overlap) or [`Missed`](crate::Missed) policy. If many pass at once, at
    /// most 1000 of them are counted.
    pub fn skipped(&self) -> u64 {
        self.0.with_job(|job| job.skipped())
    }

    /// Returns how the job ended, or `None` if it has not.
    ///
    /// [`Outcome::Cancelled`] means that it was cancelled, [`Outcome::Shutdown`] that its runtime
    /// was shut down, and [`Outcome::Fired`] that its schedule has no more occurrences.
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.with_job(|job| {
            job.end().map(|end| match end {
                End::Cancelled => Outcome::Cancelled,
                End::Shutdown => Outcome::Shutdown,
                End::Finished => Outcome::Fired,
            })
        })
    }

    /// Converts the handle to a guard that cancels the job when it is dropped.
    pub fn cancel_on_drop(self) -> CancelOnDrop {
        CancelOnDrop(Some(self))
    }
}

impl fmt::Debug for CronJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CronJob")
            .field("schedule", &self.schedule())
            .field("next", &self.next_zoned())
            .field("running", &self.num_running())
            .field("runs", &self.runs())
            .field("outcome", &self.outcome())
            .finish()
    }
}

/// A guard that cancels its [`CronJob`] when it is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard cancels the job"]
pub struct CancelOnDrop(
    /// `None` only after `detach`.
    Option<CronJob>,
);

impl CancelOnDrop {
    /// Returns the job without cancelling it.
    pub fn detach(mut self) -> CronJob {
        self.0
            .take()
            .expect("only a consuming method takes the job")
    }
}

impl Deref for CancelOnDrop {
    type Target = CronJob;

    fn deref(&self) -> &CronJob {
        self.0
            .as_ref()
            .expect("only a consuming method takes the job")
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            job.cancel();
        }
    }
}
