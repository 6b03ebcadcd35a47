//! The current activity of a worker.

use std::{fmt, panic::Location};

use tourbillon_shards::TypeName;

use crate::metrics::{label::Label, spawned::Spawned};

/// The activity of a worker when the snapshot was taken.
///
/// It is a hint and may be outdated when it is read. To see where a worker spends its time, take
/// many snapshots at moments that are independent of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// The worker polls a task.
    Running,
    /// The worker runs a timer's callback.
    Firing,
    /// The worker checks its timers and sockets.
    Polling,
    /// The worker searches other queues for work.
    Stealing,
    /// The worker sleeps. This includes the moments in which it goes to sleep and wakes up.
    #[default]
    Parked,
}

/// The name of the job that a worker runs.
///
/// `Display` writes it as a [`Stall`](crate::runtime::Stall) does: `callback shop::expire`, or
/// `task shop::main (spawned at src/main.rs:31:9)`. A label comes first: `GET /report in task …`. A
/// group comes after the name: `task shop::pack of group batch (…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobName {
    /// The [name of the task](crate::task::Builder::name), if it has one. Otherwise the type name
    /// of the task's future or of the timer's callback, as in [`std::any::type_name`]. A closure
    /// has the name of the function that contains it.
    pub name: &'static str,
    /// The place where the task was spawned. `None` for timers.
    pub spawned: Option<&'static Location<'static>>,
    /// The text of the [label](crate::task::label) that the job has given itself.
    pub label: Option<&'static str>,
    /// The name of the [group](crate::task::Group) that the job belongs to. `None` for the default
    /// group.
    pub group: Option<&'static str>,
}

impl JobName {
    /// Creates a name, for tests of programs that read snapshots.
    pub fn new(name: &'static str, spawned: Option<&'static Location<'static>>) -> Self {
        Self {
            name,
            spawned,
            label: None,
            group: None,
        }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = self.label {
            write!(f, "{label} in ")?;
        }
        match self.spawned {
            Some(_) => write!(f, "task {}", self.name)?,
            None => write!(f, "callback {}", self.name)?,
        }
        if let Some(group) = self.group {
            write!(f, " of group {group}")?;
        }
        match self.spawned {
            Some(at) => write!(f, " (spawned at {at})"),
            None => Ok(()),
        }
    }
}

/// The type of a job, its place and the name that the user gave it, as references to static data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRef {
    pub(crate) name: &'static TypeName,
    pub(crate) spawned: Option<Spawned>,
    pub(crate) label: Option<Label>,
    /// The name of its group, if that is not the default one.
    pub(crate) group: Option<Label>,
}

impl JobRef {
    /// Returns a job without a label, in the default group.
    pub(crate) fn new(name: &'static TypeName, spawned: Option<Spawned>) -> Self {
        Self {
            name,
            spawned,
            label: None,
            group: None,
        }
    }

    /// Returns the name that people read.
    pub(crate) fn name(self) -> JobName {
        let given = self.spawned.and_then(Spawned::name);
        JobName {
            name: given.unwrap_or_else(|| self.name.get()),
            spawned: self.spawned.map(Spawned::place),
            label: self.label.map(Label::text),
            group: self.group.map(Label::text),
        }
    }
}
