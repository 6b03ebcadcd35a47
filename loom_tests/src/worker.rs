//! A worker without a kernel, and its shard.

use std::{
    ops::RangeInclusive,
    panic::resume_unwind,
    sync::{
        Mutex as PlainMutex, OnceLock, Weak,
        atomic::{AtomicU64 as PlainU64, AtomicUsize as PlainUsize, Ordering},
    },
};

use loom::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    thread::{self, ThreadId},
};
use tourbillon_shards::{Kind, Notice, Outcome, Owner, Shard, Tolerance};

use crate::{Crew, EventFd, HORIZON, TimerFd};

/// A way to set an alarm.
pub type SetsAlarm = Box<dyn Fn(&TimerFd, u64) + Send + Sync>;

/// The owner of a shard.
///
/// Checks that it is woken at most once for each time that it parks. Its counts are plain: they are
/// not part of the model. It keeps the outcomes that it has to deliver until [`tell`] is called.
#[derive(Default)]
pub struct Worker {
    /// The worker sleeps on this.
    pub eventfd: EventFd,
    /// Calls other threads if the worker does not come back.
    pub alarm: TimerFd,
    /// Sets the alarm to a moment, if a model has a way of its own.
    pub sets_alarm: OnceLock<SetsAlarm>,
    pub(crate) thread: PlainMutex<Option<ThreadId>>,
    pub(crate) parks: PlainUsize,
    wakes: PlainUsize,
    armed: PlainU64,
    overs: PlainMutex<Vec<(Kind, Outcome)>>,
    notices: Mutex<Vec<Notice<Worker>>>,
    /// A clock for threads that reset timers. Each reading advances it by [`TICK`].
    clock: AtomicU64,
    owed: PlainUsize,
    told: PlainUsize,
    /// The tolerance of timers without options, in ns.
    pub tolerance: PlainU64,
    /// The group that the worker belongs to, and its place there.
    pub(crate) crew: OnceLock<(Weak<Crew>, usize)>,
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

    /// Reads the clock. Each reading is later than all readings that happened before it.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(TICK, Ordering::AcqRel) + TICK
    }

    /// Reads the clock some time before the reading is used.
    ///
    /// loom assumes that an exchange after a load by the same thread depends on nothing else. So
    /// it would not try a schedule in which a whole reset by another thread comes between the
    /// reading and its use. A second reading makes loom try that schedule: if the other thread
    /// reads the clock again after its reset, loom tries both orders of these two readings.
    pub fn past(&self) -> u64 {
        let past = self.now();
        self.now();
        past
    }

    /// Takes an outcome that is not delivered to its callback yet.
    pub fn notice(&self) -> Option<Notice<Worker>> {
        self.notices.lock().unwrap().pop()
    }

    /// Returns how many outcomes are not delivered yet.
    pub fn owes(&self) -> usize {
        let (owed, told) = (&self.owed, &self.told);
        owed.load(Ordering::Relaxed) - told.load(Ordering::Relaxed)
    }

    /// Returns how many timers ended as `how`.
    pub fn over(&self, how: Outcome) -> usize {
        let overs = self.overs.lock().unwrap();
        overs.iter().filter(|over| over.1 == how).count()
    }

    /// Returns how many timers were armed. A sleep that was over and is armed again counts again.
    pub fn arms(&self) -> u64 {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns how many timers ended.
    pub fn overs(&self) -> usize {
        self.overs.lock().unwrap().len()
    }

    /// Returns how often the worker was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

/// How far each reading advances a worker's clock.
const TICK: u64 = 100;

impl Owner for Worker {
    fn tolerance(&self) -> Tolerance {
        Tolerance::new(self.tolerance.load(Ordering::Relaxed))
    }

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

    fn is_covered(&self, at: u64) -> bool {
        let crew = self.crew.get();
        crew.is_some_and(|(crew, place)| crew.upgrade().is_some_and(|it| it.is_covered(*place, at)))
    }

    fn alarm(&self, at: u64) {
        match self.sets_alarm.get() {
            Some(set) => set(&self.alarm, at),
            None => self.alarm.set(at),
        }
    }

    fn armed(&self, _kind: Kind, _here: bool, count: u64) {
        self.armed.fetch_add(count, Ordering::Relaxed);
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
        // This does not count as a reading. If no thread has read this clock, `now` is the time.
        let now = self.clock.load(Ordering::Acquire).max(now);
        now..=now
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.notices.lock().unwrap().push(notice);
    }
}

/// A shard of a [`Worker`].
pub type Home = Arc<Shard<Worker>>;

/// Returns a shard that has no owner yet.
pub fn shard() -> Home {
    Arc::new(Shard::new(Worker::default()))
}

/// Closes a shard, and ends its timers.
pub fn close(home: &Home) {
    drop(home.close());
}

/// Delivers all pending outcomes to their callbacks.
pub fn tell(home: &Home) {
    while let Some(notice) = home.owner().notice() {
        tell_one(notice);
    }
}

/// Delivers an outcome to its callback.
pub fn tell_one(notice: Notice<Worker>) {
    if let Some(panic) = notice.run() {
        resume_unwind(panic);
    }
}
