//! Memory that goes back to the system when a burst is over: see `tourbillon_pool::return_spare`
//! and
//! `tourbillon_shards::Shard::shrink`.
//!
//! There is no thread for this. A worker that is about to sleep while there is memory to look at
//! sleeps for [`PERIOD`] at most. Then one worker of the runtime looks at the arrays of its shards,
//! and one worker of the process at the pool. The worker does a part of it at a time, and looks at
//! its timers and sockets in between. A worker that never sleeps does so where it looks at its
//! sockets. Where there is nothing to look at, no worker wakes for it.
//!
//! A thread that is no worker may free memory while all workers sleep. The first such thread of a
//! period [wakes](wake) one of them. A worker that is about to sleep [looks](Tidy::next) after it
//! has announced its sleep, so one of the two sees the other (`crates/sched/src/parker.rs`).

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tourbillon_pool::{self as pool, Returned};
use tourbillon_shards::NEVER;
use tourbillon_sync::per_process;

use crate::{
    engine::{
        local,
        shared::{Shared, Workers},
        worker::Worker,
    },
    sys::{clock, memory},
};

/// Memory that was unused for this time, in ns, is returned to the system. That happens at most
/// twice this time after it was freed.
const PERIOD: u64 = 2_000_000_000;
/// A period that began more recently than this is not over. Several workers may see its end.
const LEAST: u64 = PERIOD / 4 * 3;

/// A worker's part in returning unused memory.
#[derive(Debug, Default)]
pub(crate) struct Tidy {
    /// When the worker looks next, in ns by its clock; zero if there is nothing to look at.
    at: u64,
    /// How many shards the worker still has to look at in this period.
    shards: usize,
    /// Whether the worker is returning memory of the pool, slice by slice.
    gives: bool,
}

impl Tidy {
    /// Returns when the worker is to look at memory, in ns by its clock, or [`NEVER`].
    pub(crate) fn next(&mut self, now: u64) -> u64 {
        if self.at == 0 && pool::has_spare() {
            self.at = now + PERIOD;
        }
        if self.at == 0 { NEVER } else { self.at }
    }
}

impl Worker<'_> {
    /// Does one part of the present work, and returns whether there is more. A part takes some tens
    /// of µs, or more for a shard whose arrays are given up.
    #[inline]
    pub(crate) fn tidies(&mut self) -> bool {
        // The clock need not be read for this. If the worker sleeps at a time that is long past, it
        // wakes at once.
        let now = self.in_loop.at;
        if now < self.tidy.next(now) && self.tidy.shards == 0 && !self.tidy.gives {
            return false;
        }
        self.tidy_up(now)
    }

    #[cold]
    #[inline(never)]
    fn tidy_up(&mut self, now: u64) -> bool {
        if now >= self.tidy.next(now) {
            self.tidy.at = 0;
            // Of the workers of a runtime that all wake for this, one looks.
            let clock = clock::monotonic();
            if self.shared.tidied.try_begin(clock, LEAST) {
                self.tidy.shards = self.shared.shards().iter().count();
                // The workers of all runtimes come by, each after a period of its own.
                if pool::PERIOD.try_begin(clock, LEAST) {
                    pool::note_spare();
                    self.tidy.gives = true;
                }
            }
        }
        // One part only: timers and sockets must not wait for all of the memory.
        if self.tidy.shards > 0 {
            self.tidy.shards -= 1;
            if shrink(self.shared, self.tidy.shards) && self.tidy.at == 0 {
                self.tidy.at = now + PERIOD;
            }
        } else if self.tidy.gives {
            self.tidy.gives = return_some();
        }
        self.tidy.shards > 0 || self.tidy.gives
    }
}

/// Gives up the arrays of one shard of the runtime if they are too large: of a worker, or of a
/// clock. Returns whether there is to be another look at it.
fn shrink(shared: &Shared, number: usize) -> bool {
    // This includes the shards of other workers, which may sleep for an hour.
    (shared.shards().iter().nth(number)).is_some_and(|shard| shard.shrink())
}

/// Returns some spare memory to the system. The result is `true` if there may be more.
fn return_some() -> bool {
    let give = |at, bytes| {
        // SAFETY: the pool's chunks stay mapped, and the pool passes only memory that no thread
        // uses.
        unsafe { memory::give_back(at, bytes) }
    };
    pool::return_spare(give) == Returned::More
}

type Runtimes = Mutex<Vec<Arc<Workers>>>;

per_process! {
    /// The workers of each runtime of the process that has not been dropped. Kept here, so that
    /// [`wake`], which may drop no shard, need not refer to them.
    static RUNTIMES: Runtimes = Mutex::new(Vec::new());
}

fn lock(runtimes: &Runtimes) -> MutexGuard<'_, Vec<Arc<Workers>>> {
    runtimes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a worker to look at memory that has become free, if the calling thread does not look
/// itself. See [`wake_by`](tourbillon_pool::wake_by).
pub(crate) fn wake() {
    // A worker looks before it sleeps. A helper, which may end before that, does not; nor does a
    // thread in `block_in_place`.
    let looks = local::with_local(|local| {
        local.is_some_and(|local| {
            !local.shard.owner().is_helper && !local.in_place.get() && wakes(local.shared())
        })
    });
    if !looks {
        wake_one();
    }
}

/// Wakes one worker of the process, if one sleeps. All that are awake look before they sleep.
fn wake_one() {
    let runtimes = lock(&RUNTIMES);
    let workers = runtimes.iter().flat_map(|workers| workers.iter());
    let _woken = workers
        .filter(|worker| wakes(&worker.owner().shared))
        .any(|worker| worker.wake());
}

/// Whether the workers of this runtime wake up to look at memory. On a clock that was paused they
/// sleep for nothing but the clock.
fn wakes(shared: &Shared) -> bool {
    !shared.is_stopping() && !shared.clock.was_paused()
}

/// Has the workers of a runtime woken to look at memory, until it is dropped. When the last of a
/// process is dropped, free memory goes back if there is much of it. A little is kept for the next
/// runtime: a test program makes and drops thousands of them.
pub(crate) struct Listed {
    /// The list of its process.
    runtimes: &'static Runtimes,
    /// The address of its list of workers.
    address: usize,
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").finish_non_exhaustive()
    }
}

impl Listed {
    pub(crate) fn new(workers: Arc<Workers>) -> Self {
        let address = Arc::as_ptr(&workers).addr();
        let runtimes: &Runtimes = &RUNTIMES;
        lock(runtimes).push(workers);
        Self { runtimes, address }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut runtimes = lock(self.runtimes);
        let at = |workers: &Arc<Workers>| Arc::as_ptr(workers).addr() == self.address;
        let workers = runtimes.iter().position(at).map(|at| runtimes.remove(at));
        let is_last = runtimes.is_empty();
        if is_last {
            // The list itself has memory, too.
            *runtimes = Vec::new();
        }
        drop(runtimes);
        // Drop after unlocking, since this may be the last reference, and before memory is
        // returned.
        drop(workers);
        if is_last {
            if pool::has_spare() {
                pool::all_is_spare();
            }
            // Also what a worker has noted before and did not get to.
            while return_some() {}
        } else if pool::has_spare() {
            // The worker that was woken for this memory may have been one of this runtime.
            wake_one();
        }
    }
}
