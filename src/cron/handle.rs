//! A job as its user has it.

use std::{fmt, ops::Deref, sync::Arc, time::SystemTime};

use jiff::Zoned;

use super::{driver::Driver, job::End, schedule::Schedule};
use crate::timer::{Cancel, Outcome};

/// A callback that runs by a [`Schedule`].
///
/// Every method may be called from any thread, and none waits. Dropping a `CronJob` detaches it:
/// the job goes on until its runtime is shut down. See [`cancel_on_drop`](CronJob::cancel_on_drop).
///
/// A run that panics is counted as one, and the job goes on.
pub struct CronJob(Arc<Driver>);

impl CronJob {
    pub(super) fn new(driver: Arc<Driver>) -> Self {
        Self(driver)
    }

    /// Cancels the job: no run begins any more, and those that wait are dropped. A run in progress
    /// goes on to its end.
    ///
    /// [`Cancel::Cancelled`] if none was in progress: then the callback is dropped before this
    /// returns. [`Cancel::AfterRun`] if one was, or had been handed to a worker; [`Cancel::Over`]
    /// if the job had ended.
    pub fn cancel(&self) -> Cancel {
        self.0.cancel()
    }

    /// When the next occurrence is due; those that wait for a run to end have been. `None` if the
    /// job is over.
    pub fn next(&self) -> Option<SystemTime> {
        self.0.look(|job| job.next())
    }

    /// As [`next`](CronJob::next), as clocks show it in the job's time zone.
    pub fn next_zoned(&self) -> Option<Zoned> {
        self.0.look(|job| job.schedule().zoned(job.next()?))
    }

    /// When the job runs.
    pub fn schedule(&self) -> Schedule {
        self.0.look(|job| job.schedule().clone())
    }

    /// Returns whether a run is in progress, or has been handed to a worker.
    pub fn is_running(&self) -> bool {
        self.running() > 0
    }

    /// Returns how many runs are in progress, or have been handed to a worker: more than one only
    /// under [`Overlap::Both`](super::Overlap::Both).
    pub fn running(&self) -> usize {
        self.0.look(|job| job.running())
    }

    /// Returns how many runs have begun.
    pub fn runs(&self) -> u64 {
        self.0.look(|job| job.started())
    }

    /// Returns how many occurrences were not run, by what the job's [`Overlap`](super::Overlap) and
    /// [`Missed`](super::Missed) say. Of those that passed at once, no more than 1000 are counted.
    pub fn skipped(&self) -> u64 {
        self.0.look(|job| job.skipped())
    }

    /// Returns how the job ended: [`Outcome::Cancelled`]; [`Outcome::Shutdown`], with its runtime;
    /// or [`Outcome::Fired`], because it has run for the last time before the end of the calendar.
    /// `None` while it goes on.
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.look(|job| {
            job.end().map(|end| match end {
                End::Cancelled => Outcome::Cancelled,
                End::Shutdown => Outcome::Shutdown,
                End::Finished => Outcome::Fired,
            })
        })
    }

    /// Cancels the job when the guard is dropped.
    pub fn cancel_on_drop(self) -> CancelOnDrop {
        CancelOnDrop(Some(self))
    }
}

impl fmt::Debug for CronJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CronJob")
            .field("schedule", &self.schedule())
            .field("next", &self.next_zoned())
            .field("running", &self.running())
            .field("runs", &self.runs())
            .field("outcome", &self.outcome())
            .finish()
    }
}

/// A [`CronJob`] that is cancelled when this is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard cancels the job"]
pub struct CancelOnDrop(
    /// Taken by `detach` alone.
    Option<CronJob>,
);

impl CancelOnDrop {
    /// Gives the job back: it is not cancelled.
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
