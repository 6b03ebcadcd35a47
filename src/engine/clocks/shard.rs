//! The shard of a clock, with the timerfd that all workers watch in place of an owner's thread.

use std::{
    io,
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::ArcSwap;
use tourbillon_shards::{NEVER, Names, Shard};

use crate::{
    clock::{other::OtherClock, wall},
    engine::{core::Core, groups::GroupId, shared::Shared},
    metrics::{counters::Counts, recorder::Recorder},
    reactor::CLOCK_TOKENS,
    sys::{
        sync::{
            Mutex,
            atomic::{AtomicBool, AtomicU64, Ordering},
        },
        timerfd,
        timerfd::TimerFd,
    },
    util::lock::lock,
};

/// In the tag of a timer, beside its group: it must not run if a step of the clock jumps over its
/// deadline.
pub(crate) const SKIP_ON_STEP: u32 = GroupId::TAG + 1;

/// All such clocks, in the order of their epoll tokens.
const CLOCKS: [OtherClock; 2] = [OtherClock::Wall, OtherClock::Boot];

/// The clocks of a runtime that no worker waits for: the wall clock and the boot-time clock.
pub(crate) struct Clocks {
    /// Their shards, in the order of their kinds. Empty after the runtime has ended, and in a
    /// current-thread runtime until the first timer of such a clock.
    shards: ArcSwap<Vec<Arc<ClockShard>>>,
    /// Whether no shards are made any more. A thread that makes or closes them holds the lock.
    closed: Mutex<bool>,
    /// How often each shard was swept. It stays when the shards have ended.
    pub(crate) sweeps: [AtomicU64; 2],
    /// The counters of each for threads that are no workers. They stay, too.
    recorders: OnceLock<[Arc<Recorder>; 2]>,
    /// The names of their timers.
    pub(crate) names: Arc<Names<Core>>,
    /// Whether the worker is to serve a clock without a timerfd, which calls no worker by itself.
    called: AtomicBool,
    /// Whether the system refused a timerfd to the worker that served a clock.
    refused: AtomicBool,
}

impl Clocks {
    /// Creates the state of clocks without shards. The table of names has `name_parts` parts.
    pub(crate) fn new(name_parts: usize) -> Self {
        Self {
            shards: ArcSwap::default(),
            closed: Mutex::default(),
            sweeps: Default::default(),
            recorders: OnceLock::new(),
            names: Arc::new(Names::new(name_parts)),
            called: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }
    }

    /// Returns whether the worker is to serve the clocks before it sleeps.
    #[inline]
    pub(crate) fn are_called(&self) -> bool {
        self.called.load(Ordering::Acquire)
    }

    /// Returns whether a clock waits for a timerfd, which the system refuses. The worker then
    /// serves the clocks again and again.
    #[inline]
    pub(crate) fn are_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns whether the worker is to serve the clocks now. It then serves them.
    #[inline]
    pub(crate) fn take_call(&self) -> bool {
        (self.are_called() && self.called.swap(false, Ordering::AcqRel))
            | (self.are_refused() && self.refused.swap(false, Ordering::Relaxed))
    }

    /// Makes the shards if there are none. Returns them, or none after [`close`](Clocks::close).
    pub(crate) fn make(&self, shared: &Arc<Shared>) -> Arc<Vec<Arc<ClockShard>>> {
        let closed = lock(&self.closed);
        let mut shards = self.all();
        if shards.is_empty() && !*closed {
            shards = Arc::new(
                CLOCKS
                    .map(|kind| Arc::new(ClockShard::new(shared, kind)))
                    .to_vec(),
            );
            self.shards.store(shards.clone());
        }
        shards
    }

    /// Makes no shards from here on. Returns those that are there, which the caller closes.
    pub(crate) fn close(&self) -> Arc<Vec<Arc<ClockShard>>> {
        let mut closed = lock(&self.closed);
        *closed = true;
        self.all()
    }

    /// Forgets the shards, which are closed.
    pub(crate) fn forget(&self) {
        self.shards.store(Arc::default());
    }

    /// Returns the shard of a clock for a new timer, unless the runtime has ended.
    pub(crate) fn home(&self, shared: &Arc<Shared>, kind: OtherClock) -> Option<Arc<ClockShard>> {
        let clock = self.get(kind);
        clock.or_else(|| self.make(shared).get(kind as usize).cloned())
    }

    /// Returns the shards.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<ClockShard>>> {
        self.shards.load_full()
    }

    /// Returns the shard of a clock, if there is one.
    pub(crate) fn get(&self, kind: OtherClock) -> Option<Arc<ClockShard>> {
        self.shards.load().get(kind as usize).cloned()
    }

    /// Calls a worker to a clock, which has an earlier deadline than before.
    pub(crate) fn call(&self, shared: &Shared, kind: OtherClock) {
        let shards = self.shards.load();
        let Some(clock) = shards.get(kind as usize) else {
            // The runtime has ended.
            return;
        };
        // The timers of an idle clock begin to wait here. A step from before does not count, and
        // the timerfd tells those that come after its setting alone.
        lock(&clock.called).get_or_insert_with(|| clock.readings());
        if !clock.make_readable() {
            // The worker finds the call in its turn, or before it sleeps.
            self.called.store(true, Ordering::Release);
            for worker in shared.workers.load().iter() {
                worker.wake();
            }
        }
    }

    /// Returns the record of a clock, which has the counters of threads that are no workers.
    pub(crate) fn recorder(&self, kind: OtherClock) -> &Arc<Recorder> {
        let new = || CLOCKS.map(|_| Arc::new(Recorder::new(0)));
        &self.recorders.get_or_init(new)[kind as usize]
    }

    /// Returns what threads that are no workers have counted for the timers of a clock.
    pub(crate) fn counts(&self, kind: OtherClock) -> Counts {
        let recorders = self.recorders.get();
        let mut counts = recorders.map_or_else(Counts::default, |all| all[kind as usize].counts());
        // How often the owner need not be woken is counted for workers alone.
        counts.tickles_skipped = 0;
        counts
    }
}

