//! What a worker is at.

use std::{fmt, panic::Location};

/// What a worker was at when somebody looked: a hint, which may be over by the time that it is read. Who wants to
/// know how much of its time goes where looks often, at moments that have nothing to do with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// It polls a task.
    Running,
    /// It runs a timer's callback.
    Firing,
    /// It looks at its timers and sockets.
    Polling,
    /// It searches the queues of others for work.
    Stealing,
    /// It sleeps, or is waking up.
    #[default]
    Parked,
}

/// The job that a worker is at. It displays as in a [`Stall`](crate::runtime::Stall).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobName {
    /// The type of the job: of a task its future's, of a timer its callback's, as
    /// [`std::any::type_name`] has it. A closure goes by the function that it stands in.
    pub name: &'static str,
    /// Where the task was spawned. Timers have none.
    pub spawned: Option<&'static Location<'static>>,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spawned {
            Some(at) => write!(f, "task {} (spawned at {at})", self.name),
            None => write!(f, "callback {}", self.name),
        }
    }
}
