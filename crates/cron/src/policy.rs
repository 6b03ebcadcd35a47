//! Policies for occurrences that cannot run when they are due.

use std::time::Duration;

/// What happens to an occurrence that comes due while a run is in progress, or waits for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// It is dropped. Runs of a job never overlap.
    #[default]
    Skip,
    /// It runs after the others, in the order in which they came due. Runs of a job never overlap.
    /// If runs take longer than the schedule's period, the queue grows without bound.
    Queue,
    /// It runs at once, at the same time as the other.
    Both,
}

/// What happens to occurrences that passed while the job could not run: the machine was suspended,
/// its clock was put forward, or the runtime had no free worker.
///
/// If several occurrences come due at once, all but the last are missed. The last is missed if it
/// is late by more than the job's [grace](crate::Cron::grace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They do not run. The job continues with the next occurrence that is on time.
    #[default]
    Skip,
    /// One run replaces all of them. Its scheduled time is that of the last one.
    Once,
    /// All of them run, one after the other. After years these may be very many.
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
