//! One turn: many tasks that sleep, on one runtime, in a process of its own.
//!
//! 1. *Arming.* A task for each worker spawns its share of the tasks. Each task first marks its
//!    slot, and its same poll then arms its sleep.
//! 2. *Firing.* The window of the deadlines begins. A task whose sleep ends reads the clock into
//!    its slot, and is over.
//!
//! The processor time of both is that of the whole process. The main thread sleeps, and looks at
//! the slots every 2 ms. Memory is measured between the two.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Error, runtimes::Runtime};
use crate::{disturbance::Meter, figures::Lateness, ledger::histogram, proc, storm::plan::mix};

/// The sleeps of a turn. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Sleeps {
    pub(super) workers: usize,
    pub(super) count: u32,
    /// The time from the start of arming to the window.
    pub(super) lead: u64,
    /// The length of the window.
    pub(super) spread: u64,
    /// After the window, a sleep that does not end for this long is lost.
    pub(super) grace: u64,
    pub(super) seed: u64,
}

impl Sleeps {
    /// Returns the deadline of a sleep, counted from the start of arming. The deadlines are
    /// scattered over the window, in an order that has nothing to do with that of arming.
    fn due(&self, index: u32) -> u64 {
        self.lead + mix(mix(self.seed) ^ u64::from(index)) % self.spread
    }
}

/// What a turn has measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Turn {
    /// The number of sleeps that ended.
    pub(super) ended: u32,
    /// The number of those that ended before their deadline.
    pub(super) early: u32,
    pub(super) lateness_us: Lateness,
    /// Processor time from the first spawn until all sleeps are armed, in s.
    pub(super) arming_cpu: f64,
    /// Processor time from then until all have ended, in s.
    pub(super) firing_cpu: f64,
    /// By how much the armed sleeps made the process grow, in bytes.
    pub(super) grown: f64,
    /// In how many periods of its CPU quota the kernel throttled the process. The process that
    /// starts the turn counts them.
    #[serde(default)]
    pub(super) throttled: u64,
}

/// Tasks to spawn before the spawning task lets others run.
const CHUNK: usize = 256;
/// The main thread looks this often whether a phase is over.
const LOOK: Duration = Duration::from_millis(2);
/// The slot of a task that has not been polled.
const NEW: u64 = u64::MAX;
/// The slot of a task that sleeps. A lower value is the time at which the sleep ended, in ns from
/// the start of arming.
const SLEEPS: u64 = u64::MAX - 1;

/// What all tasks of a turn read, and a slot for each.
struct Shared<R: Runtime> {
    sleeps: Sleeps,
    begun: Instant,
    /// The same moment, as the runtime has it.
    base: R::Instant,
    slots: Box<[AtomicU64]>,
}

