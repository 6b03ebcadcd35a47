//! What is known of a task besides its future.
//!
//! Each task has it, so it is kept small: a small task is to take no more than 120 bytes in all, which is the most that
//! glibc keeps ready, with no lock, for the next of that size, whichever thread frees it.

use std::{io, panic::Location, task::Waker};

use tourbillon_shards::TypeName;

use super::{
    Id,
    home::Home,
    pointer::{Counted, MetaPointer},
    registry::Place,
};
use crate::sys::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// It was not told to end.
const GOES_ON: u8 = 0;
/// It was told to end. Any other value but zero is the system's error, which gave no thread to run it on.
const ABORTED: u8 = u8::MAX;

/// Its future is there.
const ALIVE: u8 = 0;
/// Its future is being dropped, or has been.
const DROPPED: u8 = 1;
/// Its future has been dropped, and it leaves the books.
const ENDED: u8 = 2;

/// What the scheduler knows of a task besides its future.
pub(crate) struct TaskMeta {
    /// The type of its future, and where it was spawned.
    pub(crate) future: &'static TypeName,
    pub(crate) spawned: &'static Location<'static>,
    /// The one reference that the task has to its home, which knows the runtime: a count that is one
    /// worker's alone, where one for the whole runtime would be fought over by all cores.
    home: Home,
    pub(super) id: Id,
    /// Whether it was told to end, and why.
    told: AtomicU8,
    /// How far it has come. Written by who polls the task, or drops its future.
    phase: AtomicU8,
    /// The two of its place, for those as well.
    list: AtomicU16,
    index: AtomicU32,
}

const _: () = assert!(size_of::<TaskMeta>() == 40);

impl TaskMeta {
    pub(super) fn new(
        future: &'static TypeName,
        spawned: &'static Location<'static>,
        home: Home,
        id: Id,
        place: Place,
    ) -> Self {
        Self {
            future,
            spawned,
            home,
            id,
            told: AtomicU8::new(GOES_ON),
            phase: AtomicU8::new(ALIVE),
            list: AtomicU16::new(place.list),
            index: AtomicU32::new(place.index),
        }
    }

    /// Where the task belongs.
    #[inline]
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Whether the task has ended. One whose destructors run has not.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.phase.load(Acquire) == ENDED
    }

    /// Whether the task was told to end.
    #[inline]
    pub(super) fn is_aborted(&self) -> bool {
        self.told.load(Acquire) != GOES_ON
    }

    pub(crate) fn abort(&self) {
        // One that was told before ends for what it was told first.
        _ = self
            .told
            .compare_exchange(GOES_ON, ABORTED, Release, Relaxed);
    }

    /// Lets the task end, because the system gave no thread to run it on.
    pub(crate) fn refuse(&self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
        // Linux has no such error beyond 133.
        let code = u8::try_from(code).ok();
        let code = code.filter(|&code| code != GOES_ON && code != ABORTED);
        self.told.store(code.unwrap_or(libc::EAGAIN as u8), Release);
    }

    /// Why there was no thread to run it on, if there was none.
    pub(super) fn refusal(&self) -> Option<io::Error> {
        match self.told.load(Relaxed) {
            GOES_ON | ABORTED => None,
            code => Some(io::Error::from_raw_os_error(code.into())),
        }
    }

    /// Where it is registered. For who polls the task, or drops its future.
    #[inline]
    pub(super) fn place(&self) -> Place {
        Place {
            index: self.index.load(Relaxed),
            list: self.list.load(Relaxed),
        }
    }

    fn set_place(&self, place: Place) {
        self.index.store(place.index, Relaxed);
        self.list.store(place.list, Relaxed);
    }

    /// Who polls the task is about to drop its future.
    #[inline]
    pub(super) fn drops_future(&self) {
        self.phase.store(DROPPED, Relaxed);
    }

    /// Whether its future is being dropped, or has been. For who polls the task, or drops it.
    pub(super) fn is_future_dropped(&self) -> bool {
        self.phase.load(Relaxed) != ALIVE
    }

    /// Puts the task on the list of those that wait: from here on it is alive until it ends, whether
    /// anybody is to wake it or not. For who has polled it; this is in `here`.
    pub(super) fn wait(&self, here: MetaPointer, waker: &Waker) {
        match self.home.enter(waker, here) {
            Some(place) => self.set_place(place),
            None => {
                // The runtime ends, and has ended those that were on the list.
                self.abort();
                waker.wake_by_ref();
            }
        }
    }

    /// The future is gone, and so the task is over. Answers the reference by which the books kept it.
    #[inline]
    pub(super) fn end(&self) -> Option<Counted> {
        // Not before: an `AbortHandle` goes by it whether the task has ended, and who ends local tasks goes
        // by the list.
        self.phase.store(ENDED, Release);
        let place = self.place();
        // Most that are over at once are on no list.
        (!place.is_nowhere()).then(|| self.home.tasks().leave(place))?
    }
}
