//! The owner of a shard, and the shared part of a worker: what other threads need to reach it.

use std::{any::Any, io, ops::RangeInclusive, os::fd::AsRawFd, sync::Arc};

use crossbeam::{
    deque::{self, Stealer},
    utils::CachePadded,
};
use tourbillon_sched::NextSlot;
use tourbillon_shards::{Kind, NEVER, Names, Notice, Outcome, Owner, Shard, Tolerance};

use crate::{
    clock::other::OtherClock,
    engine::{
        context::{current, spread, tolerance},
        job::{Job, NextTask, TaskJob},
        recorder::{Track, event::WakeReason},
        shared::Shared,
        task_core::local_queue::LocalQueue,
        watchdog::{alarm, state::Watchdog},
        worker::retire::PublishedDuty,
    },
    metrics::{
        counters::{Counter, Counters},
        recorder::Recorder,
    },
    reactor::{Reactor, alarm_token},
    sys,
    sys::{
        epoll::{Events, Prepared, Timeout},
        sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
        timerfd::{self, TimerFd},
    },
    util::{
        contained::{contained, each_or, forget},
        probe::probe,
    },
};

/// A worker as other threads see it: its timers, and through their owner everything else.
pub(crate) type WorkerShard = Shard<Core>;

/// The shared part of a worker or helper, or the owner of a [clock's](crate::engine::clocks) shard.
///
/// It is inside of the worker's shard. So every timer, task or socket of this worker reaches both
/// by one pointer, and counts references to this worker only.
///
/// The owner of a clock's shard is no thread: it has no jobs, and its reactor stays closed. All
/// threads are remote to it, so that no method that a worker's timers call often asks which of the
/// two this is.
///
/// Its alignment leaves seven bits of an address for the home of a task.
#[repr(align(128))]
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stealer: Stealer<Job>,
    /// The worker's LIFO slot. Only the worker fills it, at each wake-up of a task, so the slot
    /// shares no cache line with words that other threads write.
    pub(crate) next: CachePadded<NextSlot<NextTask>>,
    /// Tasks that only this worker may run, and that are ready.
    pub(crate) pinned: LocalQueue<TaskJob>,
    pub(crate) reactor: Reactor,
    /// The worker's metrics. They are behind an `Arc` because they outlive the worker.
    pub(crate) recorder: Arc<Recorder>,
    /// The worker's part in the flight recorder.
    pub(crate) track: Track,
    /// The state by which peers watch over the worker.
    pub(crate) watchdog: Watchdog,
    /// Whether this is a helper. A helper's shard has no timers.
    pub(crate) is_helper: bool,
    /// What the worker does for others. Only the worker writes it, while it is awake.
    pub(crate) duty: PublishedDuty,
    /// The clock that the timers of this shard are due by, if it is not the clock of the runtime.
    pub(crate) clock: Option<OtherClock>,
    /// The tolerance of the runtime's timers. Each thread that arms a timer reads it.
    tolerance: Tolerance,
    /// The system's number of the worker's thread, as in `/proc/self/task`. Written by the worker.
    pub(crate) thread: AtomicU32,
    /// The end of the last sleep that lasted past a deadline because the budget for wake-ups was
    /// spent, in ns. Written by the worker, and by one that wakes up in its place.
    pub(crate) deferred_to: AtomicU64,
    /// How many callbacks of this shard's timers still have to take their outcomes. Any thread that
    /// starts such a timer writes it, so it is apart from the words that all threads read.
    owed: CachePadded<AtomicUsize>,
}

/// What a `Core` belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A worker, which has timers and sockets.
    Worker,
    /// A helper, which has none, and starts and ends on demand.
    Helper,
    /// A clock, which has timers and no thread.
    Clock(OtherClock),
}

