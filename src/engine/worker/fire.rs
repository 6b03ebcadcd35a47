//! How a worker fires its timers: it takes what is due from its shard, queues the callbacks, and
//! wakes the tasks of sleeps.

use tourbillon_shards::{Kind, NEVER};
use tourbillon_sync::prefetch;

use crate::{
    engine::{
        core::WorkerShard,
        job::Job,
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
        let own = self.fire_own();
        self.fire_for_mates() || own
    }

    /// Does so for the mates that lean.
    fn fire_for_mates(&mut self) -> bool {
        let limit = DUE_BATCH.saturating_sub(self.local.deque.len()).max(1);
        let more = self.take_from_mates_of(self.core.index, limit);
        let any = !self.due.is_empty();
        if any && self.search.is_on {
            self.found();
        }
        self.queue_due();
        any || more
    }

    /// Takes the due timers of the workers that lean on worker `index`, up to `limit` of each.
    /// Returns whether there are more. It runs no user code.
    #[inline]
    pub(crate) fn take_from_mates_of(&mut self, index: usize, limit: usize) -> bool {
        let mut more = false;
        let shared = self.shared;
        shared.each_leaning(index, |mate| more |= self.take_from(mate, limit));
        more
    }

    /// Takes due timers of a worker that leans. Returns whether there are more.
    fn take_from(&mut self, mate: &WorkerShard, limit: usize) -> bool {
        let (next, now) = (mate.next_deadline(), self.shared.clock.now());
        if next == NEVER || next > now {
            return false;
        }
        let first = self.due.len();
        let (now, may_be_late) = self.moment_of_taking(now, next);
        if may_be_late {
            // Its sleeps ask the track of their owner.
            mate.owner().track.set_looks(true);
        }
        let expired = mate.expire(now, limit, &mut self.due);
        self.note_late(first, now);
        self.note_taken(first, now, may_be_late, expired.more);
        expired.more && !expired.denied
    }

    /// Does so for the own shard.
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
        // Skip the lock of the shard if nothing is due and no updates are pending.
        if !shard.has_updates() && (next == NEVER || next > self.shared.clock.now()) {
            return false;
        }
        // Take as many timers as the deque has room for. Take at least as many as other jobs have
        // run since the last poll, so that a flood of jobs cannot starve the timers.
        let room = DUE_BATCH.saturating_sub(self.local.deque.len()).max(1);
        let jobs = (self.tick - self.last_poll).saturating_sub(self.timers_since_poll);
        let limit = room.max(usize::try_from(jobs).map_or(DUE_MOST, |jobs| jobs.min(DUE_MOST)));
        let first = self.due.len();
        let (now, may_be_late) = self.moment_of_taking(self.shared.clock.now(), next);
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
                        local.deque.push(Job::Timer(timer));
                    }
                }
            }
            wake_all(core, wakers);
        });
    }
}
