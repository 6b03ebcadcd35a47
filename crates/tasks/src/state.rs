//! The state word of a task: flags in the low bits, and above them the reference count.
//!
//! Every change of the word is a method in this file. `PROTOCOLS.md` says which thread may make
//! which change, and what it may access afterwards. Each memory order here has its reason in the
//! table of orders in `PROTOCOLS.md`.

use tourbillon_sync::{
    AtomicUsize, Life, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A [`Runnable`](crate::Runnable) exists. With [`RUNNING`]: one must be created after the poll.
const SCHEDULED: usize = 1 << 0;
/// One thread has exclusive access to the future: it polls or drops it.
const RUNNING: usize = 1 << 1;
/// The next poll must drop the future instead.
const CANCELLED: usize = 1 << 2;
/// The future is gone. Final. Only `OUTPUT` and `HANDLE` may be set besides this flag.
const ENDED: usize = 1 << 3;
/// An output exists and belongs to the [`Join`](crate::Join). Only with [`ENDED`].
const OUTPUT: usize = 1 << 4;
/// The [`Join`](crate::Join) exists.
const HANDLE: usize = 1 << 5;
/// The slot holds the waker of the [`Join`](crate::Join)'s task, and belongs to the thread that
/// ends the task. Without this flag the slot belongs to the `Join`.
const AWAITER: usize = 1 << 6;
/// One reference: a `Runnable` (or the thread that runs it), a `TaskRef`, or a waker.
const REFERENCE: usize = 1 << 7;
/// The mask of the reference count.
const REFERENCES: usize = !(REFERENCE - 1);

pub(crate) struct State(AtomicUsize, Life);

/// The next step of the thread that polled, after [`State::end_poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPoll {
    /// Nothing. The thread's reference is released.
    Waiting,
    /// Schedule the task again: it was woken during the poll.
    Again,
    /// Drop the future: the task was cancelled, or nothing is left that could wake or join it.
    Cancelled,
}

/// The next step of a thread that has released a reference or the `Join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Released {
    /// Nothing. Others still use the task.
    Shared,
    /// Free the task: it has ended, and nothing refers to it.
    Last,
    /// Schedule the task so that its future is dropped: nothing is left that could wake or join it.
    Abandoned,
}

/// The next step of the caller, after [`State::wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Woken {
    /// Schedule the task. The caller's reference becomes that of the `Runnable`.
    Schedule,
    /// The caller's reference is released.
    Released(Released),
}

/// The next step of the `Join`, after [`State::detach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Detached {
    /// The `Join` is released.
    Done(Released),
    /// The slot belongs to the `Join`: take the waker out, then detach again.
    TakeAwaiter,
    /// The task has ended: drop the output, if there is one, then call
    /// [`release_join`](State::release_join).
    Ended { has_output: bool },
}

/// The next step of the thread that ends the task, after [`State::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum End {
    /// The thread's reference is released.
    Done(Released),
    /// Take the waker from the slot, [release](State::release) the reference, then wake.
    WakeAwaiter,
    /// Nothing has changed, because no `Join` is left to take the output: drop the output, then end
    /// the task without one.
    DropOutput,
}

/// What a task does at the moment. Other threads change it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It waits to be woken.
    Waiting,
    /// It is ready to run: a [`Runnable`](crate::Runnable) exists.
    Scheduled,
    /// A thread polls or drops its future.
    Running,
    /// Its future is gone.
    Ended,
}

