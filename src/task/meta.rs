//! What is known of a task besides its future.
//!
//! Each task has it, so it is kept small: a small task is to take no more than 120 bytes in all, which is the most that
//! glibc keeps ready, with no lock, for the next of that size, whichever thread frees it.

use std::{io, task::Waker};

use super::{
    Id,
    home::{Home, HomeRef},
    origin::Origin,
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

/// A value that may stand at each fourth byte.
#[repr(C, packed(4))]
pub(super) struct Packed<T>(pub(super) T);

/// What the scheduler knows of a task besides its future.
///
/// It asks for no more than the alignment of a `u32`, and is no multiple of eight bytes: where async-task was built with its
/// `std`, which another crate of the program may ask for, a flag of it stands behind this in the same eight bytes.
#[repr(C)]
pub(crate) struct TaskMeta {
    /// The one reference that the task has to its home, which knows the runtime: a count that is one
    /// worker's alone, where one for the whole runtime would be fought over by all cores.
    home: Packed<Home>,
    id: Packed<Id>,
    /// The type of its future, and where it was spawned.
    pub(crate) origin: Origin,
    /// Its place, with `list`. Written by who polls the task, or drops its future.
    index: AtomicU32,
    list: AtomicU16,
    /// How far it has come. Written by those as well.
    phase: AtomicU8,
    /// Whether it was told to end, and why.
    told: AtomicU8,
}

const _: () = assert!(size_of::<TaskMeta>() == 28 && align_of::<TaskMeta>() == 4);

impl TaskMeta {
    #[inline]
    pub(super) fn new(origin: Origin, home: Home, id: Id, place: Place) -> Self {
        Self {
            home: Packed(home),
            id: Packed(id),
            origin,
            index: AtomicU32::new(place.index),
            list: AtomicU16::new(place.list),
            phase: AtomicU8::new(ALIVE),
            told: AtomicU8::new(GOES_ON),
        }
    }

    /// Where the task belongs.
    #[inline]
    pub(crate) fn home(&self) -> HomeRef<'_> {
        self.home.lend()
    }

    #[inline]
    pub(super) fn id(&self) -> Id {
        self.id.0
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
        match self.home().enter(waker, here) {
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
        (!place.is_nowhere()).then(|| self.home().tasks().leave(place))?
    }
}
