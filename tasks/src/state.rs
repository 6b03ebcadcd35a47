//! The state word of a task: flags, and above them the count of references.
//!
//! Each change of the word is a method here, and none is anywhere else. `PROTOCOLS.md` says which
//! thread may make which change, and what it may touch after that. A method that takes part in
//! handing over memory names its order; the table of orders in `PROTOCOLS.md` has the reasons.

use crate::sync::{
    AtomicUsize, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A [`Runnable`](crate::Runnable) exists, or, with [`RUNNING`], one is to be made after the poll.
const SCHEDULED: usize = 1 << 0;
/// A thread has the future to itself: it polls it, or drops it.
const RUNNING: usize = 1 << 1;
/// The future is to be dropped in place of the next poll.
const CANCELLED: usize = 1 << 2;
/// The future is gone, for good. No other flag but `OUTPUT` and `HANDLE` stands beside this one.
const ENDED: usize = 1 << 3;
/// There is an output, which belongs to the [`Join`](crate::Join). Only with [`ENDED`].
const OUTPUT: usize = 1 << 4;
/// The [`Join`](crate::Join) exists.
const HANDLE: usize = 1 << 5;
/// The slot has the waker of whoever polls the [`Join`](crate::Join), for the thread that ends the
/// task. Without this flag the slot belongs to the `Join`.
const AWAITER: usize = 1 << 6;
/// One reference: a `Runnable` (or the thread that runs it), a `TaskRef`, a waker.
const REFERENCE: usize = 1 << 7;
/// All references.
const REFERENCES: usize = !(REFERENCE - 1);

pub(crate) struct State(AtomicUsize);

/// What [`State::end_poll`] leaves to the thread that has polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPoll {
    /// Nothing: its reference is given up.
    Waiting,
    /// To schedule the task again, which was woken meanwhile.
    Again,
    /// To drop the future: the task was cancelled, or nobody is left to wake or to join it.
    Cancelled,
}

/// What is left to a thread that has given a reference up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Released {
    /// Nothing: others have the task.
    Shared,
    /// To free the task: this was the last that anybody had of it, and it has ended.
    Last,
    /// To schedule the task, for its future to be dropped: nobody is left to wake or to join it.
    Abandoned,
}

/// What [`State::wake`] leaves to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Woken {
    /// To schedule the task. The caller's reference is the `Runnable`'s.
    Schedule,
    /// The caller's reference is given up.
    Released(Released),
}

/// What [`State::detach`] leaves to the `Join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Detached {
    /// The `Join` is given up.
    Done(Released),
    /// The slot belongs to the `Join` now, and its waker is to be taken out. Then to detach again.
    TakeAwaiter,
    /// The task has ended: the output, if there is one, is to be dropped. Then to
    /// [release](State::release_join).
    Ended { has_output: bool },
}

/// What [`State::end`] leaves to the thread that has ended the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum End {
    /// Its reference is given up.
    Done(Released),
    /// It is to take the waker from the slot, to [release](State::release) its reference, and to
    /// wake.
    WakeAwaiter,
    /// Nothing was changed. Nobody is left to take the output, which is to be dropped. Then to end
    /// the task without one.
    DropOutput,
}

/// How the task stands for the `Join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It goes on. Whether the slot has a waker.
    Alive { has_awaiter: bool },
    /// It has ended. Whether there is an output.
    Ended { has_output: bool },
}

impl Joined {
    fn of(state: usize) -> Self {
        if state & ENDED == 0 {
            Self::Alive {
                has_awaiter: state & AWAITER != 0,
            }
        } else {
            Self::Ended {
                has_output: state & OUTPUT != 0,
            }
        }
    }
}

impl Released {
    /// What is left to a thread that has made `now` of the word by giving something up.
    #[inline]
    fn by(now: usize) -> Self {
        if now & (REFERENCES | HANDLE) != 0 {
            Self::Shared
        } else if now & ENDED != 0 {
            Self::Last
        } else {
            Self::Abandoned
        }
    }
}

