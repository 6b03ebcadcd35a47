//! A common view of all shards whose timers follow a runtime's clock, for a clock that is paused.

use std::sync::Arc;

use crate::{
    clock::runtime_clock::Clock,
    engine::{
        clocks::owner::ClockShard,
        core::WorkerShard,
        shared::{Shared, Workers},
    },
};

/// A shard whose timers follow the runtime's clock: a worker's, or that of another clock.
pub(crate) trait ClockedShard {
    /// Reads the pending updates, and returns the exact next deadline, by the runtime's clock.
    fn settle(&self, clock: &Clock) -> u64;

    /// Returns until when the owner has announced to sleep, by the runtime's clock, or `None` if it
    /// is awake.
    fn sleeps_until(&self, clock: &Clock) -> Option<u64>;

    /// Wakes the owner.
    fn wake(&self);
}

impl ClockedShard for WorkerShard {
    fn settle(&self, _: &Clock) -> u64 {
        WorkerShard::settle(self)
    }

    fn sleeps_until(&self, _: &Clock) -> Option<u64> {
        self.parker().parked_until()
    }

    fn wake(&self) {
        WorkerShard::wake(self);
    }
}

impl ClockedShard for ClockShard {
    fn settle(&self, clock: &Clock) -> u64 {
        clock.own(self.owner().kind(), ClockShard::settle(self))
    }

    fn sleeps_until(&self, clock: &Clock) -> Option<u64> {
        let until = self.parker().parked_until()?;
        Some(clock.own(self.owner().kind(), until))
    }

    fn wake(&self) {
        ClockShard::wake(self);
    }
}

/// All shards of a runtime: those of the workers and of the clocks.
pub(crate) struct Shards {
    pub(crate) workers: Arc<Workers>,
    clocks: Arc<Vec<Arc<ClockShard>>>,
}

impl Shards {
    pub(crate) fn of(shared: &Shared) -> Self {
        Self {
            workers: shared.workers(),
            clocks: shared.clocks.all(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn ClockedShard> {
        let workers = self
            .workers
            .iter()
            .map(|shard| &**shard as &dyn ClockedShard);
        workers.chain(
            self.clocks
                .iter()
                .map(|shard| &**shard as &dyn ClockedShard),
        )
    }
}

/// Wakes each owner whose shard has something due, and each owner that has announced an earlier
/// wake-up than its next deadline. Returns whether there was any.
///
/// `nexts` are the results of [`ClockedShard::settle`]. An announcement is too early if its timer
/// was reset or is gone. A remote thread that arms a later timer relies on that announcement and
/// wakes no owner, so the owner must wake and announce anew.
pub(crate) fn wake_due(shards: &Shards, nexts: &[u64], clock: &Clock) -> bool {
    let now = clock.now();
    let mut any = false;
    for (shard, &next) in shards.iter().zip(nexts) {
        // The owner has to act, or to announce anew, before the clock may move.
        if next <= now || shard.sleeps_until(clock).is_some_and(|at| at < next) {
            shard.wake();
            any = true;
        }
    }
    any
}
