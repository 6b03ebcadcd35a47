//! How a worker fires its timers: it takes what is due from its shard, queues the callbacks, and
//! wakes the tasks of sleeps.

use tourbillon_shards::{Expired, Kind, NEVER};
use tourbillon_sync::prefetch;

use crate::{
    engine::{
        core::{Core, WorkerShard},
        job::Job,
        watchdog::rescue::RESCUED,
        worker::{Worker, wake_all},
    },
    sys::sync::thread,
};

/// How many timers the worker takes from its shard at a time. They are queued before any job runs.
///
/// With 16, the cache misses of the prefetched tasks overlap, and the data is still in the cache
/// when each job runs. With 56 or more, most of it was evicted before. A small batch also fits the
/// deque while its buffer is small: the deque reallocates each time it grows or shrinks. The other
/// due timers wait in the shard, in their order, so sockets and tasks do not wait behind all of
/// them.
const DUE_BATCH: usize = 16;
/// The most timers that the worker takes at a time, however many jobs have run. The shard is locked
/// while they are taken.
pub(crate) const DUE_MOST: usize = 256;
/// How many bytes to prefetch of the task behind a waker, before it is woken: its header and a
/// small future.
const TASK_BYTES: usize = 256;

impl Worker<'_> {
    /// Takes due timers from the shard, queues their callbacks, and wakes their tasks. Returns
    /// `true` if a job may be ready, or if more timers are due.
    pub(super) fn fire_due(&mut self) -> bool {
        // Before the own timers fill the deque: those of workers that lean have as much room, or
        // they would pile up while this worker is busy. They share it: more jobs at a time would
        // seem worth a wake-up of a peer.
        let leaning = self.shared.leaning(self.core.index);
        let for_mates = (leaning > 0).then(|| self.due_limit(leaning));
        let own = self.fire_own();
        for_mates.is_some_and(|limit| self.fire_for_mates(limit)) || own
    }

    /// Returns how many due timers the worker takes now from each of so many shards: as many as the
    /// deque has room for, and at least as many as other jobs have run since the last poll, so that
    /// a flood of jobs cannot starve the timers.
    fn due_limit(&self, shards: usize) -> usize {
        let room = DUE_BATCH.saturating_sub(self.local.deque.len());
        let room = (room / shards).max(1);
        let jobs = (self.tick - self.last_poll).saturating_sub(self.timers_since_poll);
        room.max(usize::try_from(jobs).map_or(DUE_MOST, |jobs| jobs.min(DUE_MOST)))
    }

    /// Takes due timers of the workers that lean on this one, up to `limit` of each, and queues and
    /// wakes what they stand for. Returns `true` if a job may be ready, or if more timers are due.
    fn fire_for_mates(&mut self, limit: usize) -> bool {
        let (more, denied) = self.take_from_mates_of(self.core, limit, None);
        self.timers_since_poll += self.due.len() as u64;
        let any = !self.due.is_empty();
        if any && self.search.is_on {
            self.found();
        }
        self.queue_due();
        match denied {
            // Another thread takes from the same worker.
            true => self.mates_patience.wait(),
            false => self.mates_patience.reset(),
        }
        any || more
    }

    /// Takes the due timers of the workers that lean on the worker of `core`, up to `limit` of each,
    /// and no more than `due` has memory for. `came`: when this thread came to that worker, if it is
    /// stuck. Returns whether there are more, and whether another thread had the lock of one of their
    /// shards. It runs no user code.
    pub(crate) fn take_from_mates_of(
        &mut self,
        core: &Core,
        limit: usize,
        came: Option<u64>,
    ) -> (bool, bool) {
        let (mut more, mut denied) = (false, false);
        let shared = self.shared;
        let rescue = came.map(|came| (core, came));
        shared.each_leaning(core.index, |mate| {
            let room = RESCUED.saturating_sub(self.due.len());
            let expired = self.take_from(mate, limit.min(room), rescue);
            more |= expired.is_some_and(|it| it.more && !it.denied);
            denied |= expired.is_some_and(|it| it.denied);
        });
        (more, denied)
    }

    /// Takes due timers of a worker that leans, if it has any.
    fn take_from(
        &mut self,
        mate: &WorkerShard,
        limit: usize,
        rescue: Option<(&Core, u64)>,
    ) -> Option<Expired> {
        let (next, now) = (mate.next_deadline(), self.shared.clock.now());
        if next == NEVER || next > now {
            return None;
        }
        let first = self.due.len();
        let (now, may_be_late) = self.moment_of_taking(now, next);
        if may_be_late {
            // Its sleeps ask the track of their owner.
            mate.owner().track.set_looks(true);
        }
        let expired = mate.expire(now, limit, &mut self.due);
        match rescue {
            // They waited for the worker that is stuck.
            Some((stuck, came)) => {
                self.note_rescued(first, now);
                self.note_taken_from(stuck, first, now, came);
            }
            None => {
                self.note_late(first, now);
                self.note_batch(first, now, may_be_late);
            }
        }
        Some(expired)
    }

    /// Does what [`fire_due`](Worker::fire_due) says for the timers of the own shard.
    fn fire_own(&mut self) -> bool {
        let shard = &self.local.shard;
        // `soonest` lets a timer run before the end of its tolerance, if the worker is awake
        // anyway. On a clock that was ever paused, when a timer runs must not depend on when the
        // worker looks.
        let next = if self.shared.clock.was_paused() {
            shard.next_deadline()
        } else {
            shard.soonest()
        };
        // Skip the lock of the shard if nothing is due and no updates are pending, and the clock if
        // there is nothing at all.
        let has_updates = shard.has_updates();
        if !has_updates && next == NEVER {
            return false;
        }
        let now = self.shared.clock.now();
        self.fired_at = now;
        if !has_updates && next > now {
            return false;
        }
        let limit = self.due_limit(1);
        let first = self.due.len();
        let (now, may_be_late) = self.moment_of_taking(now, next);
        let expired = shard.expire(now, limit, &mut self.due);
        let more = expired.more;
        if !expired.denied {
            self.patience.reset();
        }
        self.timers_since_poll += (self.due.len() - first) as u64;
        self.note_late(first, now);
        self.note_taken(first, now, may_be_late, more);
        let any = !self.due.is_empty();
        if any && self.search.is_on {
            // Leave the search first: the wakers of sleeps are user code that may take long, and
            // while this worker counts as a searcher, no other worker is woken.
            self.found();
        }
        self.queue_due();
        if expired.denied {
            // Another thread has the shard's lock, for one batch at most: let it run.
            self.patience.wait();
        } else if more && !any && !expired.moved {
            // The inbox holds more than one pass reads. Let the threads run that fill it.
            thread::yield_now();
        }
        any || more
    }

    /// Queues the callbacks of the timers that were taken, and wakes the tasks of the sleeps.
    pub(crate) fn queue_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let (core, local) = (self.core, self.local);
        let (due, wakers) = (&mut self.due, &mut self.wakers);
        // A timer of a group that is made later is no part of this batch.
        let has_groups = self.shared.task_groups.table().is_some();
        local.batch(|| {
            for timer in due.drain(..) {
                match timer.kind() {
                    // Fire all sleeps of a run first, and wake their tasks afterwards. The tasks
                    // are not in the cache: prefetching them overlaps with the next sleeps.
                    Kind::Sleep => {
                        if let Some(waker) = timer.fire() {
                            prefetch(waker.data(), TASK_BYTES);
                            if wakers.len() == wakers.capacity() {
                                // Do not grow the vector. Only a rescue takes so many: see
                                // `RESCUED`.
                                wake_all(core, wakers);
                            }
                            wakers.push(waker);
                        }
                    }
                    // Wake the tasks before the callback is queued, to keep the order of
                    // the deadlines.
                    _ => {
                        if !wakers.is_empty() {
                            wake_all(core, wakers);
                        }
                        let job = Job::Timer(timer);
                        match has_groups {
                            true => local.queue(job),
                            false => local.deque.push(job),
                        }
                    }
                }
            }
            wake_all(core, wakers);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam::deque;
    use tourbillon_sched::Sleeper;
    use tourbillon_shards::Timer;

    use super::*;
    use crate::{
        engine::{
            core::{Core, Role},
            local::Local,
            shared::Shared,
            watchdog::rescue::watched,
        },
        runtime::Builder,
        sys::cpu::RuntimeMask,
    };

    /// More than a worker takes from a shard if no job has run.
    const MANY: usize = 2 * DUE_BATCH;
    const HOUR: u64 = 3_600_000_000_000;

    /// Returns how many timers a worker takes at a time that has run so many jobs since the last
    /// time, if it and each of so many workers that lean on it have [`MANY`] due ones.
    fn taken(jobs: usize, leaners: usize) -> usize {
        let count = leaners + 1;
        let runtime = Builder::new().worker_threads(count).build().unwrap();
        let mut config = runtime.handle().shared().config.clone();
        (config.cores, config.shares_cores) = (1, true);
        let shared = Arc::new(Shared::new(config, RuntimeMask::of_this_thread(), count));
        let worker = |index| {
            let deque = deque::Worker::new_fifo();
            let core = Core::new(index, shared.clone(), deque.stealer(), Role::Worker);
            Local::new(Arc::new(watched(core.unwrap(), count)), deque)
        };
        let locals: Vec<_> = (0..count).map(worker).collect();
        let shards: Vec<_> = locals.iter().map(|local| local.shard.clone()).collect();
        shared.workers.store(Arc::new(shards.clone()));
        let now = shared.clock.now();
        for shard in &shards {
            for _ in 0..MANY {
                drop(Timer::once(shard, now, 1, || ()));
            }
        }
        let workers = shared.mates_table();
        let (busy, leaning) = locals.split_first().unwrap();
        for leaner in leaning {
            leaner.shard.defer(now + HOUR);
        }
        let mates = leaning.iter();
        let mates = mates.map(|it| shared.mate(&it.shard, workers.as_deref()));
        let mates: Vec<_> = mates.collect();
        for mate in &mates {
            mate.announce_sleep();
            assert!(mate.leans());
        }
        let mut worker = Worker::new(busy, &shared);
        worker.tick += jobs as u64;
        worker.fire_due();
        for mate in &mates {
            mate.end_sleep();
        }
        busy.deque.len()
    }

    #[test]
    fn a_busy_worker_takes_as_many_timers_of_a_mate_that_leans_as_of_its_own() {
        assert_eq!(taken(MANY, 1), 2 * MANY);
    }

    #[test]
    fn mates_that_lean_share_the_room_of_the_deque() {
        assert_eq!(taken(0, 1), 2 * DUE_BATCH);
        assert_eq!(taken(0, 2), 2 * DUE_BATCH);
    }
}