impl State {
    /// A task with a `Runnable` and a `Join`.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(SCHEDULED | HANDLE | REFERENCE))
    }

    /// Begins to run the task, for the thread that has the `Runnable`; true if it is to be polled,
    /// false if it was cancelled. Either way the future is the caller's alone from here on.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        // One flag for the other, which stands beside it. Acquires what all wakers have released.
        let before = self.0.fetch_add(RUNNING - SCHEDULED, Acquire);
        debug_assert_eq!(before & (SCHEDULED | RUNNING | ENDED), SCHEDULED);
        before & CANCELLED == 0
    }

    /// The future was polled and is pending. Releases it to the thread that runs the task next.
    #[inline]
    pub(crate) fn end_poll(&self) -> AfterPoll {
        let mut state = self.0.load(Acquire);
        loop {
            let is_woken = state & SCHEDULED != 0;
            // The caller's reference is the only one, and no thread can make another.
            let is_abandoned = state & (REFERENCES | HANDLE) == REFERENCE && !is_woken;
            if state & CANCELLED != 0 || is_abandoned {
                return AfterPoll::Cancelled;
            }
            // The reference goes on to the next `Runnable`, or is given up in the same step.
            let (next, after) = if is_woken {
                (state - RUNNING, AfterPoll::Again)
            } else {
                (state - RUNNING - REFERENCE, AfterPoll::Waiting)
            };
            match self.exchange(state, next, Release) {
                Ok(_) => return after,
                Err(now) => state = now,
            }
        }
    }

    /// Ends the task, for the thread that runs it: its future is gone. `has_output` says whether
    /// the output is in its place; `others` is how many references the caller gives up besides its
    /// own.
    #[inline]
    pub(crate) fn end(&self, has_output: bool, others: usize) -> End {
        let mut state = self.0.load(Acquire);
        loop {
            debug_assert_eq!(state & (RUNNING | ENDED), RUNNING);
            if has_output && state & HANDLE == 0 {
                return End::DropOutput;
            }
            // The slot can be taken out only when no thread can write it any more; and as long as
            // that takes, the caller's reference keeps the task.
            let has_awaiter = state & AWAITER != 0;
            let given_up = others + usize::from(!has_awaiter);
            let flags = ENDED | if has_output { OUTPUT } else { 0 };
            let kept = state & (REFERENCES | HANDLE);
            let next = (kept | flags) - given_up * REFERENCE;
            // Acquires the waker in the slot, and releases the output.
            match self.exchange(state, next, AcqRel) {
                Ok(_) if has_awaiter => return End::WakeAwaiter,
                Ok(_) => return End::Done(Released::by(next)),
                Err(now) => state = now,
            }
        }
    }

    /// Wakes the task by a reference that the caller gives up.
    #[inline]
    pub(crate) fn wake(&self) -> Woken {
        let mut state = self.0.load(Relaxed);
        loop {
            if state & ENDED != 0 {
                return Woken::Released(self.release());
            }
            // Released to the thread that polls next, whether this changes the flags or not.
            let is_awake = state & (SCHEDULED | RUNNING) != 0;
            let next = if is_awake {
                // Another reference is the `Runnable`'s: this one is not the last.
                (state | SCHEDULED) - REFERENCE
            } else {
                state | SCHEDULED
            };
            match self.exchange(state, next, Release) {
                Ok(_) if is_awake => return Woken::Released(Released::Shared),
                Ok(_) => return Woken::Schedule,
                Err(now) => state = now,
            }
        }
    }

    /// Wakes the task; true if the caller is to schedule it, by a reference that was counted for
    /// that.
    #[inline]
    #[must_use]
    pub(crate) fn wake_by_ref(&self) -> bool {
        self.wake_with(0, ENDED)
    }

    /// Cancels the task; true if the caller is to schedule it, by a reference that was counted for
    /// that.
    #[must_use]
    pub(crate) fn cancel(&self) -> bool {
        self.wake_with(CANCELLED, ENDED | CANCELLED)
    }

    /// Sets a flag, unless one of `unless` is set; wakes the task if it waits.
    #[inline]
    fn wake_with(&self, flag: usize, unless: usize) -> bool {
        let mut state = self.0.load(Relaxed);
        loop {
            if state & unless != 0 {
                return false;
            }
            let is_waiting = state & (SCHEDULED | RUNNING) == 0;
            let next = if is_waiting {
                check_count(state);
                (state | flag | SCHEDULED) + REFERENCE
            } else if flag == 0 {
                state | SCHEDULED
            } else {
                // What is scheduled is looked at; what runs is looked at when it was polled.
                state | flag
            };
            match self.exchange(state, next, Release) {
                Ok(_) => return is_waiting,
                Err(now) => state = now,
            }
        }
    }

    /// Counts another reference, for a thread that has one, or has the `Join`.
    #[inline]
    pub(crate) fn add_reference(&self) {
        check_count(self.0.fetch_add(REFERENCE, Relaxed));
    }

    /// Gives a reference up. Where that abandons the task there is a reference again, for the
    /// `Runnable` that the caller is to schedule.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        self.release_all(REFERENCE)
    }

    /// Gives the `Join` up, of a task that has ended, and with it the output if there was one,
    /// which the caller has taken or dropped.
    #[inline]
    pub(crate) fn release_join(&self, had_output: bool) -> Released {
        self.release_all(HANDLE + if had_output { OUTPUT } else { 0 })
    }

    #[inline]
    fn release_all(&self, what: usize) -> Released {
        // Releases what this thread did to the task, and acquires what all others did, to the one
        // that frees it.
        self.released(self.0.fetch_sub(what, AcqRel) - what)
    }

    /// What is left to the caller, which has made `now` of the word by giving something up.
    #[inline]
    fn released(&self, now: usize) -> Released {
        let released = Released::by(now);
        if released == Released::Abandoned {
            // No other thread has anything by which it could see this word.
            self.0.store(SCHEDULED | CANCELLED | REFERENCE, Release);
        }
        released
    }

    /// Gives the `Join` up.
    #[inline]
    pub(crate) fn detach(&self) -> Detached {
        // As it is at the spawn, which most are detached at.
        let spawned = SCHEDULED | HANDLE | REFERENCE;
        match self.exchange(spawned, spawned - HANDLE, Release) {
            Ok(_) => Detached::Done(Released::Shared),
            Err(_) => self.detach_later(),
        }
    }

    fn detach_later(&self) -> Detached {
        let mut state = self.0.load(Acquire);
        loop {
            if let Joined::Ended { has_output } = Joined::of(state) {
                return Detached::Ended { has_output };
            }
            // As long as the slot is to be emptied, the `Join` keeps the task.
            let has_awaiter = state & AWAITER != 0;
            let next = state - if has_awaiter { AWAITER } else { HANDLE };
            match self.exchange(state, next, AcqRel) {
                Ok(_) if has_awaiter => return Detached::TakeAwaiter,
                Ok(_) => return Detached::Done(self.released(next)),
                Err(now) => state = now,
            }
        }
    }

    /// How the task stands, for the `Join`. One that has ended has released its output.
    #[inline]
    pub(crate) fn joined(&self) -> Joined {
        Joined::of(self.0.load(Acquire))
    }

    /// Whether the task has ended. What it did before is seen by the caller then.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Acquire) & ENDED != 0
    }

    /// Releases the waker that the `Join` has put into the slot; false if the task has ended, and
    /// the slot stays the caller's.
    pub(crate) fn give_awaiter(&self) -> bool {
        self.change_unless_ended(|state| state | AWAITER)
    }

    /// Makes the slot the `Join`'s again; false if the task has ended, and the slot is not the
    /// caller's.
    pub(crate) fn take_awaiter(&self) -> bool {
        self.change_unless_ended(|state| state & !AWAITER)
    }

    fn change_unless_ended(&self, change: impl Fn(usize) -> usize) -> bool {
        let mut state = self.0.load(Acquire);
        while state & ENDED == 0 {
            match self
                .0
                .compare_exchange_weak(state, change(state), Release, Acquire)
            {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[inline]
    fn exchange(&self, state: usize, next: usize, order: Ordering) -> Result<usize, usize> {
        self.0.compare_exchange_weak(state, next, order, Acquire)
    }
}

/// Ends the process before the count of references can reach the top of the word.
#[inline]
fn check_count(state: usize) {
    if state > isize::MAX as usize {
        std::process::abort();
    }
}