impl Core {
    /// Creates the core of a worker or helper, with the descriptors that it needs from the
    /// beginning.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        stealer: Stealer<Job>,
        role: Role,
    ) -> io::Result<Self> {
        // The only worker of a current-thread runtime opens its reactor when it needs it. No peer
        // watches over it, so it has no alarm.
        let is_alone = shared.is_current_thread();
        let mut core = Self::closed(index, shared, stealer, role);
        if !is_alone {
            core.reactor.open()?.make_timer()?;
            // No timer and no socket waits for a helper.
            if role == Role::Worker {
                core.watchdog.alarm = Some(TimerFd::new(timerfd::Clock::Monotonic)?);
            }
        }
        Ok(core)
    }

    /// Creates the owner of a clock's shard.
    pub(crate) fn of_clock(shared: Arc<Shared>, clock: OtherClock) -> Self {
        // No job is ever in this deque.
        let stealer = deque::Worker::new_fifo().stealer();
        Self::closed(usize::MAX, shared, stealer, Role::Clock(clock))
    }

    fn closed(index: usize, shared: Arc<Shared>, stealer: Stealer<Job>, role: Role) -> Self {
        let workers = shared.recorders.len();
        let (recorder, track, clock) = match role {
            Role::Worker => {
                let track = shared.flight.track_of_worker(index);
                (shared.recorders[index].clone(), track, None)
            }
            // A helper may end at any time. The list of helpers then adds up its record.
            Role::Helper => {
                let track = shared.flight.track_of_helper(index);
                (Arc::new(Recorder::new(workers)), track, None)
            }
            Role::Clock(clock) => {
                let recorder = shared.clocks.recorder(clock).clone();
                (recorder, Track::off(), Some(clock))
            }
        };
        Self {
            index,
            track,
            thread: AtomicU32::new(0),
            deferred_to: AtomicU64::new(0),
            tolerance: shared.config.timer_tolerance,
            shared,
            stealer,
            next: CachePadded::default(),
            pinned: LocalQueue::unbound(),
            reactor: Reactor::new(),
            recorder,
            watchdog: Watchdog::new(),
            is_helper: role == Role::Helper,
            duty: PublishedDuty::default(),
            clock,
            owed: CachePadded::default(),
        }
    }

    /// Returns whether the LIFO slot is not used. No rescue would empty that of a helper.
    pub(crate) fn has_no_next_slot(&self) -> bool {
        #[cfg(feature = "facade")]
        if self.shared.config.facade.disables_next_slot {
            return true;
        }
        self.is_helper
    }

    /// Returns the table of the names of this shard's timers.
    pub(crate) fn names(&self) -> &Arc<Names<Self>> {
        match self.clock {
            None => &self.shared.names,
            Some(_) => &self.shared.clocks.names,
        }
    }

    /// Returns the present time by the clock of this shard's timers, in ns.
    pub(crate) fn now(&self) -> u64 {
        match self.clock {
            None => self.shared.clock.now(),
            Some(clock) => self.shared.clock.other(clock),
        }
    }

    /// Notes for the flight recorder that a timer of this shard is armed, due at `deadline`, in ns.
    #[inline]
    pub(crate) fn note_armed(&self, deadline: u64) {
        // The track of a clock notes nothing.
        if self.track.notes_all() {
            self.shared.record_armed(deadline);
        }
    }

    /// Runs user code on behalf of this worker. A panic is caught and counted.
    pub(crate) fn contain(&self, f: impl FnOnce()) {
        if !contained(f) {
            self.count(|counters| &counters.panics);
        }
    }

    /// Calls `f`, which is user code, with each of `items`. A panic is caught and counted, and does
    /// not keep the other calls from being made.
    pub(crate) fn contain_each<T>(&self, items: impl IntoIterator<Item = T>, f: impl FnMut(T)) {
        each_or(items, f, |panic| {
            forget(panic);
            self.count(|counters| &counters.panics);
        });
    }

    /// Returns how many callbacks still have to take their outcomes.
    pub(crate) fn owes(&self) -> usize {
        self.owed.load(Ordering::Acquire)
    }

    /// Makes this worker a peer that is woken when the alarm of `other` goes off.
    pub(crate) fn answer_for(&self, other: &Core) -> io::Result<()> {
        // A helper has no alarm: no timer and no socket waits for it.
        let Some(alarm) = &other.watchdog.alarm else {
            return Ok(());
        };
        let epoll = self.reactor.open()?;
        epoll.add_shared(alarm.as_raw_fd(), alarm_token(other.index))
    }

    /// Prepares a wait of `timeout` at most. Only the worker calls this.
    pub(crate) fn prepare(&self, timeout: Timeout) -> Option<Prepared> {
        self.reactor.prepare(timeout)
    }

    /// Polls the sockets, and waits as prepared. Only the worker calls this.
    pub(crate) fn wait(&self, events: &mut Events, prepared: Option<Prepared>) {
        match prepared {
            Some(prepared) => {
                self.recorder.own.epoll_waits.add_alone(1);
                self.reactor.wait(events, prepared);
            }
            None => events.clear(),
        }
    }

    /// Counts the time from `since` to `now`, in real time in ns, as busy: the worker did not
    /// sleep. Only the worker calls this.
    pub(crate) fn was_busy(&self, since: u64, now: u64) {
        let busy = &self.recorder.own.busy_ns;
        busy.add_alone(now.saturating_sub(since));
    }

    /// Sends the worker's wake-up again, after a rescuer took it out of the worker's epoll
    /// instance.
    pub(crate) fn wake_again(&self) {
        self.reactor.wake();
    }

    /// Takes the task that the worker would run next, for a rescue: a stuck worker gets to that
    /// task only after its present job.
    ///
    /// From a worker that is not stuck the task should not be taken: the worker's cache has the
    /// data of the task. So searchers do not look here. They would find nothing in time either: no
    /// worker is woken for a task in a slot, and a worker that sleeps has none. The caller must
    /// run, queue or drop the task. Dropping it cancels it.
    pub(crate) fn steal_next(&self) -> Option<TaskJob> {
        self.next.steal().map(TaskJob::from)
    }

    /// Wakes the worker, which the caller has claimed as a searcher.
    pub(crate) fn wake_to_search(&self) {
        self.record_woke(WakeReason::Search);
        self.recorder.foreign().search_wakes.add(1);
        self.reactor.wake();
    }

    /// Counts for the calling thread: on its own counters if it is this worker or another worker of
    /// this runtime, otherwise on the shared ones.
    #[inline]
    pub(crate) fn count(&self, counter: impl Fn(&Counters) -> &Counter) {
        if current::is_current(self) {
            // Only this thread writes these counters, so a plain store is enough.
            return counter(&self.recorder.own).add_alone(1);
        }
        self.count_for_another(counter);
    }

    /// Returns the tolerance of a timer that is armed in a scope, or on a runtime with a tolerance.
    #[inline(never)]
    fn chosen_tolerance(&self) -> Tolerance {
        // Tests on a clock that is advanced by hand expect exact deadlines. Timers of the other
        // clocks have a tolerance only if they were given one.
        if self.shared.clock.was_paused() || self.clock.is_some() {
            return Tolerance::EXACT;
        }
        tolerance::scoped().map_or(self.tolerance, |stated| self.shorten(stated))
    }

    /// Returns the tolerance of a timer for which the user has stated one, in ns.
    pub(crate) fn stated(&self, ns: u64) -> Tolerance {
        self.shorten(Tolerance::stated(ns))
    }

    /// Returns a tolerance that means the same on this runtime. If no wake-up is deferred, any exact
    /// timer is strict, and takes the short way.
    fn shorten(&self, stated: Tolerance) -> Tolerance {
        match stated.ns() {
            0 if self.clock.is_some() || self.shared.config.timer_budget.is_none() => {
                Tolerance::EXACT
            }
            _ => stated,
        }
    }

    // Callers end with this call, so that their fast path needs no stack frame.
    #[inline(never)]
    pub(crate) fn count_for_another(&self, counter: impl Fn(&Counters) -> &Counter) {
        self.shared.count_or(counter, || self.recorder.foreign());
    }
}

