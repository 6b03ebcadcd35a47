//! What a shard asks of who owns it.

use std::{any::Any, ops::RangeInclusive, panic::resume_unwind};

use crate::{claim::Outcome, node::Kind, notice::Notice};

/// What a shard asks of the worker that owns it.
pub trait Owner: Send + Sync + Sized + 'static {
    /// Wakes the owner, which is asleep or about to be: a write to its eventfd, say. Called at most
    /// once for each time that the owner parks (though perhaps so late that it has parked again),
    /// from any thread, and never under a lock of the shard.
    fn wake(&self);

    /// Whether the calling thread is the owner. Decides between the store and the inbox. A wrong
    /// *no* costs time, no more; after a wrong *yes* the owner may sleep past a deadline.
    fn is_current(&self) -> bool;

    /// News was brought from another thread that the owner, awake or waking in time, needs no wake
    /// for.
    fn wake_skipped(&self) {}

    /// Sets the alarm of a shard that is [watched](crate::Shard::watched), or sets it anew: at `at`, in
    /// ns, it wakes some thread that is not the owner, and that calls
    /// [`take_alarm`](crate::Shard::take_alarm). With [`NEVER`](crate::NEVER) it is not set any more. A
    /// timerfd that all peers wait for, say. From any thread, and never under a lock of the shard.
    fn alarm(&self, _at: u64) {}

    /// A timer of this shard is armed: made, be it started or not, or, if it is a sleep that was over, armed again.
    /// Called once for each that will be [over](Owner::over), before that, by the thread that arms it, and never
    /// under a lock of the shard. `here`: that thread [is the owner](Owner::is_current).
    fn armed(&self, _kind: Kind, _here: bool) {}

    /// The calling thread arms a timer, and meets another thread at the inbox of this shard: both
    /// want the same cache lines. The caller had better arm its next timers elsewhere.
    fn met(&self) {}

    /// A timer of this shard that waits, or runs and recurs, was given another deadline by the
    /// calling thread. `here`: that thread [is the owner](Owner::is_current). Never under a lock of
    /// the shard.
    fn moved(&self, _here: bool) {}

    /// A timer of this shard is over. Called once for each, from whichever thread ended it, and
    /// never under a lock of the shard.
    fn over(&self, _kind: Kind, _how: Outcome) {}

    /// A timer was started whose callback has to be told how it ended; [`told`](Owner::told) is
    /// called when it was. As many as are owed are yet to come, as notices or as timers.
    fn owed(&self) {}

    /// A callback that had to be told has been told, or has run for the last time.
    fn told(&self) {}

    /// A callback has to be told how its timer ended, where callbacks run: on the stack of the
    /// calling thread is not the place, since that may hold whatever the callback wants to have.
    /// By default it is told there all the same.
    fn deliver(&self, notice: Notice<Self>) {
        notice.run();
    }

    /// A timer ended without a run, and the destructor of its callback (or the waker of its task)
    /// panicked with this on the calling thread, which may be any. Never under a lock of the shard.
    ///
    /// By default the panic goes on: to who cancelled the timer, say, who does not learn then what
    /// came of it.
    fn panicked(&self, panic: Box<dyn Any + Send>) {
        resume_unwind(panic);
    }

    /// Reads the clock of the shard again, for a thread that read `now` from it before it saw the
    /// deadline of the timer that it moves. Answers the present, and the latest moment that any
    /// thread has been told so far (which differ where a clock may answer a moment that is about to
    /// come).
    ///
    /// It is asked where `now` would make the timer earlier than it is: another thread may have
    /// started or refreshed it after `now` was read. By default the answer is `now`, which does
    /// where one thread moves timers.
    fn reread(&self, now: u64) -> RangeInclusive<u64> {
        now..=now
    }

    /// Any number of 64 bits, for [jitter](crate::Options::jitter). By default there is none.
    fn random(&self) -> u64 {
        0
    }
}
