//! Dumps of a runtime's tasks: what each does, and what it waits for.
//!
//! [`Handle::dump`] lists the tasks of a runtime. The types have the names of tokio's.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::{Runtime, time::sleep};
//!
//! # fn main() -> Result<(), tourbillon::BuildError> {
//! let runtime = Runtime::new()?;
//! runtime.spawn(sleep(Duration::from_secs(60)));
//! for task in runtime.handle().dump().tasks().iter() {
//!     // task 1 tourbillon::time::sleep::Sleep (spawned at src/main.rs:6:9): waiting
//!     println!("{task}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Differences from tokio
//!
//! tokio's `Handle::dump` polls each task again, and records a backtrace where the task would wait.
//! For that it stops all workers, so it never ends if one of them is stuck. 10,000 tasks that sleep
//! keep all workers for 130 ms. (tokio 1.54.1 with `taskdump`, two workers; 2026-11-29, a busy
//! virtual machine with 2 cores.) Here a dump polls no task, and no debug information is needed. It
//! also comes from a runtime whose workers are all stuck, and is no future. It costs some 100 ns
//! for each task and socket.
//!
//! At which line a task waits is told by [`Handle::trace_waits`], and with names of functions and
//! lines by `dump` of the crate `tourbillon-stacks`. The workers poll each task once more for that,
//! among their other work, so nothing is stopped.
//!
//! [`Handle::dump`]: crate::Handle::dump
//! [`Handle::trace_waits`]: crate::Handle::trace_waits

use std::{
    collections::HashMap, fmt, ops::ControlFlow, os::fd::RawFd, panic::Location, sync::Arc,
    time::Duration,
};

use tourbillon_shards::TypeName;
use tourbillon_tasks::{Status, TaskRef};

use crate::{
    engine::{
        handle::Handle,
        shared::Shared,
        task_core::{id::Id, meta::TaskMeta},
    },
    metrics::activity::JobRef,
    reactor::{Direction, Directions},
};

impl Handle {
    /// Lists the tasks of the runtime, with what each does and waits for: see
    /// [`dump`](crate::runtime::dump).
    ///
    /// It stops no worker, and also answers while all workers are stuck.
    pub fn dump(&self) -> Dump {
        self.dump_at_most(usize::MAX)
    }

    /// Lists at most `most` tasks of the runtime, as [`dump`](Handle::dump) does, where there are
    /// too many to list all.
    ///
    /// ```
    /// use std::future::pending;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let handle = tourbillon::Handle::current();
    /// for _ in 0..3 {
    ///     tourbillon::spawn(pending::<()>());
    /// }
    /// assert!(handle.dump_at_most(2).tasks().iter().count() <= 2);
    /// # });
    /// ```
    pub fn dump_at_most(&self, most: usize) -> Dump {
        Dump::new(self.shared(), most)
    }

    /// Has each task polled once more, and calls `waits` wherever it then waits. Returns the tasks
    /// as [`dump`](Handle::dump) does, without those that ended meanwhile.
    ///
    /// A future that waits clones its waker. `waits` is called at each such clone during these
    /// polls, on the polling thread. So a backtrace that is taken there names what the task waits
    /// in, and all that awaits it: `dump` of the crate `tourbillon-stacks` takes them. A task that
    /// awaits several futures at once, as in `join!`, has several calls. A panic of `waits` is
    /// caught.
    ///
    /// The tasks are woken, some hundred at a time, and polled where they are polled otherwise. The
    /// polls are like others: deadlines, messages and places in queues stay as they are. A task is
    /// not [traced](Task::is_traced) if it runs when this is called, or if no worker polls it
    /// within `limit`. Threads that call this at once take turns.
    ///
    /// This blocks the calling thread until all are polled. Do not call it on a worker.
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use tourbillon::{Runtime, time::sleep};
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(sleep(Duration::from_secs(60)));
    /// while runtime.dump().tasks().iter().count() == 0 {}
    /// let waits = Arc::new(Mutex::new(Vec::new()));
    /// let seen = waits.clone();
    /// let limit = Duration::from_secs(10);
    /// let dump = runtime.handle().trace_waits(limit, move |task| seen.lock().unwrap().push(task));
    /// assert!(dump.tasks().iter().all(|task| task.is_traced()));
    /// assert_eq!(*waits.lock().unwrap(), [task.id()]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trace_waits(&self, limit: Duration, waits: impl Fn(Id) + Send + Sync + 'static) -> Dump {
        let shared = self.shared();
        let mut references = Vec::new();
        let mut dump = Dump::with(shared, usize::MAX, |task| references.push(task.clone()));
        let asked = references.iter().zip(&dump.tasks.tasks);
        let asked = asked.filter(|(_, task)| task.state != TaskState::Running);
        let asked = asked.map(|(reference, _)| reference.clone()).collect();
        let traced = shared.trace(asked, limit, Arc::new(waits));
        let mut references = references.iter();
        dump.tasks.tasks.retain_mut(|task| {
            task.is_traced = traced.contains(&task.id);
            references.next().is_some_and(|it| !it.has_ended())
        });
        dump.listed = dump.tasks.tasks.len();
        dump
    }
}

