//! [`NewTimers`]: timers that are made one by one, and armed together.

use std::{mem, num::NonZeroU64};

use tourbillon_sync::Arc;

use crate::{
    node::{NodeRef, callback, claim::NEVER, state::Claim},
    owner::Owner,
    shard::{
        Shard,
        home::{Home, Spares},
    },
    timer::Timer,
    tolerance::Tolerance,
};

/// Timers of one shard that are made one by one, and [armed](NewTimers::arm) together.
///
/// Together they take the shard's lock once or, from a thread that is not the owner, one step to
/// enter the inbox and one look at whether the owner sleeps too long. Until they are armed they are
/// with this value alone: none of them fires, and no other thread can reach them.
///
/// Dropping this arms the timers, too, and drops their handles.
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Cancel, NewTimers, Owner, Shard};
/// # struct Loop;
/// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
/// let shard = Arc::new(Shard::new(Loop));
/// let mut timers = NewTimers::new(&shard, 3);
/// for deadline in [30, 10, 20] {
///     timers.once(deadline, deadline, None, || ());
/// }
/// let timers = timers.arm();
/// assert_eq!(shard.next_deadline(), 10);
/// assert_eq!(timers[1].cancel(), Cancel::Cancelled);
/// shard.close();
/// ```
pub struct NewTimers<O: Owner> {
    /// The shard, with a stock of references to it, of which each timer takes one.
    home: Spares<O>,
    tolerance: Tolerance,
    /// The handles, and the shard's references to those that are to be armed.
    timers: Vec<Timer<O>>,
    nodes: Vec<NodeRef<O>>,
}

impl<O: Owner> NewTimers<O> {
    /// Creates an empty list with room for `count` timers of `home`. All of them get the tolerance
    /// that [`Owner::tolerance`] returns now.
    pub fn new(home: &Arc<Shard<O>>, count: usize) -> Self {
        Self {
            home: Spares::new(home),
            tolerance: home.owner().tolerance(),
            timers: Vec::with_capacity(count),
            nodes: Vec::with_capacity(count),
        }
    }

    /// Adds a timer that runs `f` once: see [`Timer::once`], and [`Timer::once_from`] for `origin`.
    #[inline]
    pub fn once<F>(&mut self, deadline: u64, wait: u64, origin: Option<NonZeroU64>, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        let (at, claim) = (
            Home::new(&self.home.shard),
            Claim::Pending(deadline.min(NEVER)),
        );
        let (node, stored) = match origin {
            None => callback::once(at, claim, wait, (), f),
            Some(origin) => callback::once(at, claim, wait, origin, f),
        };
        if !self.tolerance.is_exact() {
            node.set_tolerance(self.tolerance);
        }
        self.timers.push(Timer(node));
        self.nodes.push(stored);
    }

    /// Adds a timer that the owner refuses: see [`Timer::refused`].
    pub fn refused(&mut self) {
        self.timers.push(Timer::refused(&self.home.shard));
    }

    /// Arms the timers, and returns them in the order in which they were added. On a closed shard
    /// they are shut down at once.
    ///
    /// An owner holds the shard's lock until all of them are in the store, so this is for some
    /// hundred at a time.
    pub fn arm(mut self) -> Vec<Timer<O>> {
        self.home.shard.insert_many(self.nodes.drain(..));
        mem::take(&mut self.timers)
    }
}

impl<O: Owner> Drop for NewTimers<O> {
    fn drop(&mut self) {
        self.home.shard.insert_many(self.nodes.drain(..));
    }
}

debug!(NewTimers, |new| new.timers.len());
