//! Looking at the timers of a runtime.

use std::fmt;

use tourbillon_shards::{NEVER, Owner, Shard};

use crate::{
    api::handle::Handle,
    clock::{instant::Instant, other::OtherClock, wall, wall::BootInstant},
    engine::shared::Shared,
};

/// The timers of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerCounts<I> {
    /// Timers and sleeps that wait, but for those that came from other threads and have not been
    /// read: a worker that sleeps reads them when it next wakes, which is before the first is due.
    pub pending: usize,
    /// Cancelled ones of which the shard has not heard.
    pub garbage: usize,
    /// When the shard will look for what is due: no later than the earliest deadline (and
    /// the tolerance of a timer that has one). `None` if it
    /// has none.
    pub next_deadline: Option<I>,
}

/// A look at the timers of a runtime: see [`Handle::timers`]. `Debug` lists the names, too.
#[derive(Clone)]
#[non_exhaustive]
pub struct Timers {
    /// Those of each worker, by its number.
    pub workers: Vec<TimerCounts<Instant>>,
    /// Those that go by the time of day.
    pub wall: TimerCounts<std::time::SystemTime>,
    /// Those that go on while the machine is suspended.
    pub boot: TimerCounts<BootInstant>,
    /// The names of timers, in order, and how many have each.
    pub named: Vec<(String, usize)>,
}

impl Timers {
    /// How many timers and sleeps wait, on all shards.
    pub fn pending(&self) -> usize {
        let workers: usize = self.workers.iter().map(|worker| worker.pending).sum();
        workers + self.wall.pending + self.boot.pending
    }

    /// How many cancelled ones the shards have not heard of.
    pub fn garbage(&self) -> usize {
        let workers: usize = self.workers.iter().map(|worker| worker.garbage).sum();
        workers + self.wall.garbage + self.boot.garbage
    }

    /// The earliest [`next_deadline`](TimerCounts::next_deadline) of the workers.
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

fn counts<O: Owner, I>(shard: &Shard<O>, moment: impl FnOnce(u64) -> I) -> TimerCounts<I> {
    let garbage = shard.garbage();
    TimerCounts {
        pending: shard.stored().saturating_sub(garbage),
        garbage,
        next_deadline: Some(shard.next_deadline())
            .filter(|&next| next != NEVER)
            .map(moment),
    }
}

fn look(shared: &Shared) -> Timers {
    let mut named: Vec<_> = shared.names.list();
    named.extend(shared.clocks.names.list());
    named.sort();
    let mut merged: Vec<(String, usize)> = Vec::with_capacity(named.len());
    for (name, count) in named {
        match merged.last_mut() {
            // Timers of different clocks may share a name.
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
        wall: shared
            .clocks
            .shard(OtherClock::Wall)
            .map_or_else(ended, |shard| counts(&shard, wall::time)),
        boot: shared
            .clocks
            .shard(OtherClock::Boot)
            .map_or_else(ended, |shard| counts(&shard, BootInstant::from_nanos)),
        named: merged,
    }
}

/// The shard of a runtime that has ended.
fn ended<I>() -> TimerCounts<I> {
    TimerCounts {
        pending: 0,
        garbage: 0,
        next_deadline: None,
    }
}

impl Handle {
    /// The timers that wait now: how many, where, until when, and what they are called.
    ///
    /// Each figure is exact or nearly so by itself; they are not read at one moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Runtime, Timer};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let idle = Timer::after(Duration::from_secs(9)).on(runtime.handle()).name("idle").start(|| ());
    /// let timers = runtime.handle().timers();
    /// assert_eq!(timers.named, [("idle".to_owned(), 1)]);
    /// println!("{timers:#?}");
    /// # idle.cancel();
    /// ```
    pub fn timers(&self) -> Timers {
        look(self.shared())
    }
}
