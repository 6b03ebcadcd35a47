//! The metadata of a task, beside its future.
//!
//! Each task has it, so it is kept small: a small task must take at most 120 bytes in all. That is
//! the largest size class that glibc recycles without a lock, whichever thread frees the memory.

use std::io;

use tourbillon_tasks::{Task, TaskRef};

use crate::{
    engine::task_core::{home::Home, id::Id, registry::Place},
    metrics::spawned::Spawned,
    sys::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed},
};

/// The value of `refusal` if the task was not refused.
const NOT_REFUSED: u8 = 0;

/// The scheduler's data of a task, beside its future.
#[repr(C)]
pub(crate) struct TaskMeta {
    /// The task's only reference to its home, by which it finds the runtime. Its count belongs to
    /// one worker. If tasks counted references to the runtime, all cores would contend for that
    /// count.
    home: Home,
    id: Id,
    /// Where the task was spawned, and its name if the user gave one. The task knows the name of
    /// its future [by its type](tourbillon_tasks::Task::name).
    spawned: Spawned,
    /// The task's place in the registry, with `list`. Written by the thread that runs the task.
    index: AtomicU32,
    list: AtomicU16,
    /// The system's error code if it gave no thread for the task.
    refusal: AtomicU8,
    /// When the task was queued, in ns, if its runtime measures that. Zero before it is.
    #[cfg(all(feature = "facade", tokio_unstable))]
    pub(crate) queued_at: crate::sys::sync::atomic::AtomicU64,
    /// The number of the task's span.
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    pub(crate) span: Option<std::num::NonZeroU64>,
}

#[cfg(not(all(feature = "facade", tokio_unstable)))]
const _: () = assert!(size_of::<TaskMeta>() == 32);

impl TaskMeta {
    #[inline]
    pub(crate) fn new(spawned: Spawned, home: Home, id: Id, place: Place) -> Self {
        Self {
            home,
            id,
            spawned,
            index: AtomicU32::new(place.index),
            list: AtomicU16::new(place.list),
            refusal: AtomicU8::new(NOT_REFUSED),
            #[cfg(all(feature = "facade", tokio_unstable))]
            queued_at: Default::default(),
            #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
            span: None,
        }
    }

    /// Returns the task's home.
    #[inline]
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Returns where the task was spawned, and its name.
    #[inline]
    pub(crate) fn spawned(&self) -> Spawned {
        self.spawned
    }

    #[inline]
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Records that the system gave no thread for the task. The caller cancels the task afterwards.
    pub(crate) fn refuse(&self, error: &io::Error) {
        // One byte is enough for the error code. Without a code the error is EAGAIN, the usual one.
        let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
        // Linux has no error code greater than 133.
        let code = u8::try_from(code).ok().filter(|&code| code != NOT_REFUSED);
        // Relaxed is enough: cancelling the task publishes this to the thread that joins it.
        self.refusal
            .store(code.unwrap_or(libc::EAGAIN as u8), Relaxed);
    }

    /// Returns the system's error if it gave no thread for the task. Only for the thread that joins
    /// the task.
    pub(crate) fn refusal(&self) -> Option<io::Error> {
        match self.refusal.load(Relaxed) {
            NOT_REFUSED => None,
            code => Some(io::Error::from_raw_os_error(code.into())),
        }
    }

    /// Returns the task's place in the registry. Only for the thread that runs the task.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place {
            index: self.index.load(Relaxed),
            list: self.list.load(Relaxed),
        }
    }

    fn set_place(&self, place: Place) {
        self.index.store(place.index, Relaxed);
        self.list.store(place.list, Relaxed);
    }

    /// Puts the task on the list of waiting tasks, where it stays until it ends, even if nothing
    /// wakes it. Only for the thread that has polled it. `self` is the metadata of `task`.
    pub(crate) fn wait(&self, task: &Task<Self>) {
        match self.home().enter(task) {
            Some(place) => self.set_place(place),
            // The list is closed: the runtime is ending, and has ended the tasks on it.
            None => task.cancel(),
        }
    }

    /// Removes the task from its list, after its future is gone. Returns the list's reference.
    #[inline]
    pub(crate) fn leave(&self) -> Option<TaskRef<Self>> {
        let place = self.place();
        // Most tasks that end at their first poll are on no list.
        (!place.is_nowhere()).then(|| self.home().tasks().leave(place))?
    }
}