/// The shard of a clock, and what the threads that serve it need.
pub(crate) struct ClockShard {
    pub(crate) shard: Arc<Shard<Core>>,
    pub(crate) kind: OtherClock,
    /// Made for the first deadline, by the worker that serves the clock. On a runtime with worker
    /// threads it is there from the beginning.
    timerfd: OnceLock<TimerFd>,
    /// Whether the clock was set, and a thread that does not serve it took the notification.
    stepped: AtomicBool,
    /// When a thread first called the worker since the clock was last served. The lock is held for
    /// a moment, and no other is taken meanwhile.
    called: Mutex<Option<Readings>>,
    /// The lock of the serving worker.
    pub(super) served: Mutex<Served>,
}

/// The serving of a clock.
pub(super) struct Served {
    pub(super) last: Readings,
    /// Whether the timerfd was set before these readings. Then it tells each later step.
    pub(super) is_watched: bool,
    /// Whether the clock was left without timers.
    pub(super) is_idle: bool,
}

/// A moment: by a clock's own time, by the boot-time clock, which cannot be set, and by the clock
/// of the runtime, which stops while the machine is suspended.
pub(super) struct Readings {
    /// Read before `clock`.
    pub(super) boot: u64,
    pub(super) clock: u64,
    pub(super) own: u64,
}

impl Readings {
    fn now(shared: &Shared, kind: OtherClock) -> Self {
        // In this order.
        let boot = shared.clock.other(OtherClock::Boot);
        let clock = shared.clock.other(kind);
        let own = shared.clock.now();
        Self { boot, clock, own }
    }
}

