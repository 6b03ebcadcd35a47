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
//! The protocols, with what each thread may do and why nothing is lost, are in `PROTOCOLS.md` of
//! this crate; each is checked by loom on this source.

mod callback;
mod claim;
mod due;
mod ending;
mod extras;
mod foreign;
mod inbox;
mod inner;
mod lock;
mod names;
mod node;
mod notice;
mod orphans;
mod owner;
mod park;
mod running;
mod search;
mod shard;
mod sleep;
pub mod store;
mod sync;
mod timer;
mod waker;
mod watchers;

pub use self::{
    callback::Flow,
    claim::{NEVER, Outcome},
    due::{Due, Ran},
    extras::Options,
    names::{Name, Names},
    node::Kind,
    notice::Notice,
    orphans::Orphans,
    owner::Owner,
    park::{Parker, SearchClaim},
    search::Searchers,
    shard::{Expired, Parked, Shard},
    sleep::Sleep,
    timer::{Cancel, Reset, Started, Status, Timer},
    watchers::{Ended, InsideCallback},
};
