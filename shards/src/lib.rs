//! What one core owns about time, and how threads meet over it: the parts of the
//! [Tourbillon](https://docs.rs/tourbillon) runtime that are lock-free, without its threads, its
//! clock and its system calls. Time comes in as `u64` nanoseconds.
//!
//! A [`Shard`] holds the timers of one worker. Its owner passes it the time and gets back what is
//! [due](Due); any thread arms, cancels and moves timers in it without waiting for anybody.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! use tourbillon_shards::{Cancel, Owner, Shard, Timer};
//!
//! /// An event loop of one thread, which nobody needs to wake.
//! struct Loop;
//! impl Owner for Loop {
//!     fn wake(&self) {}
//!     fn is_current(&self) -> bool { true }
//! }
//!
//! let shard = Arc::new(Shard::new(Loop));
//! let ran = Arc::new(AtomicU32::new(0));
//! let count = ran.clone();
//! let timer = Timer::once(&shard, 1_000, 1_000, move || { count.fetch_add(1, Ordering::Relaxed); });
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
//! **Who owns.** One thread owns a shard: it tells the shard the time, and sleeps until its deadlines.
//! [`Owner`] is what the shard has to know of that thread, of which two things matter:
//! [`is_current`](Owner::is_current) sends the owner's own calls straight to the store, and those of
//! others to an inbox; [`wake`](Owner::wake) has to end the owner's sleep, by a byte in a pipe, an
//! eventfd, or whatever it sleeps on. All else is for who wants to count, or has options in use.
//!
//! **A turn of the loop** has three steps:
//!
//! 1. [`Shard::expire`] with the present gets what is due. A limit keeps a storm of timers from
//!    keeping all else from running; the answer says whether to come again.
//! 2. [`Due::run`] runs each, here or on another thread: a [`Due`] may be sent anywhere. Until then it
//!    can be cancelled and moved. A callback may do to its shard, and to its own timer, whatever any
//!    other code may. If it panics the panic is an answer, not the loop's end.
//! 3. [`Shard::sleep_until`] says until when to sleep, if at all; [`Shard::resume`] ends that. Between
//!    the two, `wake` is called if something comes that cannot wait so long. A wake-up may come late,
//!    in a turn that has no need of it: let it stay pending, as a byte in a pipe does.
//!
//! A loop that asks for [`Shard::next_deadline`] alone, and does without the third step, is not woken
//! for what other threads arm. Workers that steal from each other sleep by [`Shard::park`], which
//! counts them among the [`Searchers`].
//!
//! **Timers from other threads** need nothing but the shard, in an `Arc`: [`Timer::once`],
//! [`Timer::recurring`] and all methods of [`Timer`] are called as the owner would. They do not wait
//! for the owner, nor for each other. Deadlines are on the owner's clock, which is best kept where
//! everybody finds it: in the [owner](Shard::owner).
//!
//! **Tasks** wait by [`Sleep`], which wakes a [`Waker`](std::task::Waker) and can be armed again.
//!
//! **Workers** that run tasks keep the one to run next in a [`NextSlot`], which peers can empty.
//!
//! **Options** are for [`Timer::build`], whose timers wait once they are [started](Timer::start):
//! see [`Options`].
//!
//! **Notices.** A callback that takes outcomes is told if its timer is cancelled, by whatever thread.
//! That is no place to run it: so the shard passes a [`Notice`] to [`Owner::deliver`], and the owner
//! runs it where callbacks run. An owner that has no such place need not do anything: notices are run
//! on the spot by default. [`Owner::owed`] and [`Owner::told`] count those to come, for an owner that
//! wants to end after the last of them.
//!
//! **Closing.** In the end [`Shard::close`] takes out all timers, and refuses those that come later.
//! Dropping the [`Orphans`] that it answers ends them: callbacks are dropped or told, tasks are woken.
//! A [`Due`] that is not going to run ends as it is dropped. A shard that is not closed leaks, with
//! its timers, since they refer to each other.
//!
//! The whole of it, around `poll(2)`, is `examples/poll_loop.rs`.
//!
//! The protocols, with what each thread may do and why nothing is lost, are in `PROTOCOLS.md` of
//! this crate; each is checked by loom on this source.

mod callback;
mod claim;
mod due;
mod ending;
mod extras;
mod foreign;
mod home;
mod inbox;
mod inner;
mod lock;
mod moving;
mod names;
mod node;
mod notice;
mod orphans;
mod owner;
mod park;
mod pool;
mod prefetch;
mod running;
mod search;
mod shard;
#[cfg(tourbillon_sim)]
#[doc(hidden)]
pub mod sim;
mod sleep;
mod sleep_or;
mod slot;
#[cfg(not(loom))]
mod spares;
mod standby;
pub mod store;
mod sync;
mod taken;
mod timer;
mod type_name;
mod wait;
mod waker;
mod watch;
mod watchers;

#[cfg(loom)]
#[doc(hidden)]
pub use self::node::model;
pub use self::{
    callback::Flow,
    claim::{NEVER, Outcome},
    due::{Due, Ran},
    extras::Options,
    names::{Name, Names},
    node::Kind,
    notice::Notice,
    orphans::{Orphan, Orphans},
    owner::Owner,
    park::{Parker, SearchClaim},
    pool::{
        Returned, all_memory_is_spare, has_spare_memory, note_spare_memory, prepare_memory_by,
        return_spare_memory, wake_for_spare_memory_by,
    },
    prefetch::prefetch,
    running::{is_told_of_shutdown, tell_of_shutdown},
    search::Searchers,
    shard::{Expired, Parked, Shard},
    sleep::Sleep,
    sleep_or::SleepOr,
    slot::{NextSlot, RawPointer},
    taken::Taken,
    timer::{Cancel, Reset, Started, Status, Timer},
    type_name::TypeName,
    watch::Coming,
    watchers::{Ended, InsideCallback},
};
#[cfg(not(loom))]
pub use self::{home::Home, spares::Spares};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
