//! State that all threads of the soak share. It lives as long as the process.
//!
//! The ledger consists of slots. Each slot has one timer after another, and its entry records how
//! each ended. The first complete end frees the slot. The thread that records it arms the next
//! timer or queues the slot.
//!
//! The granted deadline is in the slot, under its lock. A thread that moves the timer holds the
//! lock until the runtime has answered. A callback takes the lock before it checks whether it is
//! early, so it knows the result of a concurrent move. Cancelling needs no lock, and races with
//! everything else.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam::queue::SegQueue;
use tourbillon::Timer;
use tourbillon_cli::ledger::{Clock, Entry, Granted};

use super::tally::{Faults, Tally, lock};

/// The state of a slot's timer, as granted by the runtime.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) timer: Option<Arc<Timer>>,
    /// The generation of the timer.
    pub(super) generation: u32,
    pub(super) granted: Granted,
    /// Lateness counts from this time, in ns.
    pub(super) late_from: u64,
}

/// A slot, which holds one timer at a time.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) entry: Entry,
    held: Mutex<Held>,
}

impl Slot {
    /// Locks the slot and returns its timer's state.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

/// The payload of deliberate panics, which the panic hook does not print.
pub(super) struct Deliberate;

/// How long to wait for something that should be immediate before it counts as a fault. An
/// overloaded machine can stop the whole process for half a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// Maximum length of the queue for outside threads. It can be exceeded by one slot per thread.
const QUEUE: usize = 4_096;

/// The shared state.
pub(super) struct State {
    pub(super) slots: Box<[Slot]>,
    pub(super) tally: Tally,
    pub(super) faults: Faults,
    /// Free slots for tasks and for outside threads to arm.
    pub(super) for_tasks: SegQueue<u32>,
    pub(super) for_threads: SegQueue<u32>,
    /// Maximum length of `for_threads`, or 0 without outside threads. The limit matters if they
    /// keep to a rate: otherwise all slots would end up in their queue.
    most_for_threads: usize,
    pub(super) seed: u64,
    /// Scale of the timers' delays, in ns.
    unit: u64,
    stop: AtomicBool,
    threads: AtomicU64,
    pub(super) clock: Clock,
}

pub(super) type Shared = &'static State;

impl State {
    pub(super) fn new(timers: u32, outside: u32, seed: u64) -> Self {
        Self {
            slots: (0..timers).map(|_| Slot::default()).collect(),
            tally: Tally::new(),
            faults: Faults::default(),
            for_tasks: SegQueue::new(),
            for_threads: SegQueue::new(),
            most_for_threads: if outside == 0 {
                0
            } else {
                (timers as usize / 8).clamp(1, QUEUE)
            },
            seed,
            unit: unit(timers),
            stop: AtomicBool::new(false),
            threads: AtomicU64::new(0),
            clock: Clock::start(),
        }
    }

    /// Records a fault unless `is_right` is true.
    pub(super) fn check(&self, is_right: bool, what: &'static str, detail: impl Display) {
        if !is_right {
            self.faults.add(what, detail);
        }
    }

    /// Queues a free slot for the outside threads. Returns `false` if there are none, or if their
    /// queue is full.
    pub(super) fn leave_to_threads(&self, slot: u32) -> bool {
        let has_room = self.for_threads.len() < self.most_for_threads;
        if has_room {
            self.for_threads.push(slot);
        }
        has_room
    }

    /// Tells all threads and tasks to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Returns whether to start nothing new.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Seeds the calling thread's random numbers.
    pub(super) fn enlist(&self) {
        let number = self.threads.fetch_add(1, Relaxed);
        fastrand::seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    }

    /// Returns a random delay for a timer, in ns: zero, up to 1 ms, or longer.
    pub(super) fn wait(&self) -> u64 {
        match fastrand::u8(..16) {
            0 => 0,
            1..=3 => fastrand::u64(..1_000_000),
            4..=11 => fastrand::u64(..self.unit),
            _ => fastrand::u64(..4 * self.unit),
        }
    }

    /// Returns a random slot for meddling. Every fourth slot is exempt, so that some timers wait
    /// undisturbed.
    pub(super) fn any_slot(&self) -> Option<u32> {
        let slot = fastrand::usize(..self.slots.len()) as u32;
        (!slot.is_multiple_of(4)).then_some(slot)
    }
}

/// Returns a scale at which at most some 60,000 timers fire per second.
fn unit(timers: u32) -> u64 {
    (u64::from(timers) * 20_000).max(100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_of_all_kinds_and_bounded() {
        fastrand::seed(3);
        let shared = State::new(10, 0, 1);
        let waits: Vec<_> = (0..1_000).map(|_| shared.wait()).collect();
        assert!(waits.contains(&0));
        assert!(waits.iter().any(|&wait| (1..1_000_000).contains(&wait)));
        assert!(waits.iter().any(|&wait| wait > 100_000_000));
        assert!(waits.iter().all(|&wait| wait < 400_000_000));
        assert_eq!(unit(1_000_000), 20_000_000_000);
    }

    #[test]
    fn only_some_slots_wait_for_threads() {
        for (timers, outside, most) in
            [(800, 0, 0), (1, 3, 1), (800, 3, 100), (1_000_000, 1, QUEUE)]
        {
            let shared = State::new(timers, outside, 1);
            let left = (0..timers).filter(|&slot| shared.leave_to_threads(slot));
            assert_eq!(left.count(), most, "{timers} {outside}");
            assert_eq!(shared.for_threads.len(), most);
        }
    }

    #[test]
    fn only_what_is_wrong_is_a_fault() {
        let shared = State::new(1, 0, 1);
        shared.check(true, "early", "never");
        assert_eq!(shared.faults.all(), []);
        shared.check(false, "early", "by 3 ns");
        assert_eq!(shared.faults.all().len(), 1);
    }

    #[test]
    fn every_fourth_slot_is_exempt_from_meddling() {
        let shared = State::new(8, 0, 1);
        let met: Vec<_> = (0..1_000).filter_map(|_| shared.any_slot()).collect();
        for slot in 0..8 {
            assert_eq!(met.contains(&slot), slot % 4 != 0, "{slot}");
        }
    }
}