impl ClockShard {
    /// Creates the shard of a clock.
    fn new(shared: &Arc<Shared>, kind: OtherClock) -> Self {
        let core = Core::of_clock(shared.clone(), kind);
        let shard = Shard::new(core).with_store(shared.config.timer_store);
        // It sleeps until the first timer is armed.
        shard.sleep_until();
        Self {
            shard: Arc::new(shard),
            kind,
            timerfd: OnceLock::new(),
            stepped: AtomicBool::new(false),
            called: Mutex::new(None),
            served: Mutex::new(Served {
                last: Readings::now(shared, kind),
                is_watched: false,
                is_idle: true,
            }),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shard.owner().shared
    }

    /// Returns the timerfd, and makes it if there is none. Called before the runtime runs, or by
    /// the worker that serves the clock.
    pub(super) fn timerfd(&self) -> io::Result<&TimerFd> {
        if let Some(timerfd) = self.timerfd.get() {
            return Ok(timerfd);
        }
        let timerfd = TimerFd::new(match self.kind {
            OtherClock::Wall => timerfd::Clock::Realtime,
            OtherClock::Boot => timerfd::Clock::Boottime,
        })?;
        let token = CLOCK_TOKENS[self.kind as usize];
        for worker in self.shared().workers.load().iter() {
            let epoll = worker.owner().reactor.open()?;
            epoll.add_shared(timerfd.as_raw_fd(), token)?;
        }
        Ok(self.timerfd.get_or_init(|| timerfd))
    }

    /// Reads the clocks.
    pub(super) fn readings(&self) -> Readings {
        Readings::now(self.shared(), self.kind)
    }

    /// Returns whether there is a timerfd. While timers wait it is set, and tells if the clock is
    /// set. The exception is the moment until the serving worker sets a timerfd that it has made.
    pub(super) fn is_watched(&self) -> bool {
        self.timerfd.get().is_some()
    }

    /// Returns when a thread first called the worker since the last time.
    pub(super) fn take_call(&self) -> Option<Readings> {
        lock(&self.called).take()
    }

    /// Returns whether the timerfd has told that the clock was set since the last call.
    pub(super) fn take_step(&self) -> bool {
        self.timerfd.get().is_some_and(TimerFd::take) | self.stepped.swap(false, Ordering::AcqRel)
    }

    /// Makes the timerfd readable, so that a thread serves the clock once more. If the clock was
    /// `stepped` since it was last served, that thread finds the notification.
    pub(super) fn serve_again(&self, stepped: bool) {
        if stepped {
            self.stepped.store(true, Ordering::Release);
        }
        let shared = self.shared();
        shared.clocks.call(shared, self.kind);
    }

    /// Makes the timerfd readable. Returns `false` if there is none.
    fn make_readable(&self) -> bool {
        let Some(timerfd) = self.timerfd.get() else {
            return false;
        };
        // A time in the past makes the timerfd readable at once. As any setting, this one also
        // takes the notification of a step: keep it for the serving worker.
        let set = timerfd.set_at(Duration::ZERO);
        if set.is_err_and(|error| timerfd::is_step(&error)) {
            self.stepped.store(true, Ordering::Release);
        }
        true
    }

    /// Sets the timerfd to `until`. Returns whether the clock was set since the last setting.
    pub(super) fn set_timer(&self, until: u64) -> bool {
        // A paused clock does not follow the kernel's: unset the timerfd. Quiescence wakes the
        // owner.
        let clock = &self.shared().clock;
        if until == NEVER || clock.is_paused() {
            let unset = self.timerfd.get().map(TimerFd::unset);
            return unset.is_some_and(|unset| unset.is_err_and(|error| timerfd::is_step(&error)));
        }
        let Ok(timerfd) = self.timerfd() else {
            self.shared().clocks.refused.store(true, Ordering::Relaxed);
            return false;
        };
        let set = match (self.kind, until) {
            // This clock differs from the kernel's, so set a relative time.
            _ if clock.was_paused() => {
                let left = until.saturating_sub(self.shard.owner().now());
                timerfd.set(Duration::from_nanos(left))
            }
            (OtherClock::Wall, until) => timerfd.set_at(wall::since_unix(until)),
            (OtherClock::Boot, until) => timerfd.set_at(Duration::from_nanos(until)),
        };
        // If the clock was set since the last setting, the kernel answers this one with an error.
        set.is_err_and(|error| timerfd::is_step(&error))
    }
}
