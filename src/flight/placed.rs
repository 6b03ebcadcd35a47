//! Where a late timer is in the heat maps of lateness: by when which thread took and ran it.

use crate::{
    engine::recorder::copy::Thread,
    flight::analysis::{Facts, Found},
};

/// A late timer, and where it was counted. It is not explained yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) found: Found,
    /// From its deadline until it was taken from its store.
    pub(crate) wake: Stage,
    /// From there until it ran, if it was seen to run.
    pub(crate) queue: Option<Stage>,
    /// Whether a peer took it from a stuck worker.
    pub(crate) is_rescued: bool,
}

/// A stage of a timer's lateness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    /// The thread in whose histogram it is.
    pub(crate) who: Thread,
    /// When the stage ended, in ns.
    pub(crate) at: u64,
    /// How long it took, in ns.
    pub(crate) late: u64,
}

/// What identifies a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    home: Option<usize>,
    deadline: u64,
    ran: Option<u64>,
}

impl Key {
    #[cfg(test)]
    pub(crate) fn of_deadline(deadline: u64) -> Self {
        Self {
            home: Some(0),
            deadline,
            ran: None,
        }
    }

    /// Returns whether `self` was seen to run, and `other`, which was only seen to be taken, may be
    /// that timer.
    pub(crate) fn completes(self, other: Self) -> bool {
        let is_due = (self.home, self.deadline) == (other.home, other.deadline);
        is_due && self.ran.is_some() && other.ran.is_none()
    }
}

impl Placed {
    pub(crate) fn new(found: Found, facts: &Facts<'_>) -> Self {
        let (run, home) = match found {
            Found::Ran { run, home } => (run, Some(home)),
            Found::OtherClock { run, .. } => (run, None),
            Found::Taken(batch) => {
                return Self {
                    found,
                    wake: Stage {
                        who: batch.by,
                        at: batch.at,
                        late: batch.late,
                    },
                    queue: None,
                    is_rescued: batch.rescue.is_some(),
                };
            }
        };
        // The batch knows the moment exactly, and the thread.
        let batch = home.and_then(|home| facts.batch_of(run.taken, home));
        let taken = batch.map_or(run.taken, |batch| batch.at);
        let taken = taken.clamp(run.deadline(), run.at);
        let who = batch.map_or(home.map_or(run.by, Thread::Worker), |batch| batch.by);
        Self {
            found,
            wake: Stage {
                who,
                at: taken,
                late: taken - run.deadline(),
            },
            queue: Some(Stage {
                who: run.by,
                at: run.at,
                late: run.at - taken,
            }),
            is_rescued: batch.is_some_and(|batch| batch.rescue.is_some()),
        }
    }

    /// Returns what identifies a timer: its owner, its deadline, and when it ran, if that was seen.
    pub(crate) fn key(&self) -> Key {
        let (home, deadline) = match self.found {
            Found::Ran { run, home } => (Some(home), run.deadline()),
            Found::OtherClock { run, .. } => (None, run.deadline()),
            Found::Taken(batch) => (Some(batch.home), batch.deadline()),
        };
        Key {
            home,
            deadline,
            ran: self.queue.map(|queue| queue.at),
        }
    }

    /// Returns the lateness of both stages, in ns.
    pub(crate) fn late(&self) -> u64 {
        self.wake.late + self.queue.map_or(0, |queue| queue.late)
    }

    /// Returns whether it was queued for longer than it stayed in its store after its deadline.
    pub(crate) fn is_mostly_queued(&self) -> bool {
        self.queue.is_some_and(|queue| queue.late > self.wake.late)
    }
}
