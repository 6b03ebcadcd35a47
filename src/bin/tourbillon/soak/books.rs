//! What all that takes part in the soak refers to; it lasts as long as the process.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crossbeam::queue::SegQueue;
use tourbillon::time::Instant;

use super::{
    ledger::Slot,
    tally::{Faults, Tally},
};

/// The payload of panics that are meant, of which no hook tells.
pub(super) struct Meant;

/// How long to wait for what should be there at once, before it is a fault. A machine that has too much to do has been
/// seen to keep the whole process waiting for half a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// So many slots wait for threads outside at the most, give or take one for each thread that leaves them some.
const QUEUE: usize = 4_096;

/// What all share.
pub(super) struct Shared {
    pub(super) slots: Box<[Slot]>,
    pub(super) tally: Tally,
    pub(super) faults: Faults,
    /// Free slots that tasks are to arm, and threads.
    pub(super) for_tasks: SegQueue<u32>,
    pub(super) for_threads: SegQueue<u32>,
    /// So many slots may wait for threads outside of the runtime, which keep to a rate: with more, all would end up
    /// there. 0: there are no such threads.
    most_for_threads: usize,
    pub(super) seed: u64,
    /// What waits are in proportion to, in ns.
    unit: u64,
    stop: AtomicBool,
    threads: AtomicU64,
    origin: Instant,
}

pub(super) type Books = &'static Shared;

impl Shared {
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
            origin: Instant::now(),
        }
    }

    /// The present, in ns.
    pub(super) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// A moment of this clock.
    pub(super) fn instant(&self, nanos: u64) -> Instant {
        self.origin + Duration::from_nanos(nanos)
    }

    /// Leaves a free slot to the threads outside, unless there are none, or enough of it waits for them.
    pub(super) fn leave_to_threads(&self, slot: u32) -> bool {
        let has_room = self.for_threads.len() < self.most_for_threads;
        if has_room {
            self.for_threads.push(slot);
        }
        has_room
    }

    /// Lets all come to an end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether nothing is to be begun any more.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Gives the calling thread random numbers of its own, which follow from the seed.
    pub(super) fn enlist(&self) {
        let number = self.threads.fetch_add(1, Relaxed);
        fastrand::seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    }

    /// For how long a timer is to wait, in ns: not at all, for a moment, or for some time.
    pub(super) fn wait(&self) -> u64 {
        match fastrand::u8(..16) {
            0 => 0,
            1..=3 => fastrand::u64(..1_000_000),
            4..=11 => fastrand::u64(..self.unit),
            _ => fastrand::u64(..4 * self.unit),
        }
    }

    /// A slot that others may meddle with: three of four. The rest wait undisturbed.
    pub(super) fn any_slot(&self) -> Option<u32> {
        let slot = fastrand::usize(..self.slots.len()) as u32;
        (slot % 4 != 0).then_some(slot)
    }
}

/// So that some 60,000 timers a second come due, if nobody meddles with them, and no more than that.
fn unit(timers: u32) -> u64 {
    (u64::from(timers) * 20_000).max(100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_of_all_kinds_and_bounded() {
        fastrand::seed(3);
        let books = Shared::new(10, 0, 1);
        let waits: Vec<_> = (0..1_000).map(|_| books.wait()).collect();
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
            let books = Shared::new(timers, outside, 1);
            let left = (0..timers).filter(|&slot| books.leave_to_threads(slot));
            assert_eq!(left.count(), most, "{timers} {outside}");
            assert_eq!(books.for_threads.len(), most);
        }
    }

    #[test]
    fn some_slots_are_let_be() {
        let books = Shared::new(8, 0, 1);
        let met: Vec<_> = (0..1_000).filter_map(|_| books.any_slot()).collect();
        for slot in 0..8 {
            assert_eq!(met.contains(&slot), slot % 4 != 0, "{slot}");
        }
    }
}