/// The state of the task from the view of the `Join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The task has not ended. `has_awaiter` tells whether the slot holds a waker.
    Alive { has_awaiter: bool },
    /// The task has ended. `has_output` tells whether there is an output.
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
    /// Returns the next step of a thread whose release changed the word to `now`.
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
    /// Creates the state of a task with a `Runnable` and a `Join`.
    pub(crate) fn new() -> Self {
        Self(
            AtomicUsize::new(SCHEDULED | HANDLE | REFERENCE),
            Life::new(),
        )
    }

    /// Starts to run the task, for the owner of the `Runnable`. Returns `true` if the future must
    /// be polled, and `false` if the task was cancelled. In both cases the caller has exclusive
    /// access to the future from here on.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        // The difference sets RUNNING and clears SCHEDULED in one addition. Acquires the writes of
        // all wakers.
        let before = self.0.fetch_add(RUNNING - SCHEDULED, Acquire);
        debug_assert_eq!(before & (SCHEDULED | RUNNING | ENDED), SCHEDULED);
        before & CANCELLED == 0
    }

    /// Ends a poll that returned pending. Releases the future to the thread that runs the task
    /// next.
    #[inline]
    pub(crate) fn end_poll(&self) -> AfterPoll {
        let mut state = self.0.load(Acquire);
        loop {
            let is_woken = state & SCHEDULED != 0;
            // Only the caller's reference is left, so no other thread can wake the task or add a
            // reference.
            let is_abandoned = state & (REFERENCES | HANDLE) == REFERENCE && !is_woken;
            if state & CANCELLED != 0 || is_abandoned {
                return AfterPoll::Cancelled;
            }
            // In one step, either pass the reference to the next `Runnable`, or release it.
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

    /// Ends the task, for the thread that runs it. The future must be gone. `has_output` tells
    /// whether the output is in its place. `others` is the number of references that the caller
    /// releases besides its own.
    #[inline]
    pub(crate) fn end(&self, has_output: bool, others: usize) -> End {
        let mut state = self.0.load(Acquire);
        loop {
            debug_assert_eq!(state & (RUNNING | ENDED), RUNNING);
            if has_output && state & HANDLE == 0 {
                return End::DropOutput;
            }
            // The waker may be taken out only after ENDED is set, because then no thread writes the
            // slot. Until that is done, the caller's reference must keep the task allocated.
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

    /// Wakes the task and releases the caller's reference.
    #[inline]
    pub(crate) fn wake(&self) -> Woken {
        let mut state = self.0.load(Relaxed);
        loop {
            if state & ENDED != 0 {
                return Woken::Released(self.release());
            }
            // The exchange happens even if no flag changes: it releases the waker's writes to the
            // next poll.
            let is_awake = state & (SCHEDULED | RUNNING) != 0;
            let next = if is_awake {
                // This reference is not the last: the `Runnable` has another one.
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

    /// Wakes the task. Returns `true` if the caller must schedule it, with a reference added for
    /// this purpose.
    #[inline]
    #[must_use]
    pub(crate) fn wake_by_ref(&self) -> bool {
        self.wake_with(0, ENDED)
    }

    /// Cancels the task. Returns `true` if the caller must schedule it, with a reference added for
    /// this purpose.
    #[must_use]
    pub(crate) fn cancel(&self) -> bool {
        self.wake_with(CANCELLED, ENDED | CANCELLED)
    }

    /// Sets `flag` unless one of `unless` is set, and makes a waiting task scheduled.
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
                // No need to schedule: `begin` checks the flag of a scheduled task, `end_poll` that
                // of a running one.
                state | flag
            };
            match self.exchange(state, next, Release) {
                Ok(_) => return is_waiting,
                Err(now) => state = now,
            }
        }
    }

    /// Adds a reference, for a thread that has one or has the `Join`.
    #[inline]
    pub(crate) fn add_reference(&self) {
        check_count(self.0.fetch_add(REFERENCE, Relaxed));
    }

    /// Releases a reference. If this abandons the task, the word has a new reference, for the
    /// `Runnable` that the caller must schedule.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        self.release_all(REFERENCE)
    }

    /// Releases the `Join` of a task that has ended. The caller has taken or dropped the output, if
    /// there was one.
    #[inline]
    pub(crate) fn release_join(&self, had_output: bool) -> Released {
        self.release_all(HANDLE + if had_output { OUTPUT } else { 0 })
    }

    #[inline]
    fn release_all(&self, what: usize) -> Released {
        // Releases this thread's accesses, and acquires those of all other threads if this one
        // frees the task.
        self.1.used();
        self.released(self.0.fetch_sub(what, AcqRel) - what)
    }

    /// Returns the next step of the caller, whose release changed the word to `now`.
    #[inline]
    fn released(&self, now: usize) -> Released {
        let released = Released::by(now);
        if released == Released::Abandoned {
            // No other thread has a way to reach this word, so a plain store suffices.
            self.0.store(SCHEDULED | CANCELLED | REFERENCE, Release);
        }
        released
    }

    /// Releases the `Join`.
    #[inline]
    pub(crate) fn detach(&self) -> Detached {
        // Fast path: most tasks are detached right after the spawn.
        let spawned = SCHEDULED | HANDLE | REFERENCE;
        match self.exchange(spawned, spawned - HANDLE, Release) {
            Ok(_) => Detached::Done(Released::Shared),
            Err(_) => self.detach_slow(),
        }
    }

    /// Slow path: the task was polled, woken or referenced since the spawn.
    fn detach_slow(&self) -> Detached {
        let mut state = self.0.load(Acquire);
        loop {
            if let Joined::Ended { has_output } = Joined::of(state) {
                return Detached::Ended { has_output };
            }
            // While the slot must be emptied, HANDLE stays set and keeps the task allocated.
            let has_awaiter = state & AWAITER != 0;
            let next = state - if has_awaiter { AWAITER } else { HANDLE };
            match self.exchange(state, next, AcqRel) {
                Ok(_) if has_awaiter => return Detached::TakeAwaiter,
                Ok(_) => return Detached::Done(self.released(next)),
                Err(now) => state = now,
            }
        }
    }

    /// Returns the state from the view of the `Join`. If the task has ended, acquires its output.
    #[inline]
    pub(crate) fn joined(&self) -> Joined {
        Joined::of(self.0.load(Acquire))
    }

    /// Returns what the task does. Acquires nothing.
    pub(crate) fn status(&self) -> Status {
        match self.0.load(Relaxed) {
            state if state & ENDED != 0 => Status::Ended,
            state if state & RUNNING != 0 => Status::Running,
            state if state & SCHEDULED != 0 => Status::Scheduled,
            _ => Status::Waiting,
        }
    }

    /// Returns whether the task has ended. If so, acquires what the task did.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Acquire) & ENDED != 0
    }

    /// Hands the waker in the slot over to the thread that ends the task. Returns `false` if the
    /// task has ended: the slot then still belongs to the caller.
    pub(crate) fn give_awaiter(&self) -> bool {
        self.change_unless_ended(|state| state | AWAITER)
    }

    /// Takes the slot back for the `Join`. Returns `false` if the task has ended: the slot then
    /// belongs to the thread that ended it.
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
        // Some of the changes give up a reference.
        self.1.used();
        self.0.compare_exchange_weak(state, next, order, Acquire)
    }
}

/// Aborts the process before the reference count can overflow.
#[inline]
fn check_count(state: usize) {
    if state > isize::MAX as usize {
        std::process::abort();
    }
}
