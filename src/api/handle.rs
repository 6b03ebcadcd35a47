//! A cloneable reference to a runtime, by which any thread uses it.

use std::{
    fmt,
    future::Future,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use crate::{
    api::dump::Dump,
    clock::{instant::Instant, other::OtherClock, wall},
    engine::{
        block_on,
        config::RuntimeFlavor,
        context::{
            entered,
            entered::EnterGuard,
            placement::{Choice, HomeError, with_any_home, with_home_of},
        },
        core::WorkerShard,
        id::Id,
        shared::Shared,
        task_core::spawned::Spawned,
        telemetry::snapshot,
        watchdog::stall::RecentStall,
    },
    error::{ArmError, NO_RUNTIME, NoRuntime, NotPaused, SpawnError},
    flight::FlightRecorder,
    metrics::{Activity, JobName, PollTimes, RuntimeMetrics},
    task,
    task::{blocking::spawn_blocking_at, join::JoinHandle, local::pinned::spawn_pinned_at},
    timer::{
        Timer,
        arm::{arm_after, arm_at, arm_every},
        clock::WallTimer,
    },
};

/// A reference to a [`Runtime`](crate::runtime::Runtime). Any thread may spawn tasks and arm timers
/// through it.
///
/// A handle is cheap to clone. It does not keep the runtime running.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a handle to the runtime that the calling thread is in.
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime; see [`try_current`](Handle::try_current).
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Ok(handle) => handle,
            Err(NoRuntime) => panic!("{NO_RUNTIME}"),
        }
    }

    /// Returns a handle to the runtime that the calling thread is in, or an error.
    ///
    /// # Errors
    ///
    /// Returns [`NoRuntime`] if the thread is in no runtime.
    pub fn try_current() -> Result<Self, NoRuntime> {
        entered::current().map(Self::new).ok_or(NoRuntime)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the number of the runtime. All handles of a runtime return the same one, and no
    /// other runtime of the process has it, before or after.
    ///
    /// ```
    /// use tourbillon::{Handle, Runtime};
    ///
    /// let (one, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    /// assert_ne!(one.handle().id(), other.handle().id());
    /// assert_eq!(one.block_on(async { Handle::current().id() }), one.handle().id());
    /// ```
    pub fn id(&self) -> Id {
        self.shared.id
    }

    /// Returns the [name](crate::runtime::Builder::name) of the runtime, or `None` if it has none.
    pub fn name(&self) -> Option<&str> {
        self.shared.config.name.as_deref()
    }

    /// Returns which threads run the tasks and timers of the runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use tourbillon::runtime::{Builder, RuntimeFlavor};
    ///
    /// let runtime = Builder::new_current_thread().build()?;
    /// assert_eq!(runtime.handle().runtime_flavor(), RuntimeFlavor::CurrentThread);
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime_flavor(&self) -> RuntimeFlavor {
        self.shared.config.flavor
    }

    /// Returns the flight recorder of the runtime, which tells why a timer was late: see
    /// [`flight`](crate::flight).
    pub fn flight_recorder(&self) -> FlightRecorder {
        FlightRecorder::new(self.shared.clone())
    }

    /// Returns a handle that does not keep the memory of a runtime that has ended, for caches and
    /// exporters that outlive runtimes.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let weak = runtime.handle().downgrade();
    /// assert_eq!(weak.upgrade().unwrap().id(), runtime.handle().id());
    /// drop(runtime);
    /// assert!(weak.upgrade().is_none());
    /// ```
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.shared))
    }

    /// Enters the runtime: until the guard is dropped, what this thread spawns and arms goes to
    /// this runtime.
    ///
    /// If the thread enters several runtimes, the one that it entered last counts.
    pub fn enter(&self) -> EnterGuard<'_> {
        entered::enter(&self.shared)
    }

    /// Runs `f` with the shard for a timer, socket or task of the calling thread. If the thread is
    /// a worker of this runtime it is the worker's own shard, otherwise one that `choice` selects.
    pub(crate) fn with_home<R>(
        &self,
        choice: Choice,
        f: impl FnOnce(&Arc<WorkerShard>) -> R,
    ) -> Result<R, HomeError> {
        with_home_of(&self.shared, choice, f)
    }

    /// Arms a timer by `f`, on the shard that [`with_home`](Handle::with_home) selects for timers.
    fn arm(
        &self,
        f: impl FnOnce(&Arc<WorkerShard>) -> Result<Timer, ArmError>,
    ) -> Result<Timer, ArmError> {
        self.with_home(Choice::Stay, f)?
    }

    /// Spawns a task on the runtime; see [`tourbillon::spawn`](crate::task::spawn).
    ///
    /// On a runtime that has been shut down the task is cancelled at once.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_as(Spawned::here(), future)
    }

    pub(crate) fn spawn_as<F>(&self, spawned: Spawned, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.with_home(Choice::InTurn, |home| task::spawn_at(home, future, spawned))
            .unwrap_or_else(|_| JoinHandle::cancelled())
    }

    /// Spawns a task that runs on one worker only. The runtime selects the worker, in turn.
    ///
    /// See [`task::spawn_pinned`](crate::task::local::pinned::spawn_pinned). On a runtime that has
    /// been shut down the task is cancelled at once.
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(&self, create: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.spawn_pinned_as(Spawned::here(), create)
    }

    pub(crate) fn spawn_pinned_as<F, Fut>(
        &self,
        spawned: Spawned,
        create: F,
    ) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        if self.shared.is_current_thread() {
            return JoinHandle::cancelled();
        }
        match with_any_home(&self.shared, Choice::NotAwake, Arc::clone) {
            Ok(home) => spawn_pinned_at(home, create, spawned),
            Err(_) => JoinHandle::cancelled(),
        }
    }

    /// Spawns a task that runs only on worker number `worker`. Workers are numbered from 0.
    ///
    /// It is otherwise like [`spawn_pinned`](Handle::spawn_pinned).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let task = runtime.handle().spawn_pinned_by_idx(|| async { 42 }, 0).unwrap();
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error, and drops `create`, if there is no such worker or the runtime has been
    /// shut down. (A runtime that is shutting down may still accept the task. Its join handle then
    /// returns a "cancelled" error.)
    #[track_caller]
    pub fn spawn_pinned_by_idx<F, Fut>(
        &self,
        create: F,
        worker: usize,
    ) -> Result<JoinHandle<Fut::Output>, SpawnError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let spawned = Spawned::here();
        let workers = self.shared.workers();
        match workers.get(worker) {
            // A runtime that ends may have no workers left, which is no fault of the number.
            _ if self.shared.is_stopping() => Err(SpawnError::Shutdown),
            _ if self.shared.is_current_thread() => Err(SpawnError::CurrentThread),
            Some(home) => Ok(spawn_pinned_at(home.clone(), create, spawned)),
            None => Err(SpawnError::NoSuchWorker {
                worker,
                workers: workers.len(),
            }),
        }
    }

    /// Runs `f`, which may block, on a thread for blocking jobs.
    ///
    /// See [`task::spawn_blocking`](crate::task::blocking::spawn_blocking). On a runtime that has
    /// been shut down `f` is dropped, and the join handle returns a "cancelled" error.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_blocking_as(Spawned::here(), f)
    }

    pub(crate) fn spawn_blocking_as<F, R>(&self, spawned: Spawned, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.with_home(Choice::InTurn, Arc::clone) {
            Ok(home) => spawn_blocking_at(&home, spawned, f),
            Err(_) => JoinHandle::cancelled(),
        }
    }

    /// Runs a future to completion on the calling thread, in the context of this runtime; see
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is a worker, or if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        entered::assert_may_block();
        // What the future arms and spawns goes to this runtime.
        let _entered = self.enter();
        block_on::drive(&self.shared, future)
    }

    /// Runs `f` once on a worker, `delay` from now: see [`Timer`].
    ///
    /// A delay of zero, or one shorter than the clock's resolution, means as soon as possible, but
    /// never on the caller's stack. A delay of more than 73 years means never. On a runtime that
    /// has been shut down, `f` is dropped and the timer has ended.
    ///
    /// *Now* may be up to 3 µs later than the true time, but never earlier: a thread that arms or
    /// resets several timers within 2 µs asks the kernel for the time only once, if the processor
    /// has a reliable counter. For delays of less than 100 µs *now* is exact.
    pub fn after<F>(&self, delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_after(home, delay, false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// Runs `f` once on a worker, not before `deadline`, or as soon as possible if `deadline` has
    /// passed.
    pub fn at<F>(&self, deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_at(home, deadline.into(), false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// Runs `f` on a worker every `period`. The first run is one period from now.
    ///
    /// Deadlines are exact multiples of the period from the first one on, even if a run is late: a
    /// recurring timer does not drift. Deadlines that pass while `f` runs or waits for a worker are
    /// skipped. `f` never runs twice at once. If `f` panics, it runs again at the next deadline.
    ///
    /// A period of zero counts as 1 ns: `f` runs again as soon as the worker has checked everything
    /// else that it has to do. With a period of more than 73 years, such as `Duration::MAX`, the
    /// first deadline never comes.
    pub fn every<F>(&self, period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        let period = period.max(Duration::from_nanos(1));
        self.arm(|home| arm_every(home, period, false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// Arms a timer as [`after`](Handle::after) does, or returns an error if the runtime has no
    /// room.
    ///
    /// # Errors
    ///
    /// Returns an error, and drops `f`, if the runtime has been shut down or already has as many
    /// timers as [`max_timers`](crate::runtime::Builder::max_timers) allows.
    pub fn try_after<F>(&self, delay: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_after(home, delay, true, f))
    }

    /// Arms a timer as [`at`](Handle::at) does, or returns an error if the runtime has no room.
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`try_after`](Handle::try_after).
    pub fn try_at<F>(&self, deadline: impl Into<Instant>, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_at(home, deadline.into(), true, f))
    }

    /// Arms a timer as [`every`](Handle::every) does, or returns an error if the runtime has no
    /// room.
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`try_after`](Handle::try_after), and if `period` is zero.
    pub fn try_every<F>(&self, period: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnMut() + Send + 'static,
    {
        if period.is_zero() {
            return Err(ArmError::ZeroPeriod);
        }
        self.arm(|home| arm_every(home, period, true, f))
    }

    /// Returns the time of the runtime's wall clock: that of the system, or once the runtime's
    /// clock was paused, the one that moves with it. See
    /// [`time::wall_clock`](crate::time::wall_clock).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let before = SystemTime::now();
    /// assert!(runtime.handle().wall_clock() >= before);
    ///
    /// runtime.handle().pause();
    /// let tomorrow = before + Duration::from_secs(24 * 3600);
    /// runtime.handle().set_wall_clock(tomorrow).unwrap();
    /// assert_eq!(runtime.handle().wall_clock(), tomorrow);
    /// ```
    pub fn wall_clock(&self) -> SystemTime {
        wall::time(self.shared.clock.other(OtherClock::Wall))
    }

    /// Runs `f` once on a worker when the wall clock reaches `time`: see
    /// [`Timer::at_wall`](crate::timer::Timer::at_wall).
    pub fn at_wall<F>(&self, time: SystemTime, f: F) -> WallTimer
    where
        F: FnOnce() + Send + 'static,
    {
        Timer::at_wall(time).on(self).start(f)
    }

    /// Cancels at most `max` timers of this name (`usize::MAX`: all of them), and returns how many
    /// this call cancelled. See [`TimerBuilder::name`](crate::timer::builder::TimerBuilder::name).
    ///
    /// Timers of the monotonic clock come first, and then those of other clocks; each the oldest
    /// first, which is the one that was given its name first. Timers that are given this name during
    /// the call may be left.
    ///
    /// Finding each timer takes constant time, for any number of timers and names. A destructor
    /// that panics is caught, as in [`Timer::cancel`](crate::timer::Timer::cancel); the remaining
    /// timers are still cancelled and counted.
    pub fn cancel_named(&self, name: &str, max: usize) -> usize {
        let cancelled = self.shared.names.cancel(name, max);
        // The timers of other clocks have a table of their own, with the same names.
        cancelled + self.shared.clocks.names.cancel(name, max - cancelled)
    }

    /// Refreshes all timers of this name, as [`Timer::refresh`](crate::timer::Timer::refresh) does,
    /// and returns how many were refreshed in time.
    ///
    /// Timers of the wall clock and of the boot-time clock stay unchanged, since most of them wait
    /// for a moment and not for a delay. Timers that were not started stay unchanged, too.
    ///
    /// Each timer's delay counts from the moment at which this call reaches that timer. If another
    /// thread starts or refreshes a timer meanwhile, this call does not make its deadline earlier.
    pub fn refresh_named(&self, name: &str) -> usize {
        let clock = &self.shared.clock;
        self.shared.names.refresh(name, || clock.now_for_deadline())
    }

    /// Returns how many timers have this name: those that were built and can still be cancelled.
    pub fn count_named(&self, name: &str) -> usize {
        self.shared.names.count(name) + self.shared.clocks.names.count(name)
    }

    /// Returns a snapshot of what the runtime has done and has to do. See
    /// [`metrics`](crate::metrics).
    ///
    /// It takes some µs for each worker, so call it at most a few times a second. Counters are read
    /// without a lock. Two numbers are read under a lock, which is held only for that read: those
    /// of the blocking threads (the lock that
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) takes), and for each worker the
    /// number of tasks [pinned](crate::metrics::WorkerMetrics::pinned_tasks) to it (the lock that
    /// such a task takes when it begins and ends).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::Runtime::builder().worker_threads(2).build().unwrap();
    /// let timer = runtime.after(Duration::from_secs(60), || ());
    /// let metrics = runtime.metrics();
    /// assert_eq!(metrics.num_workers(), 2);
    /// assert_eq!(metrics.total().armed(), 1);
    /// # timer.cancel();
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        snapshot::metrics(&self.shared)
    }

    /// Returns the current activity of each worker, by worker number, with the job that it runs:
    /// see [`WorkerMetrics::activity`](crate::metrics::WorkerMetrics::activity).
    ///
    /// It takes only a few loads for each worker, so it may be called hundreds of times a second.
    /// The list is empty once the runtime has ended.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::builder().worker_threads(2).build().unwrap();
    /// assert_eq!(runtime.handle().activities().len(), 2);
    /// ```
    pub fn activities(&self) -> Vec<(Activity, Option<JobName>)> {
        snapshot::activities(&self.shared)
    }

    /// Returns the last 64 reported [stalls](crate::runtime::Builder::stall_threshold), oldest
    /// first. Each has its number: 1, 2, 3 and so on.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// for recent in runtime.handle().recent_stalls() {
    ///     println!("{} at {:?}: {}", recent.number, recent.at, recent.stall);
    /// }
    /// ```
    pub fn recent_stalls(&self) -> Vec<RecentStall> {
        snapshot::recent_stalls(&self.shared)
    }

    /// Lists the tasks of the runtime, with what each does and waits for: see
    /// [`dump`](crate::runtime::dump).
    ///
    /// It stops no worker, and also answers while all workers are stuck.
    pub fn dump(&self) -> Dump {
        self.dump_some(usize::MAX)
    }

    /// Lists at most `most` tasks of the runtime, as [`dump`](Handle::dump) does, where there are
    /// too many to list all.
    ///
    /// ```
    /// use std::future::pending;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let handle = tourbillon::Handle::current();
    /// for _ in 0..3 {
    ///     tourbillon::spawn(pending::<()>());
    /// }
    /// assert!(handle.dump_some(2).tasks().iter().count() <= 2);
    /// # });
    /// ```
    pub fn dump_some(&self, most: usize) -> Dump {
        Dump::new(&self.shared, most)
    }

    /// Has the workers time each poll of a task, until the result is dropped. Otherwise no poll is
    /// timed: it takes two more readings of the clock for each.
    ///
    /// ```
    /// use std::{thread, time::Duration};
    /// use tourbillon::Runtime;
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = Runtime::new()?;
    /// let times = runtime.handle().time_polls();
    /// let task = runtime.spawn(async {
    ///     thread::sleep(Duration::from_millis(10));
    ///     tourbillon::task::yield_now().await;
    /// });
    /// let id = task.id();
    /// runtime.block_on(task).unwrap();
    /// for thread in times.take() {
    ///     // Nothing is known of a task that has ended meanwhile.
    ///     if let Some(polls) = thread.over.get(&id) {
    ///         println!("{:?}: {} polls in {:?}", thread.thread, polls.count, polls.took);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn time_polls(&self) -> PollTimes {
        PollTimes::new(self.shared.clone())
    }

    /// Returns how long ago the runtime was built. Moments of [snapshots](crate::flight::Snapshot)
    /// and [polls](PollTimes) count from there.
    ///
    /// Like them, it does not follow a clock that is or was [paused](crate::time::pause).
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.shared.clock.real())
    }

    /// Returns whether the runtime has begun to shut down. From then on it accepts no tasks and no
    /// timers.
    pub fn is_shut_down(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Waits until the runtime has ended: it was shut down, and its workers have returned.
    ///
    /// This is for tasks of other runtimes. A task of this runtime is dropped before.
    ///
    /// ```
    /// use tourbillon::{Runtime, runtime::Builder};
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let inspected = Runtime::new()?;
    /// let observer = Builder::new_current_thread().build()?;
    /// let handle = inspected.handle().clone();
    /// drop(inspected);
    /// observer.block_on(handle.ended());
    /// assert!(handle.is_shut_down());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&self) {
        self.shared.lifecycle.ended().await;
    }

    /// Pauses the runtime's clock, for tests: see [`time::pause`](crate::time::paused::pause). Does
    /// nothing if the clock is paused already.
    ///
    /// A caller outside of the runtime does not wait for the workers: a callback that began before
    /// this call may see the time advance once more.
    pub fn pause(&self) {
        self.shared.quiescence.pause(&self.shared);
    }

    /// Sets the runtime's wall clock while its clock is paused: see
    /// [`time::set_wall_clock`](crate::time::paused::set_wall_clock).
    ///
    /// # Errors
    ///
    /// Returns [`NotPaused`] if the clock is not paused.
    pub fn set_wall_clock(&self, time: SystemTime) -> Result<(), NotPaused> {
        let set = self
            .shared
            .quiescence
            .set_wall(&self.shared, wall::nanos(time));
        if set { Ok(()) } else { Err(NotPaused) }
    }

    /// Resumes the runtime's clock from the time that it shows: see
    /// [`time::resume`](crate::time::paused::resume). Does nothing if the clock is running already.
    pub fn resume(&self) {
        self.shared.quiescence.resume(&self.shared);
    }
}

// A panic of the caller leaves nothing half done: shared state changes under locks, in which no
// user code runs, or by single atomic steps.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.shared.workers.load().len();
        f.debug_struct("Handle")
            .field("workers", &workers)
            .finish_non_exhaustive()
    }
}

/// A [`Handle`] that does not keep the memory of its runtime. See [`Handle::downgrade`].
#[derive(Clone)]
pub struct WeakHandle(Weak<Shared>);

impl WeakHandle {
    /// Returns a handle, or `None` if the runtime and all of its handles are gone.
    pub fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle::new)
    }
}

impl UnwindSafe for WeakHandle {}
impl RefUnwindSafe for WeakHandle {}

impl fmt::Debug for WeakHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(WeakHandle)")
    }
}
