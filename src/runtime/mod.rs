//! The runtime: workers, the queues between them, and how it is built and ended.
//!
//! | file | what is there |
//! |---|---|
//! | `builder` | options |
//! | `build` | the start of the workers |
//! | `worker` | the loop of a worker |
//! | `local` | the queues of a worker, for its own thread |
//! | `pace` | the job-cost estimate: how long its jobs take |
//! | `wait_policy` | whether it spins or sleeps, and when the kernel is to wake it |
//! | `core` | the worker as other threads know it: the owner of its shard |
//! | `clocks` | timers by the time of day, and by a clock that goes on while the machine is suspended |
//! | `shared` | what all share: injector, searchers |
//! | `rescue` | help for a worker that does not come back |
//! | `helpers` | threads that come when no worker does |
//! | `in_place` | a worker that is about to block, and says so |
//! | `threads` | how threads that come and go are started and joined |
//! | `ending` | how workers end, and all that waits with them |
//! | `blocking` | the threads that may block, and their queue |
//! | `context` | which worker and which runtime a thread belongs to |
//! | `passing` | all shards seen alike, for a clock that is paused |
//! | `quiescence` | when nothing is left to do, for a clock that is paused |
//! | `stall` | jobs that keep their worker for too long |
//! | `trace` | a span around each callback, and an event for each rescue, with feature `tracing` |
//! | `lateness` | how late timers are, noted as they are taken, and as they run |
//! | `look` | what can be seen of a runtime from outside |

mod block_on;
mod blocking;
mod build;
mod builder;
mod clocks;
mod config;
mod context;
mod core;
mod ending;
mod handle;
mod helpers;
mod in_place;
mod lateness;
mod local;
mod look;
mod pace;
mod passing;
mod quiescence;
mod rescue;
mod rescuers;
mod searching;
mod shared;
mod stall;
mod threads;
mod tidy;
#[cfg(feature = "tracing")]
mod trace;
mod wait_policy;
mod worker;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind},
    time::{Duration, SystemTime},
};

#[cfg(feature = "cron")]
pub(crate) use self::stall::this_job_is;
pub(crate) use self::{
    block_on::drive,
    clocks::{ClockCore, SKIP_ON_STEP},
    context::{HomeError, inside, is_current, is_worker, with_clock, with_home, worker_number},
    core::{Core, TimerOwner, WorkerShard},
    handle::Choice,
    in_place::block_in_place,
    lateness::note_woken,
    local::{Order, TaskJob},
    quiescence::Advance,
    shared::{Shared, lock, schedule},
};
pub use self::{
    builder::{Builder, PreciseWait},
    context::EnterGuard,
    handle::Handle,
    look::RecentStall,
    stall::Stall,
};
pub use tourbillon_shards::store::StoreKind;

use crate::{
    error::{ArmError, BuildError, SpawnError},
    metrics::RuntimeMetrics,
    sys::{clock, sync::thread},
    task::JoinHandle,
    time::Instant,
    timer::{Timer, Timers, WallTimer},
};

/// Runs foreign code on a worker; a panic is counted, and goes no further.
pub(crate) fn contain(core: &Core, f: impl FnOnce()) {
    if !contained(f) {
        core.count(|counters| &counters.panics);
    }
}

/// Runs foreign code; a panic goes no further. False if there was one.
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else {
        return true;
    };
    // What a panic carries may panic when dropped, and what that carries, too.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    false
}

/// A running set of workers.
///
/// Dropping it shuts it down, and waits: each worker finishes the callback or the poll that it is
/// at, and then every task is dropped and every pending timer ended. Nothing remains, no thread, no
/// descriptor, no memory but what handles still refer to: a kept [`Timer`], [`JoinHandle`] or socket
/// keeps the descriptors of its worker. On a worker, of this or of another runtime, dropping it
/// does not wait, since that would stall what the worker has to do; nor does it on a blocking
/// thread of its own. To wait less elsewhere, see [`shutdown_timeout`](Runtime::shutdown_timeout)
/// and [`shutdown_background`](Runtime::shutdown_background).
///
/// # Blocking jobs at the shutdown
///
/// A job is accepted when [`spawn_blocking`](crate::task::spawn_blocking) returns before the
/// shutdown begins. An accepted job runs, even if it has not begun and nobody holds its handle: a
/// last write is not lost. How long the job has depends on the way in which the runtime ends:
///
/// - **Drop**: all run. The drop waits for them, however long they take.
/// - **[`shutdown_timeout`](Runtime::shutdown_timeout)**: they have that time. A job that has not
///   begun at its end is dropped: its handle says cancelled, a [metric] counts it, and
///   `shutdown_timeout` answers `false`. A job that has begun runs on.
/// - **[`shutdown_graceful`](Runtime::shutdown_graceful)**: likewise. While it waits for the tasks,
///   the runtime accepts more jobs.
/// - **[`shutdown_background`](Runtime::shutdown_background)**, and each of these on a worker or on
///   a blocking thread of the runtime: all run, in the background. Nobody waits for them: a process
///   that exits before they are through loses them.
///
/// Tasks, timers and sockets of the runtime end meanwhile. A job that waits for a task finds it
/// cancelled, a sleep is over at once, and a socket answers with an error.
///
/// A job that is spawned after the shutdown has begun, by another job or by a destructor, say, is
/// dropped unrun, and its handle says cancelled.
///
/// [metric]: crate::metrics::RuntimeMetrics::blocking_dropped_count
///
/// ```
/// use std::{sync::mpsc, time::Duration};
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let (sender, receiver) = mpsc::channel();
/// runtime.after(Duration::from_millis(1), move || sender.send("fired").unwrap());
/// assert_eq!(receiver.recv(), Ok("fired"));
/// ```
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
    /// Set once it has been shut down, by whatever way: dropping it then waits for nothing more.
    is_down: bool,
    /// Dropped when its threads have ended.
    _listed: tidy::Listed,
}

