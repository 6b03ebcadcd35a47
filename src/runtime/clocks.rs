//! Timers on clocks that a worker's epoll instance cannot wait for: the time of day, and the time
//! that goes on while the machine is suspended.
//!
//! They are few, so each clock has one shard for the whole runtime, whose owner is no thread but a
//! timerfd that all workers watch: whoever is woken by it *serves* the clock. He takes what is due,
//! sets the timerfd to what is next, and announces that the shard sleeps until then, by the same word
//! as a worker does; who brings an earlier deadline claims the word, and makes the timerfd readable.
//!
//! The timerfd is set before the word is announced, never after: it would undo a claimer's setting.
//!
//! When the time of day is set, the kernel says so by the same descriptor
//! (`TFD_TIMER_CANCEL_ON_SET`), and nothing is polled. An absolute timerfd follows a step by itself;
//! what a step tells us is which timers it has jumped over.

use std::{any::Any, io, ops::RangeInclusive, os::fd::AsRawFd, sync::Arc, time::Duration};

use tourbillon_shards::{Kind, NEVER, Notice, Outcome, Owner, Shard};

use super::{
    contained, context,
    core::{Core, TimerOwner},
    lateness,
    local::Job,
    shared::{Shared, lock},
};
use crate::{
    metrics::{Counter, Counters, Recorded},
    reactor::CLOCK_TOKENS,
    sys::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    sys::timerfd::{self, TimerFd},
    time::{OtherClock, wall},
};

/// The timers of one clock.
pub(crate) type ClockShard = Shard<ClockCore>;

/// What a timer is tagged with that is not to run if a step of the clock jumps over its deadline.
pub(crate) const SKIP_ON_STEP: u32 = 1;

/// All clocks, in the order of their tokens.
pub(crate) const CLOCKS: [OtherClock; 2] = [OtherClock::Wall, OtherClock::Boot];

/// The owner of the shard of a clock.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct ClockCore {
    shared: Arc<Shared>,
    kind: OtherClock,
    timerfd: TimerFd,
    /// Timers whose callbacks are to be told how they ended, and have not been.
    owed: AtomicUsize,
    /// The clock was set, and who heard of it did not serve.
    stepped: AtomicBool,
    /// Held by who serves.
    served: Mutex<Served>,
}

/// When the clock was last served, by itself and by a clock that nobody sets.
struct Served {
    clock: u64,
    boot: u64,
}

impl ClockCore {
    pub(super) fn shard(shared: Arc<Shared>, kind: OtherClock) -> io::Result<Arc<ClockShard>> {
        let timerfd = TimerFd::new(match kind {
            OtherClock::Wall => timerfd::Clock::Realtime,
            OtherClock::Boot => timerfd::Clock::Boottime,
        })?;
        let served = Served {
            clock: shared.clock.other(kind),
            boot: shared.clock.other(OtherClock::Boot),
        };
        let store = shared.config.timer_store;
        let core = Self {
            shared,
            kind,
            timerfd,
            owed: AtomicUsize::new(0),
            stepped: AtomicBool::new(false),
            served: Mutex::new(served),
        };
        let shard = Shard::new(core).with_store(store);
        // It sleeps until somebody arms a timer.
        shard.sleep_until();
        Ok(Arc::new(shard))
    }

    pub(super) fn kind(&self) -> OtherClock {
        self.kind
    }

    /// The counters of this clock for the calling thread.
    fn counters(&self) -> &Counters {
        self.shared.clock_counters[self.kind as usize].own()
    }

    /// Counts as the calling worker's, or as this clock's.
    fn count(&self, counter: impl Fn(&Counters) -> &Counter) {
        self.shared.count_or(counter, || self.counters());
    }

    /// How many callbacks are still to be told.
    pub(super) fn owes(&self) -> usize {
        self.owed.load(Ordering::Acquire)
    }

    /// Whether the clock was set since this was last asked.
    fn take_step(&self) -> bool {
        self.timerfd.take() | self.stepped.swap(false, Ordering::AcqRel)
    }

    /// Sets the timerfd; true if the clock was set before that.
    fn set_timer(&self, until: u64) -> bool {
        let clock = &self.shared.clock;
        let set = match (self.kind, until) {
            (_, NEVER) => self.timerfd.unset(),
            _ if clock.is_paused() => self.timerfd.unset(),
            // By its own clock it would not know by how much that is off.
            _ if clock.was_paused() => {
                let left = until.saturating_sub(self.now());
                self.timerfd.set(Duration::from_nanos(left))
            }
            (OtherClock::Wall, until) => self.timerfd.set_at(wall::since_unix(until)),
            (OtherClock::Boot, until) => self.timerfd.set_at(Duration::from_nanos(until)),
        };
        set.is_err_and(|error| timerfd::is_step(&error))
    }
}