impl<R: Runtime> Shared<R> {
    async fn sleep(&self, index: u32) {
        let slot = &self.slots[index as usize];
        slot.store(SLEEPS, Relaxed);
        let due = Duration::from_nanos(self.sleeps.due(index));
        R::sleep_until(self.base + due).await;
        slot.store(self.begun.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Spawns every task whose number, divided by the workers, leaves `share`.
    async fn spawn_all(&'static self, share: usize) {
        let mut indices = (share..self.slots.len()).step_by(self.sleeps.workers);
        while indices.len() > 0 {
            for index in indices.by_ref().take(CHUNK) {
                R::spawn(self.sleep(index as u32));
            }
            R::yield_now().await;
        }
    }

    /// Waits until `is_over` says so of each slot. Returns `false` if the time is up before that.
    fn wait_until_all(&self, is_over: fn(u64) -> bool, end: Instant) -> bool {
        let mut left = self.slots.iter().peekable();
        loop {
            while left.next_if(|slot| is_over(slot.load(Relaxed))).is_some() {}
            if left.peek().is_none() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    /// Counts what ended. No task writes its slot again.
    fn count(&self) -> Turn {
        let mut lateness = histogram(3);
        let mut turn = Turn {
            ended: 0,
            early: 0,
            lateness_us: Lateness::default(),
            arming_cpu: 0.0,
            firing_cpu: 0.0,
            grown: 0.0,
            throttled: 0,
        };
        for (index, slot) in self.slots.iter().enumerate() {
            let ended = slot.load(Relaxed);
            if ended >= SLEEPS {
                continue;
            }
            let due = self.sleeps.due(index as u32);
            turn.ended += 1;
            turn.early += u32::from(ended < due);
            lateness.saturating_record(ended.saturating_sub(due));
        }
        turn.lateness_us = Lateness::of(&lateness);
        turn
    }
}

/// Runs a turn. Returns `None` if the window began before all sleeps were armed.
pub(super) fn run<R: Runtime>(runtime: R, sleeps: Sleeps) -> Result<Option<Turn>, Error> {
    settle(&runtime)?;
    // Each slot is written, so that its memory is resident before the measurement.
    let slots = (0..sleeps.count).map(|_| AtomicU64::new(NEW)).collect();
    let resident = proc::resident_bytes().map_err(Error::System)?;
    let meter = Meter::start();
    let begun = Instant::now();
    // The tasks refer to it. The process ends soon.
    let shared: &'static Shared<R> = Box::leak(Box::new(Shared {
        sleeps,
        begun,
        base: R::instant(begun),
        slots,
    }));
    let window = begun + Duration::from_nanos(sleeps.lead);
    for share in 0..sleeps.workers {
        runtime.start(shared.spawn_all(share));
    }
    let mut is_armed = shared.wait_until_all(|slot| slot != NEW, window);
    let arming_cpu = meter.read().cpu;
    let grown = proc::resident_bytes().map_err(Error::System)? as f64 - resident as f64;
    let meter = Meter::start();
    is_armed &= Instant::now() < window;
    if !is_armed {
        return Ok(None);
    }
    let end = window + Duration::from_nanos(sleeps.spread);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    shared.wait_until_all(
        |slot| slot < SLEEPS,
        end + Duration::from_nanos(sleeps.grace),
    );
    let firing_cpu = meter.read().cpu;
    // A task that is lost may still end while the ledger is read. The runtime is over after this.
    drop(runtime);
    Ok(Some(Turn {
        arming_cpu,
        firing_cpu,
        grown,
        ..shared.count()
    }))
}

/// Waits for a first sleep, so that the runtime has started what it starts late.
fn settle<R: Runtime>(runtime: &R) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    runtime.start(async move {
        R::sleep_until(R::instant(Instant::now()) + 10 * LOOK).await;
        // The receiver waits.
        let _ = sender.send(());
    });
    let ended = receiver.recv();
    ended.map_err(|_| Error::System("the first task was dropped".to_owned()))
}

/// Returns whether the runtime is Tourbillon under another name.
pub(super) fn is_tourbillon<R: Runtime>(runtime: &R) -> bool {
    let (sender, receiver) = mpsc::channel();
    runtime.start(async move {
        let _ = sender.send(tourbillon::Handle::try_current().is_ok());
    });
    receiver.recv().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEPS_OF_TEST: Sleeps = Sleeps {
        workers: 2,
        count: 1_000,
        lead: 2_000_000_000,
        spread: 50_000_000,
        grace: 60_000_000_000,
        seed: 1,
    };

    fn runtime() -> tourbillon::Runtime {
        let mut builder = tourbillon::runtime::Builder::new();
        builder.worker_threads(2).build().unwrap()
    }

    #[test]
    fn deadlines_are_in_the_window_and_scattered() {
        let due: Vec<_> = (0..1_000).map(|i| SLEEPS_OF_TEST.due(i)).collect();
        let window = SLEEPS_OF_TEST.lead..SLEEPS_OF_TEST.lead + SLEEPS_OF_TEST.spread;
        assert!(due.iter().all(|due| window.contains(due)));
        for part in 0..10 {
            let first = window.start + part * SLEEPS_OF_TEST.spread / 10;
            let part = first..first + SLEEPS_OF_TEST.spread / 10;
            let count = due.iter().filter(|due| part.contains(due)).count();
            assert!((50..200).contains(&count), "{count}");
        }
        assert!(!due.is_sorted());
    }

    #[test]
    fn sleeps_that_are_not_armed_in_time_are_no_result() {
        let sleeps = Sleeps {
            lead: 0,
            ..SLEEPS_OF_TEST
        };
        assert!(run(runtime(), sleeps).unwrap().is_none());
    }

    #[test]
    fn what_ended_is_counted_and_what_did_not_is_not() {
        let slots = [NEW, SLEEPS, 0, u64::MAX / 2].map(AtomicU64::new);
        let shared = Shared::<tourbillon::Runtime> {
            sleeps: SLEEPS_OF_TEST,
            begun: Instant::now(),
            base: tourbillon::time::Instant::now(),
            slots: Box::new(slots),
        };
        let turn = shared.count();
        assert_eq!((turn.ended, turn.early), (2, 1));
    }

    #[test]
    fn our_runtime_is_known() {
        assert!(is_tourbillon(&runtime()));
        #[cfg(feature = "tokio")]
        assert!(!is_tourbillon(&super::super::runtimes::tokio(1).unwrap()));
    }
}