/// A dump of a runtime: see [`Handle::dump`](crate::Handle::dump).
#[derive(Clone, Debug)]
pub struct Dump {
    tasks: Tasks,
    listed: usize,
    unlisted: usize,
}

/// The tasks of a [`Dump`].
#[derive(Clone, Debug)]
pub struct Tasks {
    tasks: Vec<Task>,
}

/// A task of a [`Dump`].
///
/// `Display` writes one line: `task 12 shop::serve (spawned at src/main.rs:31:9): waiting for
/// descriptor 9 to be readable`.
#[derive(Clone, Debug)]
pub struct Task {
    id: Id,
    name: &'static str,
    spawned: &'static Location<'static>,
    state: TaskState,
    pinned_to: Option<usize>,
    waits_for: Vec<Wait>,
    is_traced: bool,
}

/// What a task did when it was dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// It waited to be woken.
    Waiting,
    /// It was woken, and was in a queue.
    Queued,
    /// A thread polled it.
    Running,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// That this descriptor can be read.
    Readable(RawFd),
    /// That this descriptor can be written.
    Writable(RawFd),
    /// That this descriptor has priority data, or an error.
    Condition(RawFd),
}

/// What the tasks wait for, by the data of their wakers.
pub(crate) struct Waits(HashMap<*const (), Vec<Wait>>);

impl Dump {
    /// Lists the tasks of a runtime, `most` of them at most.
    pub(crate) fn new(shared: &Shared, most: usize) -> Self {
        Self::with(shared, most, |_| ())
    }

    /// Lists the tasks of a runtime, and calls `listed` with each.
    fn with(shared: &Shared, most: usize, mut listed: impl FnMut(&TaskRef<TaskMeta>)) -> Self {
        let waits = Waits::new(shared);
        let mut tasks = Vec::new();
        shared.tasks.see_tasks(|task| {
            if tasks.len() == most {
                return ControlFlow::Break(());
            }
            if let Some(described) = waits.task(task) {
                tasks.push(described);
                listed(task);
            }
            ControlFlow::Continue(())
        });
        let (alive, _) = shared.tasks.counts();
        let listed = match tasks.len() < most {
            true => tasks.len(),
            false => shared.tasks.num_listed(),
        };
        Self {
            listed,
            unlisted: alive.saturating_sub(listed),
            tasks: Tasks { tasks },
        }
    }

    /// Returns the tasks that are listed: those that have waited at least once, and those that run
    /// on one worker only. A dump [of some](crate::Handle::dump_at_most) tasks has a part of them.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Returns how many tasks are listed. A dump [of some](crate::Handle::dump_at_most) tasks may have
    /// fewer.
    pub fn num_listed(&self) -> usize {
        self.listed
    }

    /// Returns how many tasks are not listed: those that run or are queued for the first time, and
    /// jobs of [`spawn_blocking`](crate::task::spawn_blocking).
    /// [`Handle::activities`](crate::Handle::activities) names those that run.
    ///
    /// It is not exact while tasks begin and end.
    pub fn num_unlisted(&self) -> usize {
        self.unlisted
    }
}

