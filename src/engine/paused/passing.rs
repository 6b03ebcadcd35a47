//! All shards whose timers pass with a runtime's clock, seen alike: for a clock that is paused.

use std::sync::Arc;

use crate::{
    clock::runtime_clock::Clock,
    engine::{
        clocks::owner::ClockShard,
        core::WorkerShard,
        shared::{Shared, Workers},
    },
};

/// A shard whose timers pass with the runtime's clock: a worker's, or that of another clock.
pub(crate) trait Passing {
    /// Reads its news, and answers its next deadline by the runtime's clock, exactly.
    fn settle(&self, clock: &Clock) -> u64;

    /// By the runtime's clock, until when its owner has announced to sleep.
    fn sleeps_until(&self, clock: &Clock) -> Option<u64>;

    /// Wakes its owner.
    fn wake(&self);
}

impl Passing for WorkerShard {
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

impl Passing for ClockShard {
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

/// All shards of a runtime.
pub(crate) struct Shards {
    pub(crate) workers: Arc<Workers>,
    clocks: Arc<Vec<Arc<ClockShard>>>,
}

impl Shards {
    pub(crate) fn of(shared: &Shared) -> Self {
        Self {
            workers: shared.workers(),
            clocks: shared.clocks(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Passing> {
        let workers = self.workers.iter().map(|shard| &**shard as &dyn Passing);
        workers.chain(self.clocks.iter().map(|shard| &**shard as &dyn Passing))
    }
}

/// Wakes the owners that have something due; `nexts` is what [`Passing::settle`] said of each. And those
/// that announced an earlier moment than that, for a timer that was moved or is gone: who arms one for
/// later relies on them to be awake by then, and will wake nobody. True if there are any.
pub(crate) fn wake_due(shards: &Shards, nexts: &[u64], clock: &Clock) -> bool {
    let now = clock.now();
    let mut any = false;
    for (shard, &next) in shards.iter().zip(nexts) {
        if next <= now || shard.sleeps_until(clock).is_some_and(|at| at < next) {
            shard.wake();
            any = true;
        }
    }
    any
}
