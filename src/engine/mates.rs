//! Groups of workers that share a budget for wake-ups, and the wake-ups: see "Mates" in
//! `crates/sched/PROTOCOLS.md`.
//!
//! Groups exist if there are more workers than cores, as many as there are cores. Workers take turns
//! in them by number, as they do on named cores. It does not matter whether the workers of a group
//! have the same core, and without pins none has one: each group spends the budget of one core, and
//! saves wake-ups, whichever core its workers sleep on.

use std::sync::Arc;

use arc_swap::Guard;
use crossbeam::utils::CachePadded;
use tourbillon_shards::{Leaning, Mate, Mates};

use crate::{
    engine::{
        config::Config,
        core::{Core, WorkerShard},
        shared::{Shared, Workers},
    },
    sys::sync::atomic::{AtomicU64, Ordering},
};

/// How much longer than its deferral a worker that leans sleeps, in ns. After that it looks at its
/// timers itself.
const LEANS: u64 = 50_000_000;

/// What the workers of a group share.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) leaning: Leaning,
    /// The moment up to which their budget is spent, in ns.
    pub(crate) spent: Arc<CachePadded<AtomicU64>>,
}

/// Returns whether a runtime with so many workers has groups. It has none if no two workers share a
/// core, or if there is no budget. Nor if no peer rescues a worker that blocks, because the timers
/// of its mates would wait, too.
pub(crate) fn are_grouped(config: &Config, workers: usize) -> bool {
    config.shares_cores && config.timer_budget.is_some() && config.is_watched(workers)
}

/// Returns the groups of a runtime with so many workers: as many as cores, or none.
pub(crate) fn groups(config: &Config, workers: usize) -> Box<[CachePadded<Group>]> {
    let group = |_| {
        CachePadded::new(Group {
            leaning: Leaning::new(),
            spent: Arc::default(),
        })
    };
    let count = match are_grouped(config, workers) {
        true => config.cores,
        false => 0,
    };
    (0..count).map(group).collect()
}

impl Shared {
    /// Returns the group of worker `index`, and its place there.
    #[inline]
    pub(crate) fn group(&self, index: usize) -> Option<(&Group, usize)> {
        let count = self.groups.len();
        let place = index.checked_div(count)?;
        // A helper is in no group.
        (index < self.recorders.len()).then(|| (&*self.groups[index % count], place))
    }

    /// Returns how many workers lean in the group of worker `index`. A hint.
    #[inline]
    pub(crate) fn leaning(&self, index: usize) -> usize {
        let group = self.group(index);
        group.map_or(0, |(group, _)| group.leaning.count())
    }

    /// Returns the workers, for [`mate`](Shared::mate) and [`mates`](Shared::mates), if there are
    /// groups.
    pub(crate) fn mates_table(&self) -> Option<Guard<Arc<Workers>>> {
        (!self.groups.is_empty()).then(|| self.workers.load())
    }

    /// Returns the group of worker `index`, and its place there, with the shards of its workers.
    pub(crate) fn mates<'a>(
        &'a self,
        index: usize,
        workers: Option<&'a Arc<Workers>>,
    ) -> Option<(Mates<'a, Core>, usize)> {
        let ((group, place), step) = (self.group(index)?, self.groups.len());
        let mates = Mates::new(&group.leaning, workers?, index % step, step);
        Some((mates, place))
    }

    /// Returns the worker of `shard` as one that is about to sleep.
    pub(crate) fn mate<'a>(
        &'a self,
        shard: &'a WorkerShard,
        workers: Option<&'a Arc<Workers>>,
    ) -> Mate<'a, Core> {
        let mates = self.mates(shard.owner().index, workers);
        // On a clock that was ever paused no wake-up is deferred.
        let until = match mates.is_none() || self.clock.was_paused() {
            true => 0,
            false => shard.deferred().saturating_add(LEANS),
        };
        Mate::new(shard, mates, until)
    }

    /// Calls `f` for each worker that leans in the group of worker `index`, except for that one.
    #[inline]
    pub(crate) fn each_leaning(&self, index: usize, mut f: impl FnMut(&WorkerShard)) {
        if self.leaning(index) == 0 || self.clock.was_paused() {
            return;
        }
        let workers = self.mates_table();
        if let Some((mates, place)) = self.mates(index, workers.as_deref()) {
            mates.leaning(place).for_each(|(_, mate)| f(mate));
        }
    }

    /// Wakes the workers that relied on worker `index` alone, which a peer now watches.
    pub(crate) fn wake_left(&self, index: usize) {
        let workers = self.mates_table();
        if let Some((mates, place)) = self.mates(index, workers.as_deref()) {
            mates.wake_left(place);
        }
    }

    /// Returns whether worker `index` leans, and a mate wakes up for a timer that is due `at`.
    pub(crate) fn is_covered(&self, index: usize, at: u64) -> bool {
        let leans = |(group, place): (&Group, usize)| group.leaning.leans(place);
        if !self.group(index).is_some_and(leans) {
            return false;
        }
        let workers = self.mates_table();
        let mates = self.mates(index, workers.as_deref());
        mates.is_some_and(|(mates, place)| mates.is_covered(at, place))
    }

    /// Returns whether a worker that is not awake was to be awake by `now`, in ns, and workers lean
    /// that may rely on that. The worker itself may have no timer that is due.
    pub(crate) fn keeps_mates_waiting(&self, shard: &WorkerShard, now: u64) -> bool {
        // Without a time it is being woken, and gets no core.
        let until = shard.parker().parked_until();
        self.leaning(shard.owner().index) > 0 && until.is_none_or(|at| at <= now)
    }

    /// Notes that the worker of `core` sleeps until `until`, in ns, past a deadline of its own, or
    /// of a worker that leans.
    pub(crate) fn note_deferred(&self, core: &Core, until: u64) {
        let note = |core: &Core| core.deferred_to.store(until, Ordering::Relaxed);
        note(core);
        self.each_leaning(core.index, |mate| note(mate.owner()));
    }
}
