//! Memory that goes back to the system when a burst is over: see `pool/blocks/spare.rs` and
//! `Shard::shrink` of `tourbillon-shards`.
//!
//! There is no thread for this. A worker that is about to sleep while there is memory to be looked
//! at sleeps for [`PERIOD`] at most. Then one worker of the process looks at the pool, and each at
//! its own store. What is to be given back is given in slices, between which the worker looks at
//! its timers and sockets. A worker that never sleeps does the same where it looks at its sockets.
//! Where there is nothing to be looked at, nobody wakes for it.

use tourbillon_shards::{
    Returned, all_memory_is_spare, has_spare_memory, note_spare_memory, return_spare_memory,
};

use super::worker::Worker;
use crate::sys::{
    clock, memory,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Memory that nobody has wanted for so long, in ns, is given back. Twice that at most after it was
/// freed.
const PERIOD: u64 = 2_000_000_000;

/// When a worker of this process last looked at the pool, by the kernel's clock.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// What a worker has to do with memory.
#[derive(Debug, Default)]
pub(super) struct Tidy {
    /// When it looks next, by its clock; zero if there is nothing to be looked at.
    at: u64,
    /// Whether it gives memory of the pool back, slice by slice.
    gives: bool,
}

impl Worker<'_> {
    /// Does what is to be done now, and answers whether there is more of it. In no more than some
    /// tens of µs, but for a store that is given up.
    #[inline]
    pub(super) fn tidies(&mut self) -> bool {
        if !has_spare_memory() && self.tidy.at == 0 && !self.tidy.gives {
            return false;
        }
        self.tidy_up()
    }

    /// Until when it may sleep, by its clock, if it is to look at memory then.
    pub(super) fn tidies_at(&self) -> Option<u64> {
        (self.tidy.at > 0).then_some(self.tidy.at)
    }

    #[cold]
    #[inline(never)]
    fn tidy_up(&mut self) -> bool {
        let now = self.shared.clock.real();
        if self.tidy.at == 0 && has_spare_memory() {
            self.tidy.at = now + PERIOD;
        }
        if self.tidy.at != 0 && now >= self.tidy.at {
            self.tidy.gives |= look_at_pool();
            let mut again = self.local.shard.shrink();
            for clock in self.shared.clocks().iter() {
                again |= clock.shrink();
            }
            again |= has_spare_memory();
            self.tidy.at = if again { now + PERIOD } else { 0 };
        }
        if self.tidy.gives {
            self.tidy.gives = return_some();
        }
        self.tidy.gives
    }
}

/// Ends a period of the pool, if it was as long as it is to be; true if there may be something to
/// give back.
fn look_at_pool() -> bool {
    let (now, last) = (clock::monotonic(), LOOKED.load(Ordering::Relaxed));
    // The workers of all runtimes come by, each after a period of its own.
    let looks = now.saturating_sub(last) >= PERIOD / 4 * 3
        && (LOOKED.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)).is_ok();
    if looks {
        note_spare_memory();
    }
    looks
}

/// Gives some spare memory back; true if there may be more.
fn return_some() -> bool {
    let give = |at, bytes| {
        // SAFETY: the pool's chunks stay mapped, and it says that nobody needs what is there.
        unsafe { memory::give_back(at, bytes) }
    };
    return_spare_memory(give) == Returned::Some
}

/// How many runtimes there are in the process.
static RUNTIMES: AtomicUsize = AtomicUsize::new(0);

/// Stands for a runtime. When the last of a process has gone, its memory goes, too.
#[derive(Debug)]
pub(super) struct Counted(());

impl Counted {
    pub(super) fn new() -> Self {
        RUNTIMES.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if RUNTIMES.fetch_sub(1, Ordering::AcqRel) == 1 {
            all_memory_is_spare();
            while return_some() {}
        }
    }
}
