//! The trait by which a shard calls its owner.

use std::{any::Any, marker::PhantomData, ops::RangeInclusive, ptr::NonNull};

use tourbillon_sync::foreign::resume;

use crate::{
    answer::{Kind, Outcome},
    tolerance::Tolerance,
};

/// Callbacks of a [`Shard`](crate::Shard) to the worker that owns it.
///
/// Only [`wake`](Owner::wake) and [`is_current`](Owner::is_current) are required. The other methods
/// serve statistics and optional features.
pub trait Owner: Send + Sync + Sized + 'static {
    /// Wakes the owner, which sleeps or is about to sleep, for example by a write to its eventfd.
    ///
    /// Any thread may call this, at most once each time that the owner parks. The call may come so
    /// late that the owner has parked again. It comes under a lock of a shard only if the function
    /// of [`wake_by`](tourbillon_pool::wake_by) makes it.
    fn wake(&self);

    /// Returns whether the calling thread is the owner.
    ///
    /// The shard uses the store directly if so, and otherwise its inbox. A wrong `false` only costs
    /// time. After a wrong `true` the owner may sleep past a deadline.
    fn is_current(&self) -> bool;

    /// Reports that a remote thread left an update for which the owner need not be woken: the owner
    /// is awake, or wakes early enough.
    fn wake_skipped(&self) {}

    /// Returns whether the owner leans, and one of its [mates](crate::Mates) wakes up for a timer
    /// of this shard that is due `at`, in ns: see [`Mates::is_covered`](crate::Mates::is_covered).
    fn is_covered(&self, _at: u64) -> bool {
        false
    }

    /// Sets the alarm of a shard that is [watched](crate::Shard::watched) to `at`, in ns, in place
    /// of any earlier setting. [`NEVER`](crate::NEVER) turns it off.
    ///
    /// At that time the alarm must wake some thread other than the owner, which calls
    /// [`take_alarm`](crate::Shard::take_alarm). A timerfd that all peers wait for can serve as the
    /// alarm. Any thread may call this, never under a lock of the shard.
    fn alarm(&self, _at: u64) {}

    /// Reports that `count` timers of this shard are made, whether they are started or not, or that
    /// a sleep that was over is armed again.
    ///
    /// The arming thread counts one here for each later call of [`over`](Owner::over), except those
    /// with [`Outcome::Refused`], before that call, and never under a lock of the shard. `here` tells
    /// whether that thread [is the owner](Owner::is_current).
    fn armed(&self, _kind: Kind, _here: bool, _count: u64) {}

    /// Reports that the calling thread, which arms a timer, contends with another thread for the
    /// inbox of this shard. The caller should arm its next timers on another shard.
    fn met(&self) {}

    /// Reports that the calling thread changed the deadline of a timer that waits, or that recurs
    /// and runs.
    ///
    /// `here` tells whether that thread [is the owner](Owner::is_current). Never called under a
    /// lock of the shard.
    fn moved(&self, _here: bool) {}

    /// Reports that a timer of this shard is over, or was [refused](crate::Timer::refused). Any
    /// thread may end a timer and then calls this, once for each timer, never under a lock of the
    /// shard.
    fn over(&self, _kind: Kind, _how: Outcome) {}

    /// Reports that a timer whose callback takes outcomes was started, or refused.
    /// [`outcome_delivered`](Owner::outcome_delivered) follows when the outcome has been delivered.
    /// The difference between the two counts is the number of outcomes still to come.
    fn outcome_pending(&self) {}

    /// Reports that a callback that takes outcomes has received its outcome, or has run for the
    /// last time.
    fn outcome_delivered(&self) {}

    /// Delivers an outcome: arranges for `notice` to be run where callbacks run.
    ///
    /// The calling thread may hold what the callback needs, a lock for example, so it should not
    /// run the callback itself. By default it does so all the same.
    fn deliver(&self, notice: Notice<Self>) {
        notice.run();
    }

    /// Handles a panic of a callback's destructor, or of a task's waker, when a timer ended without
    /// a run. Any thread may call this, never under a lock of the shard.
    ///
    /// By default the panic continues in the calling thread, unless that thread unwinds already. A
    /// caller of `cancel`, for example, then does not get the answer.
    fn panicked(&self, panic: Box<dyn Any + Send>) {
        resume(panic);
    }

    /// Reads the shard's clock again. Returns a range from the present to the latest moment that
    /// any thread has read so far, both in ns. The two differ if the clock may return a moment that
    /// is about to come.
    ///
    /// The calling thread read `now` before it saw the deadline of the timer that it moves.
    ///
    /// This is called if `now` would make the timer earlier than it is: another thread may have
    /// started or refreshed the timer after `now` was read. The default returns `now` for both,
    /// which is right if only one thread moves timers.
    fn reread(&self, now: u64) -> RangeInclusive<u64> {
        now..=now
    }

    /// Returns how late a timer may run that the calling thread is about to arm: a
    /// [`Sleep`](crate::Sleep), or a [`Timer`](crate::Timer) without options. The default is
    /// [`EXACT`](Tolerance::EXACT).
    ///
    /// The timer keeps its tolerance until it is over, also if it is moved or, for a sleep, armed
    /// again.
    #[inline]
    fn tolerance(&self) -> Tolerance {
        Tolerance::EXACT
    }

    /// Returns 64 random bits for [jitter](crate::Options::jitter). The default, 0, disables
    /// jitter.
    fn random(&self) -> u64 {
        0
    }
}

/// The right to call a timer's callback with its outcome: the timer ended without a run, or will
/// not run again.
///
/// The receiver [runs](Notice::run) it where user code may run. A drop runs it on the spot, so no
/// outcome is lost; a panic of the callback then continues in the thread that drops it.
///
/// The shard passes it to [`Owner::deliver`]. The owner keeps it for its loop, or sends it there:
///
/// ```
/// # use std::sync::{Arc, mpsc};
/// use tourbillon_shards::{Flow, Notice, Options, Outcome, Owner, Shard, Timer};
///
/// struct Loop { notices: mpsc::Sender<Notice<Loop>> }
///
/// impl Owner for Loop {
///     fn wake(&self) {}
///     fn is_current(&self) -> bool { true }
///     fn deliver(&self, notice: Notice<Loop>) {
///         // A loop on another thread has to be woken after this. If the loop is gone, `send`
///         // returns the notice, and dropping it runs the callback here.
///         let _ = self.notices.send(notice);
///     }
/// }
///
/// let (notices, delivered) = mpsc::channel();
/// let shard = Arc::new(Shard::new(Loop { notices }));
/// let options = Options { outcome: true, ..Options::default() };
/// let timer = Timer::build(&shard, 1_000, options, Flow::Break);
/// timer.start(0);
/// timer.cancel();
///
/// // In the loop:
/// for notice in delivered.try_iter() {
///     assert_eq!(notice.outcome(), Outcome::Cancelled);
///     if let Some(_panic) = notice.run() { /* the callback panicked */ }
/// }
/// # shard.close();
/// ```
pub struct Notice<O: Owner> {
    /// The node, as an untyped pointer that owns a reference, and the outcome. `node/notice.rs`
    /// has all that uses it: this module names no node, so that nodes can name their owner.
    pub(crate) held: Option<(NonNull<()>, Outcome)>,
    pub(crate) _owner: PhantomData<fn() -> O>,
}