impl Owner for Core {
    fn wake(&self) {
        // On a paused clock the worker itself finds that a timer of its own came due. It looks at
        // its parked word before it sleeps.
        if current::is_current(self) {
            return;
        }
        if let Some(clock) = self.clock {
            return self.shared.clocks.call(&self.shared, clock);
        }
        self.record_woke(WakeReason::Update);
        self.recorder.foreign().tickles_written.add(1);
        self.reactor.wake();
    }

    #[inline]
    fn is_current(&self) -> bool {
        current::is_current(self)
    }

    #[inline]
    fn is_covered(&self, at: u64) -> bool {
        self.clock.is_none() && self.shared.is_covered(self.index, at)
    }

    fn alarm(&self, at: u64) {
        let Some(timer) = &self.watchdog.alarm else {
            return;
        };
        let clock = &self.shared.clock;
        let set = |moment| {
            // If the system call fails, only the rescue is late. No caller could handle the error.
            let _ = match moment {
                // An absolute time, since this thread may be suspended before the call.
                Some(moment) if at != NEVER => timer.set_at(moment),
                // No peer is called on a clock that is advanced by hand.
                _ => timer.unset(),
            };
        };
        alarm::set(|| clock.kernel(at), set);
    }

    fn wake_skipped(&self) {
        self.recorder.foreign().tickles_skipped.add(1);
    }

    #[inline]
    fn armed(&self, _: Kind, here: bool, count: u64) {
        probe!(arm, self.index, count, here);
        if here {
            self.recorder.own.armed_local.add_alone(count);
        } else {
            self.recorder.foreign().armed_remote.add(count);
        }
    }

    fn met(&self) {
        // There is no other shard for the timers of a clock.
        if self.clock.is_none() {
            spread::make_way();
        }
    }

    #[inline]
    fn moved(&self, here: bool) {
        if here {
            self.recorder.own.refreshed.add_alone(1);
        } else {
            self.moved_by_another();
        }
    }

    #[inline]
    fn over(&self, kind: Kind, how: Outcome) {
        self.shared.release_timer(kind, how);
        self.count(|counters| counters.over(how));
    }

    fn outcome_pending(&self) {
        // Raised before the exchange that starts the timer, which publishes it.
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn outcome_delivered(&self) {
        // Release: the thread that ends the runtime sees all that the callback did.
        self.owed.fetch_sub(1, Ordering::Release);
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.shared.deliver(Job::Notice(notice));
    }

    #[cold]
    fn panicked(&self, panic: Box<dyn Any + Send>) {
        // The panic hook has reported it. The payload's destructor is user code.
        self.count(|counters| &counters.panics);
        forget(panic);
    }

    #[cold]
    fn reread(&self, _: u64) -> RangeInclusive<u64> {
        match self.clock {
            None => self.shared.clock.told(),
            Some(clock) => {
                let now = self.shared.clock.other(clock);
                now..=now
            }
        }
    }

    #[inline]
    fn tolerance(&self) -> Tolerance {
        if tolerance::is_scoped() || !self.tolerance.is_exact() {
            return self.chosen_tolerance();
        }
        Tolerance::EXACT
    }

    fn random(&self) -> u64 {
        sys::random()
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
