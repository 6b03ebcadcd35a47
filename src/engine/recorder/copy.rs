//! Copies of all rings: on demand, and automatically when a timer is very late or a job stalls.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tourbillon_sched::Copied;

use crate::{
    engine::{
        core::Core,
        recorder::{Flight, Recording},
        shared::Shared,
    },
    sys::{
        clock,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    },
    util::lock::lock,
};

/// How many automatic copies are kept.
const COPIES: usize = 4;
/// The least time between two automatic copies, in ns.
const INTERVAL: u64 = 1_000_000_000;
/// How many events of each ring an automatic copy has at most: 128 KiB, which takes some 10 µs.
const EVENTS: usize = 8_192;

/// A thread of a runtime, as its flight recorder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Thread {
    /// The worker with this number.
    Worker(usize),
    /// The [helper](crate::runtime::Builder::helpers) with this number, which is above those of all
    /// workers.
    Helper(usize),
    /// All other threads together.
    Other,
}

impl Thread {
    /// Returns the number of a worker or helper.
    pub fn number(self) -> Option<usize> {
        match self {
            Thread::Worker(number) | Thread::Helper(number) => Some(number),
            Thread::Other => None,
        }
    }
}

/// A copy of all rings, and what one needs to know to read it.
#[derive(Clone, Debug)]
pub(crate) struct RawCopy {
    /// When it was made, in ns by the runtime's clock, and by the time of day.
    pub(crate) at: u64,
    pub(crate) wall: SystemTime,
    pub(crate) recording: Recording,
    pub(crate) tracks: Vec<(Thread, Copied)>,
    /// The processor core of each worker, by worker number, if workers are pinned.
    pub(crate) cores: Option<Vec<usize>>,
    /// Whether peers take over the timers of a blocked worker.
    pub(crate) rescues: bool,
    pub(crate) name: Option<String>,
}

/// The automatic copies.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// When the last copy was made, in ns.
    last: AtomicU64,
    copies: Mutex<VecDeque<Arc<RawCopy>>>,
}

/// Returns whether something that happens at most once a second happens at `now`. `last` is when it
/// happened last, in ns, or zero. Of several threads that come at once, one gets `true`.
fn comes_again(last: &AtomicU64, now: u64) -> bool {
    let before = last.load(Relaxed);
    let is_early = before > 0 && now.saturating_sub(before) < INTERVAL;
    !is_early
        && last
            .compare_exchange(before, now.max(1), Relaxed, Relaxed)
            .is_ok()
}

impl Shared {
    /// Copies the last `most` events of each ring.
    pub(crate) fn copy_rings(&self, most: usize) -> RawCopy {
        let flight = &self.flight;
        let workers = flight.workers.iter().enumerate();
        let workers = workers.map(|(index, ring)| (Thread::Worker(index), ring.copy(most)));
        let mut tracks: Vec<_> = workers.collect();
        // Without the lock, which a thread that starts a helper takes.
        let helpers = lock(&flight.helpers).clone();
        for (number, ring) in helpers {
            tracks.push((Thread::Helper(number), ring.copy(most)));
        }
        tracks.push((Thread::Other, flight.outside.ring.copy(most)));
        RawCopy {
            at: self.clock.now(),
            wall: clock::wall(),
            recording: flight.recording(),
            tracks,
            cores: self.config.pins.clone(),
            rescues: self.config.rescue_latency != Duration::MAX,
            name: self.config.name.clone(),
        }
    }

    /// Returns the automatic copies, oldest first.
    pub(crate) fn kept_copies(&self) -> Vec<Arc<RawCopy>> {
        lock(&self.flight.kept.copies).iter().cloned().collect()
    }

    /// Keeps a copy of what just happened, unless one was made less than a second ago.
    #[cold]
    pub(crate) fn keep_copy(&self) {
        let kept = &self.flight.kept;
        if !self.flight.is_on() || !comes_again(&kept.last, self.clock.real()) {
            return;
        }
        let copy = Arc::new(self.copy_rings(EVENTS));
        let mut copies = lock(&kept.copies);
        let oldest = (copies.len() == COPIES).then(|| copies.pop_front());
        copies.push_back(copy);
        // Free the oldest one after unlocking.
        drop(copies);
        drop(oldest);
    }
}

impl Flight {
    /// Has the worker of `core` keep a copy when it is back in its loop, if a timer that late is
    /// worth one.
    pub(crate) fn keep_if_late(&self, core: &Core, late: u64) {
        if late >= self.late_threshold {
            core.track.want_copy();
        }
    }

    /// Returns whether to warn, at the moment `now`, of a timer that is that late.
    #[cfg(feature = "tracing")]
    pub(super) fn warns_of(&self, late: u64, now: u64) -> bool {
        late >= self.late_threshold && comes_again(&self.warned, now)
    }
}
