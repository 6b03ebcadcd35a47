//! The shared part of a worker: what other threads need to reach it. It is the owner of its shard.

use std::{any::Any, io, ops::RangeInclusive, os::fd::AsRawFd, sync::Arc};

use crossbeam::{deque::Stealer, utils::CachePadded};
use tourbillon_sched::NextSlot;
use tourbillon_shards::{Kind, NEVER, Notice, Outcome, Owner, Shard, Tolerance};

use crate::{
    clock::instant::Instant,
    engine::{
        context::{current, spread, tolerance},
        job::{Job, NextTask, TaskJob},
        recorder::{Track, event::WakeReason},
        shared::Shared,
        task_core::local_queue::LocalQueue,
        watchdog::{alarm, state::Watchdog},
    },
    metrics::{
        counters::{Counter, Counters},
        recorder::Recorder,
    },
    reactor::{Reactor, alarm_token},
    sys,
    sys::{
        epoll::{Events, Prepared, Timeout},
        sync::atomic::{AtomicUsize, Ordering},
    },
    util::contained::{contained, each_or, forget},
};

/// A worker as other threads see it: its timers, and through their owner everything else.
pub(crate) type WorkerShard = Shard<Core>;

/// The shared part of a worker.
///
/// It is inside of the worker's shard. So every timer, task or socket of this worker reaches both
/// by one pointer, and counts references to this worker only.
#[expect(
    missing_debug_implementations,
    reason = "not nameable outside of the crate"
)]
pub struct Core {
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
    /// The tolerance of the runtime's timers. Each thread that arms a timer reads it.
    tolerance: Tolerance,
    /// How many callbacks of this shard's timers still have to take their outcomes. Any thread that
    /// starts such a timer writes it, so it is apart from the words that all threads read.
    owed: CachePadded<AtomicUsize>,
}

/// What kind of thread a `Core` belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A worker, which has timers and sockets.
    Worker,
    /// A helper, which has none, and starts and ends on demand.
    Helper,
}

/// An owner of a shard, with what the runtime's timers need: the runtime and the clock.
pub trait TimerOwner: Owner {
    /// Returns the runtime.
    fn shared(&self) -> &Arc<Shared>;

    /// Notes for the flight recorder that a timer of this shard is armed, due at `deadline`, in ns.
    #[inline]
    fn note_armed(&self, _deadline: u64) {}

    /// A reading of the time, taken before it is known which timer it is for. It is for deadlines
    /// only: [by the clock of the runtime](crate::sys::ticks) it may be some microseconds ahead of
    /// the present.
    type Read;

    /// Reads the time.
    fn read() -> Self::Read;

    /// Converts a reading to the shard's time, in ns.
    fn present(&self, read: Self::Read) -> u64;

    /// Returns the shard's present time, in ns.
    #[inline]
    fn now(&self) -> u64 {
        self.present(Self::read())
    }
}

impl Core {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        stealer: Stealer<Job>,
        role: Role,
    ) -> io::Result<Self> {
        let reactor = Reactor::new();
        // The only worker of a current-thread runtime opens its reactor when it needs it. No peer
        // watches over it, so it has no alarm.
        let is_alone = shared.is_current_thread();
        if !is_alone {
            reactor.open()?.make_timer()?;
        }
        let recorder = match role {
            Role::Worker => shared.recorders[index].clone(),
            // A helper may end at any time. The list of helpers then adds up its record.
            Role::Helper => Arc::new(Recorder::new(shared.recorders.len())),
        };
        let track = match role {
            Role::Worker => shared.flight.track_of_worker(index),
            Role::Helper => shared.flight.track_of_helper(index),
        };
        Ok(Self {
            index,
            track,
            tolerance: shared.config.timer_tolerance,
            shared,
            stealer,
            next: CachePadded::default(),
            pinned: LocalQueue::unbound(),
            reactor,
            recorder,
            watchdog: Watchdog::new(role == Role::Worker && !is_alone)?,
            is_helper: role == Role::Helper,
            owed: CachePadded::default(),
        })
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
        // Tests on a clock that is advanced by hand expect exact deadlines.
        if self.shared.clock.was_paused() {
            return Tolerance::EXACT;
        }
        tolerance::scoped().unwrap_or(self.tolerance)
    }

    // Callers end with this call, so that their fast path needs no stack frame.
    #[inline(never)]
    pub(crate) fn count_for_another(&self, counter: impl Fn(&Counters) -> &Counter) {
        self.shared.count_or(counter, || self.recorder.foreign());
    }
}

impl TimerOwner for Core {
    #[inline]
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[inline]
    fn note_armed(&self, deadline: u64) {
        if self.track.notes_all() {
            self.shared.record_armed(deadline);
        }
    }

    type Read = Instant;

    #[inline]
    fn read() -> Instant {
        Instant::from_kernel(sys::ticks::now_for_deadline())
    }

    #[inline]
    fn present(&self, read: Instant) -> u64 {
        let clock = &self.shared.clock;
        clock.present(clock.nanos(read))
    }
}

impl Owner for Core {
    fn wake(&self) {
        // On a paused clock the worker itself finds that a timer of its own came due. It looks at
        // its parked word before it sleeps.
        if current::is_current(self) {
            return;
        }
        self.record_woke(WakeReason::Update);
        self.recorder.foreign().tickles_written.add(1);
        self.reactor.wake();
    }

