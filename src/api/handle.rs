//! A reference to a runtime.

use std::{
    fmt,
    future::Future,
    panic::{Location, RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    clock::{instant::Instant, wall},
    engine::{
        block_on,
        context::{
            entered,
            entered::EnterGuard,
            placement::{Choice, HomeError, with_any_home, with_home_of},
        },
        core::WorkerShard,
        shared::Shared,
        telemetry::snapshot,
        watchdog::stall::RecentStall,
    },
    error::{ArmError, NO_RUNTIME, NoRuntime, NotPaused, SpawnError},
    metrics::{Activity, JobName, RuntimeMetrics},
    task,
    task::{blocking::spawn_blocking_at, join::JoinHandle, local::pinned::spawn_pinned_at},
    timer::{
        Timer,
        arm::{arm_after, arm_at, arm_every},
        clock::WallTimer,
    },
};

/// A reference to a [`Runtime`](crate::runtime::Runtime), by which any thread may spawn tasks and arm timers
/// there. It does not keep the runtime running.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The runtime that the calling thread is in.
    ///
    /// # Panics
    ///
    /// If it is in none; see [`try_current`](Handle::try_current).
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Ok(handle) => handle,
            Err(NoRuntime) => panic!("{NO_RUNTIME}"),
        }
    }

    /// The runtime that the calling thread is in.
    ///
    /// # Errors
    ///
    /// If it is in none.
    pub fn try_current() -> Result<Self, NoRuntime> {
        entered::current().map(Self::new).ok_or(NoRuntime)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enters the runtime: until the guard is dropped, what this thread spawns and arms goes there,
    /// unless it enters another meanwhile: the one entered last counts.
    pub fn enter(&self) -> EnterGuard<'_> {
        entered::enter(&self.shared)
    }

    /// Runs `f` with the shard for a timer, socket or task of the calling thread: its own, if it is
    /// a worker of this runtime, otherwise one of `choice`.
    pub(crate) fn with_home<R>(
        &self,
        choice: Choice,
        f: impl FnOnce(&Arc<WorkerShard>) -> R,
    ) -> Result<R, HomeError> {
        with_home_of(&self.shared, choice, f)
    }

    /// As [`with_home`](Handle::with_home), for what arms a timer there.
    fn arm(
        &self,
        f: impl FnOnce(&Arc<WorkerShard>) -> Result<Timer, ArmError>,
    ) -> Result<Timer, ArmError> {
        self.with_home(Choice::Stay, f)?
    }

    /// Spawns a task; see [`tourbillon::spawn`](crate::task::spawn). On a runtime that has been shut down
    /// the task is cancelled at once.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let spawned = Location::caller();
        self.with_home(Choice::InTurn, |home| task::spawn_at(home, future, spawned))
            .unwrap_or_else(|_| JoinHandle::cancelled())
    }

    /// Runs a task on one worker, and on no other, the next in turn; see
    /// [`task::spawn_pinned`](crate::task::local::pinned::spawn_pinned). On a runtime that has been shut down the task is
    /// cancelled at once.
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(&self, create: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let spawned = Location::caller();
        match with_any_home(&self.shared, Choice::NotAwake, Arc::clone) {
            Ok(home) => spawn_pinned_at(home, create, spawned),
            Err(_) => JoinHandle::cancelled(),
        }
    }

    /// As [`spawn_pinned`](Handle::spawn_pinned), on the worker of this number; they are numbered from 0.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let task = runtime.handle().spawn_pinned_by_idx(|| async { 42 }, 0).unwrap();
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such worker, or the runtime has been shut down. `create` is dropped. (One that is
    /// being shut down may still take it; the handle says cancelled then.)
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
        let spawned = Location::caller();
        let workers = self.shared.workers();
        match workers.get(worker) {
            _ if self.shared.is_stopping() => Err(SpawnError::Shutdown),
            Some(home) => Ok(spawn_pinned_at(home.clone(), create, spawned)),
            None => Err(SpawnError::NoSuchWorker {
                worker,
                workers: workers.len(),
            }),
        }
    }

    /// Runs `f`, which may block, on a thread that is there for it; see
    /// [`task::spawn_blocking`](crate::task::blocking::spawn_blocking). On a runtime that has been shut down it is
    /// dropped, and the handle says cancelled.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.with_home(Choice::InTurn, Arc::clone) {
            Ok(home) => spawn_blocking_at(&home, f),
            Err(_) => JoinHandle::cancelled(),
        }
    }

    /// Runs a future to its end on the calling thread; see
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    ///
    /// # Panics
    ///
    /// If the calling thread is a worker, and with the future's own panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(
            !entered::is_worker(),
            "`block_on` was called on a worker of a Tourbillon runtime, where it would stop everything \
             that the worker has to do: `.await` the future there, or spawn it"
        );
        let _entered = self.enter();
        block_on::drive(&self.shared, future)
    }

    /// Runs `f` on a worker, `delay` from now: see [`Timer`].
    ///
    /// (Of a thread that arms or moves several within two microseconds the first alone asks the kernel what time it is, where
    /// the processor can tell it, too. Of the others *now* may be 3 µs later, and is not earlier; but for delays of less than 100 µs
    /// it is exact.)
    ///
    /// Zero, and less than the clock can tell, mean at once, though never on the caller's stack. A
    /// delay beyond 73 years means never. On a runtime that has been shut down `f` is dropped, and
    /// the timer over.
    pub fn after<F>(&self, delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_after(home, delay, false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// Runs `f` on a worker, not before `deadline`; at once if that has passed.
    pub fn at<F>(&self, deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_at(home, deadline.into(), false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// Runs `f` on a worker every `period`, for the first time one period from now.
    ///
    /// The deadlines are multiples of the period from the first on, however late a run is: a
    /// recurring timer does not drift. Those that pass while `f` runs, or wait for a worker, are
    /// skipped. `f` is never run twice at once. If it panics, it is run again at the next
    /// deadline. A period of zero counts as one nanosecond:
    /// `f` then runs again as soon as the worker has looked at everything else it has to do. A
    /// period beyond 73 years, `Duration::MAX` among them, means never, as such a delay does: the
    /// first deadline never comes.
    pub fn every<F>(&self, period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        let period = period.max(Duration::from_nanos(1));
        self.arm(|home| arm_every(home, period, false, f))
            .unwrap_or_else(Timer::refused)
    }

    /// As [`after`](Handle::after), if there is room.
    ///
    /// # Errors
    ///
    /// If the runtime has been shut down, or has as many timers as
    /// [`max_timers`](crate::runtime::Builder::max_timers) allows. `f` is dropped.
    pub fn try_after<F>(&self, delay: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_after(home, delay, true, f))
    }

    /// As [`at`](Handle::at), if there is room.
    ///
    /// # Errors
    ///
    /// As for [`try_after`](Handle::try_after).
    pub fn try_at<F>(&self, deadline: impl Into<Instant>, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_at(home, deadline.into(), true, f))
    }

    /// As [`every`](Handle::every), if there is room.
    ///
    /// # Errors
    ///
    /// As for [`try_after`](Handle::try_after), and if the period is zero.
    pub fn try_every<F>(&self, period: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnMut() + Send + 'static,
    {
        if period.is_zero() {
            return Err(ArmError::ZeroPeriod);
        }
        self.arm(|home| arm_every(home, period, true, f))
    }

    /// What the runtime's wall clock says.
    #[cfg(feature = "cron")]
    pub(crate) fn wall_now(&self) -> SystemTime {
        wall::time(
            self.shared
                .clock
                .other(crate::clock::other::OtherClock::Wall),
        )
    }

    /// Runs `f` on a worker when the wall clock says `time`: see
    /// [`Timer::at_wall`](crate::timer::Timer::at_wall).
    pub fn at_wall<F>(&self, time: SystemTime, f: F) -> WallTimer
    where
        F: FnOnce() + Send + 'static,
    {
        Timer::at_wall(time).on(self).start(f)
    }

    /// Cancels timers of this name, `max` at most (`usize::MAX`: all); answers how many this call
    /// cancelled. See [`TimerBuilder::name`](crate::timer::builder::TimerBuilder::name).
    ///
    /// Of those that go by the monotonic clock the ones that were named last are cancelled first, but
    /// that the last takes the place of one that ended meanwhile; then those of other clocks.
    ///
    /// Finding each takes constant time, however many timers and names there are.
    /// Destructors that panic are caught, as by [`Timer::cancel`](crate::timer::Timer::cancel), and the
    /// others are cancelled and counted all the same.
    pub fn cancel_named(&self, name: &str, max: usize) -> usize {
        let cancelled = self.shared.names.cancel(name, max);
        cancelled + self.shared.clock_names.cancel(name, max - cancelled)
    }

    /// Refreshes all timers of this name, as [`Timer::refresh`](crate::timer::Timer::refresh) does; answers
    /// how many were in time. Those of other clocks than the monotonic one stay as they are, for most
    /// wait for a moment, not for a delay; so do those that were not started.
    ///
    /// Each timer's delay counts from when this call comes to that timer. One that another thread
    /// starts or refreshes meanwhile is not made earlier.
    pub fn refresh_named(&self, name: &str) -> usize {
        let clock = &self.shared.clock;
        self.shared.names.refresh(name, || clock.now_for_deadline())
    }

    /// How many timers have this name: those that were built, and can be cancelled still.
    pub fn count_named(&self, name: &str) -> usize {
        self.shared.names.count(name) + self.shared.clock_names.count(name)
    }

    /// What the runtime has done, and what it has to do. See [`metrics`](crate::metrics).
    ///
    /// It takes some microseconds for each worker: to be called a few times a second. Counters are read without a
    /// lock. Two figures are under one that others may wait for, for the moment in which a number is read: the blocking
    /// threads' (which [`spawn_blocking`](crate::task::blocking::spawn_blocking) takes), and, one worker after the other, that
    /// of the tasks that are [pinned](WorkerMetrics::pinned_tasks) to it (taken where one of these begins and ends).
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

    /// What each worker is at, by its number, and at which job: see
    /// [`WorkerMetrics::activity`](crate::metrics::WorkerMetrics::activity). Some loads for each worker, for who looks
    /// hundreds of times a second. Empty once the runtime has ended.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::builder().worker_threads(2).build().unwrap();
    /// assert_eq!(runtime.handle().activities().len(), 2);
    /// ```
    pub fn activities(&self) -> Vec<(Activity, Option<JobName>)> {
        snapshot::activities(&self.shared)
    }

    /// The last 64 [stalls](crate::runtime::Builder::stall_threshold) that were reported, the oldest first, with their numbers:
    /// 1, 2, 3 and so on.
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

    /// Stops the runtime's clock, for tests: see [`time::pause`](crate::time::paused::pause). One that is
    /// paused stays so.
    ///
    /// Called from outside of the runtime, this does not wait for what its workers are at: a callback
    /// that began before may see the time move once more.
    pub fn pause(&self) {
        self.shared.quiescence.pause(&self.shared);
    }

    /// Sets the runtime's wall clock, while its clock is paused: see
    /// [`time::set_wall_clock`](crate::time::paused::set_wall_clock).
    ///
    /// # Errors
    ///
    /// If the clock is not paused.
    pub fn set_wall_clock(&self, time: SystemTime) -> Result<(), NotPaused> {
        let set = self
            .shared
            .quiescence
            .set_wall(&self.shared, wall::nanos(time));
        if set { Ok(()) } else { Err(NotPaused) }
    }

    /// Lets the runtime's clock run on from where it stands: see [`time::resume`](crate::time::paused::resume).
    /// One that runs stays so.
    pub fn resume(&self) {
        self.shared.quiescence.resume(&self.shared);
    }
}

// A panic of the caller leaves nothing half done: what the threads share changes under locks, in
// which no user code runs, or by single atomic steps.
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
