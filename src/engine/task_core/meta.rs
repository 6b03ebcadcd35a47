//! What is known of a task besides its future.
//!
//! Each task has it, so it is kept small: a small task is to take no more than 120 bytes in all, which is the most that
//! glibc keeps ready, with no lock, for the next of that size, whichever thread frees it.

use std::{io, panic::Location};

use tourbillon_tasks::{Task, TaskRef};

use crate::{
    engine::task_core::{
        home::{Home, HomeRef},
        registry::Place,
    },
    sys::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed},
    task::id::Id,
};

/// There was a thread to run the task on, or none was needed.
const NOT_REFUSED: u8 = 0;

/// A value that may stand at each fourth byte.
#[repr(C, packed(4))]
pub(crate) struct Packed<T>(pub(crate) T);

/// What the scheduler knows of a task besides its future.
///
/// It asks for no more than the alignment of a `u32`.
#[repr(C)]
pub(crate) struct TaskMeta {
    /// The one reference that the task has to its home, which knows the runtime: a count that is one
    /// worker's alone, where one for the whole runtime would be fought over by all cores.
    home: Packed<Home>,
    id: Packed<Id>,
    /// Where the task was spawned. What its future is, the task knows [by its
    /// type](tourbillon_tasks::Task::name).
    spawned: Packed<&'static Location<'static>>,
    /// Its place, with `list`. Written by the thread that runs the task.
    index: AtomicU32,
    list: AtomicU16,
    /// The system's error, if it gave no thread to run the task on.
    refusal: AtomicU8,
}

const _: () = assert!(size_of::<TaskMeta>() == 32 && align_of::<TaskMeta>() == 4);

impl TaskMeta {
    #[inline]
    pub(crate) fn new(
        spawned: &'static Location<'static>,
        home: Home,
        id: Id,
        place: Place,
    ) -> Self {
        Self {
            home: Packed(home),
            id: Packed(id),
            spawned: Packed(spawned),
            index: AtomicU32::new(place.index),
            list: AtomicU16::new(place.list),
            refusal: AtomicU8::new(NOT_REFUSED),
        }
    }

    /// Where the task belongs.
    #[inline]
    pub(crate) fn home(&self) -> HomeRef<'_> {
        self.home.lend()
    }

    /// Returns where the task was spawned.
    #[inline]
    pub(crate) fn spawned(&self) -> &'static Location<'static> {
        self.spawned.0
    }

    #[inline]
    pub(crate) fn id(&self) -> Id {
        self.id.0
    }

    /// Notes that the system gave no thread to run the task on, which the caller cancels for that.
    pub(crate) fn refuse(&self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
        // Linux has no such error beyond 133.
        let code = u8::try_from(code).ok().filter(|&code| code != NOT_REFUSED);
        // Cancelling the task releases it to the thread that joins it.
        self.refusal
            .store(code.unwrap_or(libc::EAGAIN as u8), Relaxed);
    }

    /// Why there was no thread to run it on, if there was none. For the thread that joins the task.
    pub(crate) fn refusal(&self) -> Option<io::Error> {
        match self.refusal.load(Relaxed) {
            NOT_REFUSED => None,
            code => Some(io::Error::from_raw_os_error(code.into())),
        }
    }

    /// Where it is registered. For the thread that runs the task.
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

    /// Puts the task on the list of those that wait: from here on it is alive until it ends,
    /// whether anybody is to wake it or not. For the thread that has polled it; this is the
    /// metadata of `task`.
    pub(crate) fn wait(&self, task: &Task<Self>) {
        match self.home().enter(task) {
            Some(place) => self.set_place(place),
            // The runtime ends, and has ended those that were on the list.
            None => task.cancel(),
        }
    }

    /// Strikes the task off its list: the future is gone. Returns the reference that was kept
    /// there.
    #[inline]
    pub(crate) fn leave(&self) -> Option<TaskRef<Self>> {
        let place = self.place();
        // Most that are over at once are on no list.
        (!place.is_nowhere()).then(|| self.home().tasks().leave(place))?
    }
}
