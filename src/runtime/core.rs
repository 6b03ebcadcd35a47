//! What a worker shares with everybody: its shard's owner.

use std::{
    io,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crossbeam::deque::Stealer;
use tourbillon_shards::{Kind, Notice, Outcome, Owner, Shard};

use super::{context, handle::Handle, local::Job, shared::Shared, stall::Watch};
use crate::{
    metrics::{Counters, WorkerCounters},
    reactor::{Reactor, WAKE_TOKEN},
    sys::{epoll, eventfd::EventFd},
};

/// A worker, as other threads know it: its timers, and through their owner all the rest.
pub(crate) type WorkerShard = Shard<Core>;

/// The shared part of a worker. It owns the worker's shard, so that whoever has a timer, a task or
/// a socket of this worker has the way to it, at the price of a count that is this worker's alone.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Core {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stealer: Stealer<Job>,
    pub(crate) reactor: Reactor,
    pub(crate) counters: WorkerCounters,
    /// What it is at.
    pub(super) watch: Watch,
    eventfd: EventFd,
    /// Timers of this shard whose callbacks are to be told how they ended, and have not been.
    owed: AtomicUsize,
}

/// What the timers' handles ask of the owner of a shard.
pub trait TimerOwner: Owner {
    /// The runtime.
    fn shared(&self) -> &Arc<Shared>;

    /// The time by which the shard's timers are due, in ns.
    fn now(&self) -> u64;

    /// Counts a timer that is armed here.
    fn count_armed(&self);
}

impl Core {
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared>,
        stealer: Stealer<Job>,
        pwait2: bool,
    ) -> io::Result<Self> {
        let eventfd = EventFd::new()?;
        let reactor = Reactor::new(pwait2)?;
        reactor
            .epoll()
            .add(eventfd.as_raw_fd(), WAKE_TOKEN, epoll::READABLE)?;
        Ok(Self {
            index,
            shared,
            stealer,
            reactor,
            counters: WorkerCounters::default(),
            watch: Watch::new(),
            eventfd,
            owed: AtomicUsize::new(0),
        })
    }

    /// A handle to this worker's runtime.
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(self.shared.clone())
    }

    /// How many callbacks are still to be told.
    pub(super) fn owes(&self) -> usize {
        self.owed.load(Ordering::Acquire)
    }

    /// Wakes the worker, which has been claimed to search.
    pub(super) fn wake_to_search(&self) {
        self.counters.foreign.search_wakes.add(1);
        self.eventfd.write();
    }

    /// Counts on behalf of the calling thread: as this worker's own if it is a worker of this
    /// runtime.
    pub(crate) fn count(&self, counter: impl Fn(&Counters) -> &crate::metrics::Counter) {
        context::with_local(|local| match local {
            Some(local) if local.is_of(&self.shared) => {
                counter(&local.shard.owner().counters.own).add_alone(1);
            }
            _ => counter(&self.counters.foreign).add(1),
        });
    }
}

impl TimerOwner for Core {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[inline]
    fn now(&self) -> u64 {
        self.shared.clock.now()
    }

    fn count_armed(&self) {
        self.count(|counters| &counters.armed);
    }
}

impl Owner for Core {
    fn wake(&self) {
        self.counters.foreign.tickles_written.add(1);
        self.eventfd.write();
    }

    #[inline]
    fn is_current(&self) -> bool {
        context::is_current(self)
    }

    fn wake_skipped(&self) {
        self.counters.foreign.tickles_skipped.add(1);
    }

    fn over(&self, kind: Kind, how: Outcome) {
        if kind != Kind::Sleep {
            self.shared.release_timer();
        }
        self.count(|counters| counters.over(how));
    }

    fn owed(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn told(&self) {
        // Who ends the runtime sees all that the callback did.
        self.owed.fetch_sub(1, Ordering::Release);
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.shared.deliver(Job::Notice(notice));
    }

    fn random(&self) -> u64 {
        context::random()
    }
}