/// Has the thread of `core` called, or another of those that are, when one of the clocks is to be served.
pub(super) fn answer(core: &Core, clocks: &[Arc<ClockShard>]) -> io::Result<()> {
    for (clock, token) in clocks.iter().zip(CLOCK_TOKENS) {
        let fd = clock.owner().timerfd.as_raw_fd();
        core.reactor.epoll().add_shared(fd, token)?;
    }
    Ok(())
}

/// Takes what is due on a clock, and sets its timerfd. For any worker, when that is readable, which notes in `late`
/// how late that is.
pub(super) fn serve(shard: &ClockShard, late: &Recorded) -> Vec<Job> {
    let core = shard.owner();
    let mut served = lock(&core.served);
    let mut stepped = false;
    shard.resume();
    let mut jobs = Vec::new();
    loop {
        take(shard, &mut served, &mut jobs, Some(late), || {
            // For good: this may be the second round after one step.
            stepped |= core.take_step();
            stepped
        });
        let next = shard.next_deadline();
        let set = core.set_timer(next);
        stepped |= set;
        match shard.sleep_until() {
            // The clock may have been set, or put forward, before that was announced.
            Some(NEVER) if !set => return jobs,
            Some(until) if until >= next && !set && core.now() < until => return jobs,
            Some(_) => shard.resume(),
            None => {}
        }
    }
}

/// Sets a clock by `set`, and answers what is due then. Which timers that jumps over is found out here,
/// and not when somebody comes to serve: one that is armed in between has not been jumped over.
pub(super) fn step(shard: &ClockShard, set: impl FnOnce()) -> Vec<Job> {
    let mut served = lock(&shard.owner().served);
    let mut jobs = Vec::new();
    // The timerfd is left alone: who is woken by it finds it readable.
    take(shard, &mut served, &mut jobs, None, || false);
    set();
    take(shard, &mut served, &mut jobs, None, || true);
    jobs
}

/// Takes all that is due. If the clock was `stepped` since it was served, which is asked after it was
/// read, those whose moment that jumped over may have to be skipped.
fn take(
    shard: &ClockShard,
    served: &mut Served,
    jobs: &mut Vec<Job>,
    late: Option<&Recorded>,
    mut stepped: impl FnMut() -> bool,
) {
    let core = shard.owner();
    let mut due = Vec::new();
    loop {
        let (now, boot) = (core.now(), core.shared.clock.other(OtherClock::Boot));
        // After the reading: what it shows was not set without this saying so.
        let stepped = stepped();
        // Where the clock would be if nobody had set it.
        let natural = served
            .clock
            .saturating_add(boot.saturating_sub(served.boot));
        let jumped = |at| stepped && natural < at && at < now;
        let more = shard.expire(now, usize::MAX, &mut due).more;
        // What a step jumps over is not late by that.
        if let Some(late) = late.filter(|_| !stepped) {
            lateness::note(&core.shared, &due, now, late);
        }
        jobs.extend(due.drain(..).map(|due| {
            if due.tag() == SKIP_ON_STEP && due.deadline().is_some_and(jumped) {
                Job::Skipped(due)
            } else {
                Job::ClockTimer(due)
            }
        }));
        if !more {
            *served = Served { clock: now, boot };
            return;
        }
        crate::sys::sync::thread::yield_now();
    }
}

impl TimerOwner for ClockCore {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    type Read = ();

    fn read() {}

    fn present(&self, (): ()) -> u64 {
        self.shared.clock.other(self.kind)
    }
}

impl Owner for ClockCore {
    fn wake(&self) {
        // In the past: readable at once. It tells of a step as the setting before it would have.
        let set = self.timerfd.set_at(Duration::ZERO);
        if set.is_err_and(|error| timerfd::is_step(&error)) {
            self.stepped.store(true, Ordering::Release);
        }
    }

    fn is_current(&self) -> bool {
        false
    }

    fn armed(&self, _: Kind, _: bool) {
        self.counters().armed_remote.add(1);
    }

    fn moved(&self, _: bool) {
        self.count(|counters| &counters.refreshed);
    }

    fn over(&self, kind: Kind, how: Outcome) {
        if kind != Kind::Sleep {
            self.shared.release_timer();
        }
        self.count(|counters| counters.over(how));
    }

    fn owed(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn told(&self) {
        self.owed.fetch_sub(1, Ordering::Release);
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.shared.deliver(Job::ClockNotice(notice));
    }

    #[cold]
    fn panicked(&self, panic: Box<dyn Any + Send>) {
        // The panic hook has reported it.
        self.count(|counters| &counters.panics);
        contained(|| drop(panic));
    }

    fn reread(&self, _: u64) -> RangeInclusive<u64> {
        let now = self.now();
        now..=now
    }

    fn random(&self) -> u64 {
        context::random()
    }
}
