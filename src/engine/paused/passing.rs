//! The deadlines of all shards by a runtime's clock, for a clock that is paused.

use crate::{
    clock::runtime_clock::Clock,
    engine::{core::WorkerShard, shared::Shards},
};

/// Reads the pending updates of a shard, and returns its exact next deadline, by the runtime's
/// clock.
pub(super) fn settle(shard: &WorkerShard, clock: &Clock) -> u64 {
    own(shard, clock, shard.settle())
}

/// Returns until when the owner of a shard has announced to sleep, by the runtime's clock, or
/// `None` if it is awake.
pub(super) fn sleeps_until(shard: &WorkerShard, clock: &Clock) -> Option<u64> {
    let until = shard.parker().parked_until();
    until.map(|until| own(shard, clock, until))
}

/// Returns what the runtime's clock shows when the clock of a shard shows `moment`.
fn own(shard: &WorkerShard, clock: &Clock, moment: u64) -> u64 {
    let other = shard.owner().clock;
    other.map_or(moment, |other| clock.own(other, moment))
}

/// Wakes each owner whose shard has something due, and each owner that has announced an earlier
/// wake-up than its next deadline. Returns whether there was any.
///
/// `nexts` are the results of [`settle`]. An announcement is too early if its timer was reset or is
/// gone. A remote thread that arms a later timer relies on that announcement and wakes no owner, so
/// the owner must wake and announce anew.
pub(super) fn wake_due(shards: &Shards, nexts: &[u64], clock: &Clock) -> bool {
    let now = clock.now();
    let mut any = false;
    for (shard, &next) in shards.iter().zip(nexts) {
        // The owner has to act, or to announce anew, before the clock may move.
        if next <= now || sleeps_until(shard, clock).is_some_and(|at| at < next) {
            shard.wake();
            any = true;
        }
    }
    any
}