    #[inline]
    fn is_current(&self) -> bool {
        current::is_current(self)
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
    fn armed(&self, _: Kind, here: bool) {
        if here {
            self.recorder.own.armed_local.add_alone(1);
        } else {
            self.recorder.foreign().armed_remote.add(1);
        }
    }

    fn met(&self) {
        spread::make_way();
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
        self.shared.release_timer(kind);
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
        self.shared.clock.told()
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
mod tests {
    use std::{
        future::poll_fn,
        sync::{Mutex, mpsc},
        task::{Poll, Waker},
        thread,
        time::Duration,
    };

    use crossbeam::deque;

    use super::*;
    use crate::{
        api::runtime::Runtime,
        engine::task_core::end::end_pinned,
        metrics::spawned::Spawned,
        task::{join::JoinHandle, local::pinned::spawn_pinned_at},
    };

    /// How long a test waits for progress. Only a hang exceeds it.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn runtime() -> (Runtime, Arc<WorkerShard>) {
        let runtime = Runtime::builder().worker_threads(1).build().unwrap();
        let worker = runtime.handle().shared().workers()[0].clone();
        (runtime, worker)
    }

    /// Spawns a task that waits to be woken once, and returns it with its waker. Its output is the
    /// thread on which it ended.
    fn waiting(runtime: &Runtime) -> (JoinHandle<thread::ThreadId>, Waker) {
        let (sender, receiver) = mpsc::channel();
        let mut waits = true;
        let task = runtime.spawn(poll_fn(move |cx| {
            if !std::mem::take(&mut waits) {
                return Poll::Ready(thread::current().id());
            }
            sender.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }));
        let waker = receiver.recv_timeout(PATIENCE).unwrap();
        // The task has returned from its poll. So a wake-up from another job is not taken for a
        // yield.
        runtime.block_on(runtime.spawn(async {})).unwrap();
        (task, waker)
    }

    /// Starts a job on the worker that wakes `wakers` and then blocks until the sender is dropped.
    fn stuck(runtime: &Runtime, wakers: Vec<Waker>) -> mpsc::Sender<()> {
        let (go_on, wait) = mpsc::channel::<()>();
        let (is_stuck, receiver) = mpsc::channel();
        let wait = Mutex::new(wait);
        runtime.after(Duration::ZERO, move || {
            wakers.into_iter().for_each(Waker::wake);
            is_stuck.send(()).unwrap();
            let wait = wait.lock().unwrap();
            assert!(wait.recv_timeout(PATIENCE).is_err(), "nothing is sent");
        });
        receiver.recv_timeout(PATIENCE).unwrap();
        go_on
    }

    #[test]
    fn the_next_task_of_a_stuck_worker_is_stolen() {
        let (runtime, worker) = runtime();
        let (task, waker) = waiting(&runtime);
        assert!(worker.owner().steal_next().is_none());
        let go_on = stuck(&runtime, vec![waker]);
        let stolen = worker.owner().steal_next().expect("it is in the slot");
        assert!(worker.owner().steal_next().is_none());
        stolen.run();
        assert_eq!(runtime.block_on(task).unwrap(), thread::current().id());
        drop(go_on);
    }

    #[test]
    fn only_the_task_that_was_woken_last_is_in_the_slot() {
        let (runtime, worker) = runtime();
        let (first, first_waker) = waiting(&runtime);
        let (second, second_waker) = waiting(&runtime);
        let go_on = stuck(&runtime, vec![first_waker, second_waker]);
        let stolen = worker.owner().steal_next().expect("it is in the slot");
        assert!(worker.owner().steal_next().is_none());
        assert!(!worker.owner().stealer.is_empty(), "it is in the deque");
        stolen.run();
        drop(go_on);
        let here = thread::current().id();
        assert_eq!(runtime.block_on(second).unwrap(), here);
        assert_ne!(runtime.block_on(first).unwrap(), here);
    }

    /// The worker's thread could not be started.
    #[test]
    fn pinned_tasks_of_a_worker_that_never_started_are_dropped_unrun() {
        let (runtime, _worker) = runtime();
        let shared = runtime.handle().shared().clone();
        let deque = deque::Worker::new_fifo();
        let core = Core::new(0, shared, deque.stealer(), Role::Worker).unwrap();
        let never = Arc::new(Shard::new(core));
        let held = Arc::new(());
        let given = held.clone();
        let create = move || async move { drop(given) };
        let task = spawn_pinned_at(never.clone(), create, Spawned::here());
        assert!(!task.is_finished());
        end_pinned(never.owner());
        assert_eq!(Arc::strong_count(&held), 1);
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_cancelled());
    }

    #[test]
    fn a_task_in_the_slot_at_shutdown_is_dropped() {
        let (runtime, worker) = runtime();
        let (task, waker) = waiting(&runtime);
        let go_on = stuck(&runtime, vec![waker]);
        runtime.handle().shared().stop();
        drop(go_on);
        drop(runtime);
        assert!(worker.owner().steal_next().is_none());
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
    }

    /// A hook wakes a task after the worker has given up its slot.
    #[test]
    fn a_task_that_a_hook_puts_into_the_slot_is_dropped() {
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let runtime = Runtime::builder()
            .worker_threads(1)
            .on_thread_stop({
                let waker = waker.clone();
                move || waker.lock().unwrap().take().unwrap().wake()
            })
            .build()
            .unwrap();
        let worker = runtime.handle().shared().workers()[0].clone();
        let task;
        (task, *waker.lock().unwrap()) = {
            let (task, waker) = waiting(&runtime);
            (task, Some(waker))
        };
        drop(runtime);
        assert!(worker.owner().steal_next().is_none());
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
    }
}
