//! A snapshot of the timers of a runtime: [`Handle::timers`].

use std::fmt;

use tourbillon_shards::{NEVER, Shard};

use crate::{
    clock::{instant::Instant, other::OtherClock, wall, wall::BootInstant},
    engine::{core::Core, handle::Handle, shared::Shared},
};

/// A snapshot of the timers of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerCounts<I> {
    /// How many timers and sleeps wait. Timers from other threads are not counted until the worker
    /// has read its inbox: a worker that sleeps reads it when it next wakes, before the first of
    /// them is due. This is too low, by at most [`garbage`](Self::garbage), while timers are in the
    /// inbox that were cancelled before the worker had read of them.
    pub pending: usize,
    /// How many cancelled timers the shard has not removed yet.
    pub garbage: usize,
    /// When the shard looks for due timers next, or `None` if it has no timers at all. It is no
    /// later than the earliest deadline (plus its tolerance, if that timer has one).
    ///
    /// It may be earlier: [`garbage`](Self::garbage) counts here, too. A timer that another thread
    /// cancelled, or moved to a later deadline, keeps its old deadline here until that update is
    /// read, at the latest when the worker next wakes. So this may be `Some` although no timer
    /// waits.
    pub next_deadline: Option<I>,
}

/// A snapshot of the timers of a runtime: see [`Handle::timers`]. `Debug` lists the names, too.
#[derive(Clone)]
#[non_exhaustive]
pub struct Timers {
    /// The timers of each worker, by its index.
    pub workers: Vec<TimerCounts<Instant>>,
    /// The timers of the wall clock.
    pub wall: TimerCounts<std::time::SystemTime>,
    /// The timers of the clock that goes on while the machine is suspended.
    pub boot: TimerCounts<BootInstant>,
    /// The names of timers, sorted, with the number of timers that have each name.
    pub named: Vec<(String, usize)>,
}

impl Timers {
    /// Returns how many timers and sleeps wait, on all shards.
    pub fn pending(&self) -> usize {
        let workers: usize = self.workers.iter().map(|worker| worker.pending).sum();
        workers + self.wall.pending + self.boot.pending
    }

    /// Returns how many cancelled timers the shards have not removed yet.
    pub fn garbage(&self) -> usize {
        let workers: usize = self.workers.iter().map(|worker| worker.garbage).sum();
        workers + self.wall.garbage + self.boot.garbage
    }

    /// Returns the earliest [`next_deadline`](TimerCounts::next_deadline) of the workers. It may be
    /// that of a timer that was cancelled. `None` says that no timer of a worker waits.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.workers.iter().map(|worker| worker.next_deadline);
        deadlines.flatten().min()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Names<'a>(&'a [(String, usize)]);
        impl fmt::Debug for Names<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let entries = self.0.iter().map(|(name, count)| (name, count));
                f.debug_map().entries(entries).finish()
            }
        }
        f.debug_struct("Timers")
            .field("pending", &self.pending())
            .field("garbage", &self.garbage())
            .field("workers", &self.workers)
            .field("wall", &self.wall)
            .field("boot", &self.boot)
            .field("named", &Names(&self.named))
            .finish()
    }
}

/// Returns a snapshot of `shard`. `moment` converts a deadline from ns.
fn counts<I>(shard: &Shard<Core>, moment: impl FnOnce(u64) -> I) -> TimerCounts<I> {
    // Neither number takes the shard's lock, so a snapshot delays no worker.
    let garbage = shard.garbage();
    TimerCounts {
        // The two counts are read one after the other, so the difference may be negative for a
        // moment.
        pending: shard.stored().saturating_sub(garbage),
        garbage,
        next_deadline: Some(shard.next_deadline())
            .filter(|&next| next != NEVER)
            .map(moment),
    }
}

/// Returns a snapshot of all timers of a runtime.
fn look(shared: &Shared) -> Timers {
    let mut named: Vec<_> = shared.names.list();
    named.extend(shared.clocks.names.list());
    // Equal names of the two tables become neighbours.
    named.sort();
    let mut merged: Vec<(String, usize)> = Vec::with_capacity(named.len());
    for (name, count) in named {
        match merged.last_mut() {
            // Each kind of clock has its own table of names. Add up those with equal names.
            Some(last) if *last.0 == *name => last.1 += count,
            _ => merged.push((name.to_string(), count)),
        }
    }
    let workers = shared.workers();
    Timers {
        workers: workers
            .iter()
            .map(|worker| counts(worker, |next| shared.clock.instant(next)))
            .collect(),
        // After the runtime has ended, the shards are gone.
        wall: shared
            .clocks
            .get(OtherClock::Wall)
            .map_or_else(ended, |clock| counts(&clock.shard, wall::time)),
        boot: shared
            .clocks
            .get(OtherClock::Boot)
            .map_or_else(ended, |clock| counts(&clock.shard, BootInstant::from_nanos)),
        named: merged,
    }
}

/// Returns the snapshot of a shard whose runtime has ended.
fn ended<I>() -> TimerCounts<I> {
    TimerCounts {
        pending: 0,
        garbage: 0,
        next_deadline: None,
    }
}

impl Handle {
    /// Returns a snapshot of the waiting timers: how many, where, until when, and their names.
    ///
    /// Each figure is exact or nearly so by itself, but they are not all read at one moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Timer;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let idle = Timer::after(Duration::from_secs(9))
    ///     .on(runtime.handle())
    ///     .name("idle")
    ///     .start(|| ());
    /// let timers = runtime.handle().timers();
    /// assert_eq!(timers.named, [("idle".to_owned(), 1)]);
    /// println!("{timers:#?}");
    /// # idle.cancel();
    /// ```
    pub fn timers(&self) -> Timers {
        look(self.shared())
    }
}
