//! A worker without a kernel, and its shard.

use std::{
    ops::RangeInclusive,
    panic::resume_unwind,
    sync::{
        Mutex as PlainMutex,
        atomic::{AtomicUsize as PlainUsize, Ordering},
    },
};

use loom::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    thread::{self, ThreadId},
};
use tourbillon_shards::{Kind, Notice, Outcome, Owner, Shard};

use crate::{EventFd, HORIZON, TimerFd};

/// The owner of a shard.
///
/// Checks that it is woken at most once for each time that it parks. Its counts are plain: they
/// are not part of what is modelled. What it has to tell it keeps until [`tell`] is called.
#[derive(Default)]
pub struct Worker {
    /// What the worker sleeps on.
    pub eventfd: EventFd,
    /// What calls others if the worker does not come back.
    pub alarm: TimerFd,
    pub(crate) thread: PlainMutex<Option<ThreadId>>,
    pub(crate) parks: PlainUsize,
    wakes: PlainUsize,
    overs: PlainMutex<Vec<(Kind, Outcome)>>,
    notices: Mutex<Vec<Notice<Worker>>>,
    /// A clock for threads that move timers. It goes on by [`TICK`] with each reading.
    clock: AtomicU64,
    owed: PlainUsize,
    told: PlainUsize,
}

impl Worker {
    /// Sleeps until the clock says `until`, or until woken.
    pub(crate) fn sleep(&self, until: u64, now: &mut u64) {
        if until <= HORIZON {
            *now = until.max(*now);
        } else {
            self.eventfd.sleep();
        }
    }

    /// Reads the clock. Each reading is later than those that happened before it.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(TICK, Ordering::AcqRel) + TICK
    }

    /// Reads the clock some time before the reading is used.
    ///
    /// loom takes a thread's exchange behind its own load for one that depends on nothing else, and
    /// would leave out that all of another move comes between the reading and the use. So there is
    /// a second reading: where a mover reads the clock again when it is done, loom tries both
    /// orders of the two.
    pub fn past(&self) -> u64 {
        let past = self.now();
        self.now();
        past
    }

    /// Takes an outcome that a callback has to be told.
    pub fn notice(&self) -> Option<Notice<Worker>> {
        self.notices.lock().unwrap().pop()
    }

    /// How many callbacks have to be told an outcome yet.
    pub fn owes(&self) -> usize {
        let (owed, told) = (&self.owed, &self.told);
        owed.load(Ordering::Relaxed) - told.load(Ordering::Relaxed)
    }

    /// How many timers ended as `how`.
    pub fn over(&self, how: Outcome) -> usize {
        let overs = self.overs.lock().unwrap();
        overs.iter().filter(|over| over.1 == how).count()
    }

    /// How many timers ended.
    pub fn overs(&self) -> usize {
        self.overs.lock().unwrap().len()
    }

    /// How often the worker was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

/// How far a worker's clock goes on with each reading.
const TICK: u64 = 100;

impl Owner for Worker {
    fn wake(&self) {
        let wakes = self.wakes.fetch_add(1, Ordering::Relaxed) + 1;
        let parks = self.parks.load(Ordering::Relaxed);
        assert!(
            wakes <= parks,
            "woken {wakes} times, parked {parks} times only"
        );
        self.eventfd.write();
    }

    fn is_current(&self) -> bool {
        *self.thread.lock().unwrap() == Some(thread::current().id())
    }

    fn alarm(&self, at: u64) {
        self.alarm.set(at);
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.overs.lock().unwrap().push((kind, how));
    }

    fn outcome_pending(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn outcome_delivered(&self) {
        let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        let owed = self.owed.load(Ordering::Relaxed);
        assert!(told <= owed, "told {told} times, owed {owed} times only");
    }

    fn reread(&self, now: u64) -> RangeInclusive<u64> {
        // Not a reading of its own: where nobody has read this clock, time goes by another.
        let now = self.clock.load(Ordering::Acquire).max(now);
        now..=now
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.notices.lock().unwrap().push(notice);
    }
}

/// A shard of a [`Worker`].
pub type Home = Arc<Shard<Worker>>;

/// A shard that nobody owns yet.
pub fn shard() -> Home {
    Arc::new(Shard::new(Worker::default()))
}

/// Closes a shard, and ends its timers.
pub fn close(home: &Home) {
    drop(home.close());
}

/// Calls the callbacks that have to be told an outcome.
pub fn tell(home: &Home) {
    while let Some(notice) = home.owner().notice() {
        tell_one(notice);
    }
}

/// Calls a callback that has to be told an outcome.
pub fn tell_one(notice: Notice<Worker>) {
    if let Some(panic) = notice.run() {
        resume_unwind(panic);
    }
}