/// Writes a line for each task.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for task in self.tasks.iter() {
            writeln!(f, "{task}")?;
        }
        match self.listed.saturating_sub(self.tasks.tasks.len()) {
            0 => {}
            more => writeln!(f, "and {more} more, which the dump leaves out")?,
        }
        match self.unlisted {
            0 => Ok(()),
            more => writeln!(f, "and {more} more, which have not waited yet"),
        }
    }
}

impl Tasks {
    /// Returns the tasks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter()
    }
}

impl Task {
    /// Returns the number of the task, by which [`JoinHandle::id`](crate::JoinHandle::id) and
    /// [`task::id`](crate::task::id()) know it.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the [name of the task](crate::task::Builder::name), if it has one, and otherwise the
    /// type name of its future, as in [`std::any::type_name`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns where it was spawned.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned
    }

    /// Returns what it did.
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// Returns the number of the worker that alone runs the task, if it was spawned by
    /// [`spawn_pinned`](crate::task::spawn_pinned) or a similar function.
    pub fn pinned_to(&self) -> Option<usize> {
        self.pinned_to
    }

    /// Returns whether [`Handle::trace_waits`](crate::Handle::trace_waits) had the task polled, and
    /// has told of all places where it waits. `false` in other dumps.
    pub fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Returns for which descriptors it waits, as far as that is known: it is empty if the task
    /// waits for a timer or for another task, or if a combinator with a waker of its own is between
    /// the task and the descriptor.
    ///
    /// A read or write that was given up may be listed until the next one.
    pub fn waits_for(&self) -> &[Wait] {
        &self.waits_for
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id, name, spawned, ..
        } = self;
        write!(f, "task {id} {name} (spawned at {spawned}): {}", self.state)?;
        for (i, wait) in self.waits_for.iter().enumerate() {
            let before = if i == 0 { " for" } else { " or" };
            write!(f, "{before} {wait}")?;
        }
        match self.pinned_to {
            Some(worker) => write!(f, ", on worker {worker} only"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TaskState::Waiting => "waiting",
            TaskState::Queued => "queued",
            TaskState::Running => "running",
        })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Readable(fd) => write!(f, "descriptor {fd} to be readable"),
            Wait::Writable(fd) => write!(f, "descriptor {fd} to be writable"),
            Wait::Condition(fd) => write!(f, "a condition of descriptor {fd}"),
        }
    }
}

impl Waits {
    pub(crate) fn new(shared: &Shared) -> Self {
        let mut waits: HashMap<_, Vec<_>> = HashMap::new();
        for worker in shared.workers().iter() {
            worker.owner().reactor.see_waiting(|data, fd, directions| {
                let of_task = waits.entry(data).or_default();
                for (direction, wait) in [
                    (Direction::Read, Wait::Readable(fd)),
                    (Direction::Write, Wait::Writable(fd)),
                ] {
                    if directions.has(direction) {
                        of_task.push(wait);
                    }
                }
                if directions.without(Directions::BOTH).is_some() {
                    of_task.push(Wait::Condition(fd));
                }
            });
        }
        Self(waits)
    }

    /// Describes a task, unless it has ended.
    pub(crate) fn task(&self, task: &TaskRef<TaskMeta>) -> Option<Task> {
        let state = match task.status() {
            Status::Waiting => TaskState::Waiting,
            Status::Scheduled => TaskState::Queued,
            Status::Running => TaskState::Running,
            Status::Ended => return None,
        };
        // A task that runs or is queued was woken, and its wakers are left from before.
        let waits = self.0.get(&task.waker_data());
        let waits = waits.filter(|_| state == TaskState::Waiting);
        let meta = task.metadata();
        let job = JobRef::new(TypeName::from_fn(task.name()), Some(meta.spawned()));
        Some(Task {
            id: meta.id(),
            name: job.name().name,
            spawned: meta.spawned().place(),
            state,
            pinned_to: meta.home().pinned_to(),
            waits_for: waits.cloned().unwrap_or_default(),
            is_traced: false,
        })
    }
}
