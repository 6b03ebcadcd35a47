//! Per-core timers with lock-free access from other threads: the core of the
//! [Tourbillon](https://docs.rs/tourbillon) runtime, without its threads, clock and system calls.
//!
//! A [`Shard`] holds the timers of one worker. The worker tells it the time, as `u64` nanoseconds,
//! and gets back the timers that are [due](Due). Any thread can arm, cancel and reset timers in it
//! without waiting for another thread.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! use tourbillon_shards::{Cancel, Owner, Shard, Timer};
//!
//! /// An event loop on one thread, which no other thread has to wake.
//! struct Loop;
//! impl Owner for Loop {
//!     fn wake(&self) {}
//!     fn is_current(&self) -> bool { true }
//! }
//!
//! let shard = Arc::new(Shard::new(Loop));
//! let ran = Arc::new(AtomicU32::new(0));
//! let count = ran.clone();
//! let timer = Timer::once(&shard, 1_000, 1_000, move || {
//!     count.fetch_add(1, Ordering::Relaxed);
//! });
//! let other = Timer::once(&shard, 2_000, 2_000, || unreachable!("it is cancelled"));
//!
//! assert_eq!(shard.next_deadline(), 1_000);
//! assert_eq!(other.cancel(), Cancel::Cancelled);
//!
//! let mut due = Vec::new();
//! shard.expire(1_500, usize::MAX, &mut due);
//! for timer in due {
//!     timer.run(|| 1_500);
//! }
//! assert_eq!(ran.load(Ordering::Relaxed), 1);
//! assert_eq!(timer.cancel(), Cancel::Over);
//! shard.close();
//! ```
//!
//! # Guide
//!
//! **Ownership.** One thread owns a shard. It tells the shard the time, and sleeps until the next
//! deadline. The shard reaches its owner through the [`Owner`] trait. Two methods are required:
//!
//! - [`is_current`](Owner::is_current) lets the owner's calls go straight to the store, and sends
//!   the calls of other threads through an inbox.
//! - [`wake`](Owner::wake) ends the owner's sleep, for example by a write to an eventfd or a pipe.
//!
//! The other methods have defaults. They serve statistics and the optional features.
//!
//! **A turn of the loop** has three steps:
//!
//! 1. [`Shard::expire`] takes the current time and returns the timers that are due. Its limit keeps
//!    a burst of timers from delaying other work; its result says whether to call it again.
//! 2. [`Due::run`] runs one due timer. A [`Due`] may be sent to another thread. Until it runs, the
//!    timer can still be cancelled or reset. A callback may use its own shard and its own timer. If
//!    a callback panics, `run` returns the panic and the loop goes on.
//! 3. [`Shard::sleep_until`] says until when to sleep, and [`Shard::resume`] ends that sleep.
//!    Between the two, the shard calls `wake` when an update cannot wait so long. A wake-up may
//!    come late, when the owner is already awake. It must stay pending, as a byte in a pipe does.
//!
//! A loop that calls only [`Shard::next_deadline`] and leaves out step 3 is not woken when another
//! thread arms a timer. Workers that steal from each other sleep by
//! [`Searchers::sleep`](tourbillon_sched::Searchers::sleep), which counts them.
//!
//! **Remote threads** need only the shard, in an `Arc`. They call [`Timer::once`],
//! [`Timer::recurring`] and the methods of [`Timer`] as the owner does. They wait neither for the
//! owner nor for each other. All deadlines are on the owner's clock, so keep that clock where every
//! thread can reach it: in the [owner](Shard::owner).
//!
//! **Tasks** wait with a [`Sleep`], which wakes a [`Waker`](std::task::Waker) and can be armed
//! again.
//!
//! **Options** such as a name or a tolerance are given to [`Timer::build`]. Such a timer waits from
//! the call of [`Timer::start`]: see [`Options`].
//!
//! **Outcomes.** A callback that takes outcomes is also called when its timer is cancelled or shut
//! down. The thread that cancels a timer may hold a lock that the callback needs. So the shard
//! passes a [`Notice`] to [`Owner::deliver`], and the owner runs it where callbacks run. By default
//! the cancelling thread runs it at once. [`Owner::outcome_pending`] and
//! [`Owner::outcome_delivered`] count the outcomes that are still to come, for an owner that must
//! stay until the last of them.
//!
//! **Closing.** [`Shard::close`] drains the shard, which refuses timers from then on. Dropping the
//! returned [`DrainedTimers`] ends the drained timers: each callback is dropped or receives its
//! outcome, and each task is woken. A [`Due`] that is dropped without a run ends in the same way.
//! Close each shard explicitly: a shard and its timers refer to each other, and leak otherwise.
//!
//! A complete program, around `poll(2)`, is `examples/poll_loop.rs`.
//!
//! `PROTOCOLS.md` of this crate describes the protocols between threads, and proves that they lose
//! nothing. Those of sleeping and waking are in `tourbillon-sched`. loom checks each of them on
//! this source.

/// Implements `Debug` for a type that has an owner, by one value of it.
macro_rules! debug {
    ($name:ident, |$it:ident| $value:expr) => {
        impl<O: crate::Owner> std::fmt::Debug for $name<O> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_tuple(stringify!($name)).field(&$value).finish()
            }
        }
    };
}

mod answer;
mod due;
mod names;
mod node;
mod owner;
mod shard;
mod sleep;
pub mod store;
mod timer;
mod tolerance;

#[cfg(loom)]
#[doc(hidden)]
pub use self::node::model;
pub use self::{
    answer::{Cancel, Flow, Kind, Outcome, Reset, Started, Status},
    due::{Due, Ran},
    names::{Name, Names},
    node::{
        claim::NEVER,
        running::{is_told_of_shutdown, tell_of_shutdown},
        taken::Taken,
    },
    owner::{Notice, Owner},
    shard::{
        Shard,
        drained::DrainedTimers,
        expire::Expired,
        home::{Home, Spares},
        mates::{Leaning, Mate, Mates},
    },
    sleep::Sleep,
    timer::{
        Timer,
        ended::{Ended, InsideCallback},
        many::NewTimers,
        options::Options,
    },
    tolerance::Tolerance,
};
/// What [`Due::type_name`] and [`Notice::type_name`] return.
pub use tourbillon_sync::TypeName;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
