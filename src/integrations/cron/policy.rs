//! What becomes of occurrences that cannot simply be run when they are due.

use std::time::Duration;

/// What becomes of an occurrence that comes due while a run is in progress, or waits for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// It is dropped. A job is never run twice at once.
    #[default]
    Skip,
    /// It is run after that, in the order in which they came due. A job is never run twice at once;
    /// one that takes longer than its schedule has between occurrences falls behind without bound.
    Queue,
    /// It is run at once, beside the other.
    Both,
}

/// What becomes of occurrences that passed while nobody could run them: the machine was suspended,
/// its clock was put forward, or the runtime had no worker to spare.
///
/// Missed are all that have come due at once but the last, and the last if it is late by more than
/// the job's [grace](crate::cron::builder::Cron::grace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They are not run: the job goes on with the next that is on time.
    #[default]
    Skip,
    /// One run stands for all of them, at the time of the last.
    Once,
    /// Each is run, one after the other. After years that is a great many.
    All,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) overlap: Overlap,
    pub(crate) missed: Missed,
    pub(crate) grace: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            overlap: Overlap::default(),
            missed: Missed::default(),
            grace: Duration::from_secs(60),
        }
    }
}