// As for `Handle`. The handles of its threads, which are not, are only taken, once, at the end.
impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl Runtime {
    /// A runtime with the defaults: see [`Builder`].
    ///
    /// # Errors
    ///
    /// If the system refuses a thread or a descriptor.
    #[allow(clippy::new_ret_no_self, reason = "it does, in a Result")]
    pub fn new() -> Result<Self, BuildError> {
        Builder::new().build()
    }

    /// The options of a runtime.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn from_handle(handle: Handle) -> Self {
        let listed = tidy::Listed::new(handle.shared().workers());
        Self {
            handle,
            threads: Vec::new(),
            is_down: false,
            _listed: listed,
        }
    }

    /// A reference to this runtime, for other threads.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Enters the runtime: see [`Handle::enter`].
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Runs a future to its end on the calling thread, in the context of this runtime. What it
    /// spawns runs on the workers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::sleep;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let sum = runtime.block_on(async {
    ///     let task = tourbillon::spawn(async { 20 });
    ///     sleep(Duration::from_millis(1)).await;
    ///     task.await.unwrap() + 22
    /// });
    /// assert_eq!(sum, 42);
    /// ```
    ///
    /// # Panics
    ///
    /// If the calling thread is a worker of a runtime, and with the future's own panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Spawns a task: see [`Handle::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Runs `f`, which may block, on a thread that is there for it: see
    /// [`task::spawn_blocking`](crate::task::spawn_blocking).
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.handle.spawn_blocking(f)
    }

    /// Runs a task on one worker, and on no other: see [`Handle::spawn_pinned`].
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(&self, create: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.handle.spawn_pinned(create)
    }

    /// As [`spawn_pinned`](Runtime::spawn_pinned), on the worker of this number.
    ///
    /// # Errors
    ///
    /// See [`Handle::spawn_pinned_by_idx`].
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
        self.handle.spawn_pinned_by_idx(create, worker)
    }

    /// Runs `f` once, `delay` from now: see [`Handle::after`].
    pub fn after<F>(&self, delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.handle.after(delay, f)
    }

    /// Runs `f` once, not before `deadline`: see [`Handle::at`].
    pub fn at<F>(&self, deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.handle.at(deadline, f)
    }

    /// Runs `f` every `period`: see [`Handle::every`].
    pub fn every<F>(&self, period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        self.handle.every(period, f)
    }

    /// As [`after`](Runtime::after), if there is room.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_after`].
    pub fn try_after<F>(&self, delay: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.handle.try_after(delay, f)
    }

    /// As [`at`](Runtime::at), if there is room.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_after`].
    pub fn try_at<F>(&self, deadline: impl Into<Instant>, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        self.handle.try_at(deadline, f)
    }

    /// As [`every`](Runtime::every), if there is room.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_every`].
    pub fn try_every<F>(&self, period: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnMut() + Send + 'static,
    {
        self.handle.try_every(period, f)
    }

    /// Runs `f` when the wall clock says `time`: see [`Timer::at_wall`].
    pub fn at_wall<F>(&self, time: SystemTime, f: F) -> WallTimer
    where
        F: FnOnce() + Send + 'static,
    {
        self.handle.at_wall(time, f)
    }

    /// Cancels timers of this name: see [`Handle::cancel_named`].
    pub fn cancel_named(&self, name: &str, max: usize) -> usize {
        self.handle.cancel_named(name, max)
    }

    /// Refreshes all timers of this name: see [`Handle::refresh_named`].
    pub fn refresh_named(&self, name: &str) -> usize {
        self.handle.refresh_named(name)
    }

    /// How many timers have this name: see [`Handle::count_named`].
    pub fn count_named(&self, name: &str) -> usize {
        self.handle.count_named(name)
    }

    /// The timers that wait now: see [`Handle::timers`].
    pub fn timers(&self) -> Timers {
        self.handle.timers()
    }

    /// Stops the clock: see [`Handle::pause`].
    pub fn pause(&self) {
        self.handle.pause();
    }

    /// Lets the clock run on: see [`Handle::resume`].
    pub fn resume(&self) {
        self.handle.resume();
    }

    /// What the workers have done: see [`Handle::metrics`].
    pub fn metrics(&self) -> RuntimeMetrics {
        self.handle.metrics()
    }

    /// The stalls that were reported last: see [`Handle::recent_stalls`].
    pub fn recent_stalls(&self) -> Vec<RecentStall> {
        self.handle.recent_stalls()
    }

    /// Shuts the runtime down, and waits for its workers and blocking threads for `timeout` at most;
    /// true if all have ended. One that is stuck in a callback ends when the callback does, and the last
    /// worker to end drops the tasks.
    ///
    /// A job that was given to [`spawn_blocking`](crate::task::spawn_blocking) before runs within
    /// that time, or is [dropped](Runtime#blocking-jobs-at-the-shutdown) at its end; then this
    /// answers false. On a worker, and on a blocking thread of the runtime, this waits for nothing
    /// and answers false: all goes on as after
    /// [`shutdown_background`](Runtime::shutdown_background).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let (sender, receiver) = mpsc::channel();
    /// drop(runtime.spawn_blocking(move || sender.send("the last write")));
    /// assert!(runtime.shutdown_timeout(Duration::from_secs(600)));
    /// assert_eq!(receiver.try_recv(), Ok("the last write"));
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> bool {
        self.shut_down(Wait::Until(clock::instant().checked_add(timeout)))
    }

    /// Waits until all tasks have ended by themselves, and all that was given to
    /// [`spawn_blocking`](crate::task::spawn_blocking), for `timeout` at most; then shuts the runtime
    /// down, which ends the timers that are pending at once, and waits for its workers for what is
    /// left of the time. True if all that came to its end.
    ///
    /// Until then everything runs on, timers and sockets as well, and more may be spawned: it is the
    /// program that tells its tasks to finish. What has not by the end of the time is dropped, as by
    /// [`shutdown_timeout`](Runtime::shutdown_timeout). On a worker, and on a blocking thread of
    /// its own, this waits for nothing and answers false.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Outcome, Runtime, Timer, time::sleep};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// Timer::after(Duration::from_secs(3600))
    ///     .on(runtime.handle())
    ///     .start_with(|how| assert_eq!(how, Outcome::Shutdown));
    /// let reply = runtime.spawn(async { sleep(Duration::from_millis(5)).await });
    /// assert!(runtime.shutdown_graceful(Duration::from_secs(30)));
    /// assert!(reply.is_finished());
    /// ```
    pub fn shutdown_graceful(mut self, timeout: Duration) -> bool {
        if self.may_not_wait() {
            return self.shut_down(Wait::No);
        }
        let deadline = clock::instant().checked_add(timeout);
        let empty = self.handle.shared().tasks.wait_until_empty(deadline);
        self.shut_down(Wait::Until(deadline)) && empty
    }

    /// Tells the runtime to shut down, and waits for nothing. May be called on a worker.
    ///
    /// A job that was given to [`spawn_blocking`](crate::task::spawn_blocking) before runs in the
    /// background, as long as the process lives.
    pub fn shutdown_background(mut self) {
        self.shut_down(Wait::No);
    }

    /// Whether what ends the runtime may not wait: on a worker, and on a blocking thread of its own,
    /// which would wait for itself.
    fn may_not_wait(&self) -> bool {
        let shared = self.handle.shared();
        context::is_worker() || context::is_thread_of(shared) || blocking::is_of(shared)
    }

    /// Shuts the runtime down. Answers whether it has waited, and all threads have ended.
    ///
    /// 1. Workers and blocking threads are told to stop, and woken. No job is accepted any more.
    /// 2. Each worker leaves its loop, closes all shards, and ends what waited there, together with
    ///    the others. The blocking threads run the jobs that were accepted.
    /// 3. The last worker to leave closes the reactors, drops all tasks, and empties the queues.
    /// 4. We wait for the workers, and then for the blocking threads: what these wait for may be a
    ///    task, which has been dropped by now. At the deadline the jobs that have not begun are
    ///    dropped.
    fn shut_down(&mut self, wait: Wait) -> bool {
        self.is_down = true;
        let shared = self.handle.shared();
        shared.stop();
        ending::end_for_those_away(shared);
        let Wait::Until(deadline) = wait else {
            return false;
        };
        if self.may_not_wait() {
            // A worker cannot wait for itself.
            return false;
        }
        let left = deadline.map(|at| at.saturating_duration_since(clock::instant()));
        let workers_ended = shared.wait_for_end(left);
        // Also behind a worker that is stuck: what has not begun at the deadline is dropped here.
        let ended = shared.blocking.wait_for_end(shared, deadline) && workers_ended;
        if ended {
            threads::join(std::mem::take(&mut self.threads));
            shared.helpers.join();
        }
        ended
    }
}

/// For how long the end of a runtime is waited for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Not at all. The blocking jobs that were accepted run in the background.
    No,
    /// Until all has ended, or until this moment. `None` is no bound, as is a moment out of range.
    Until(Option<std::time::Instant>),
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.is_down {
            self.shut_down(Wait::Until(None));
        }
    }
}
