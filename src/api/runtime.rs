//! The runtime as its owner holds it, and how it is shut down.

use std::{
    future::Future,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

use crate::{
    api::builder::Builder,
    engine::{
        blocking,
        context::{entered, entered::EnterGuard},
        current_thread::Seat,
        handle::Handle,
        local, shutdown, threads,
        worker::tidy,
    },
    error::BuildError,
    sys::{clock, sync::thread},
    task::{join::JoinHandle, local::set::LocalSet},
};

/// A running runtime: its workers, and all tasks, timers and sockets on them.
///
/// Dropping a `Runtime` shuts it down and waits: each worker finishes its current callback or poll,
/// then every task is dropped and every pending timer ends. No thread, descriptor or memory
/// remains, except what handles still refer to: a [`Timer`](crate::Timer), a [`JoinHandle`] or a
/// socket that is kept also keeps the descriptors of its worker.
///
/// On a worker, of this or of another runtime, dropping it does not wait, since that would block
/// the worker. On a blocking thread of the same runtime it does not wait either, since the thread
/// would wait for itself. See [`shutdown_timeout`](Runtime::shutdown_timeout) and
/// [`shutdown_background`](Runtime::shutdown_background) for other ways to shut down.
///
/// # Blocking jobs at shutdown
///
/// A job is accepted if [`spawn_blocking`](crate::task::blocking::spawn_blocking) returns before
/// the shutdown begins. An accepted job runs, even if it has not begun and its handle was dropped:
/// a last write is not lost. How long jobs may take depends on how the runtime is shut down:
///
/// - **Drop**: all jobs run. The drop waits for them, however long they take.
/// - **[`shutdown_timeout`](Runtime::shutdown_timeout)**: jobs have until the timeout. A job that
///   has not begun by then is dropped: its handle returns a "cancelled" error, a [metric] counts
///   it, and `shutdown_timeout` returns `false`. A job that has begun runs on.
/// - **[`shutdown_graceful`](Runtime::shutdown_graceful)**: jobs have until the timeout, too. While
///   the call waits for tasks, the runtime accepts more jobs.
/// - **[`shutdown_background`](Runtime::shutdown_background)**, and any of these on a worker or on
///   a blocking thread of the runtime: all jobs run in the background. No thread waits for them: if
///   the process exits before they end, they are lost.
///
/// Tasks, timers and sockets of the runtime end meanwhile. A job that waits for a task finds it
/// cancelled, a sleep ends at once, and a socket returns an error.
///
/// A job that is spawned after the shutdown has begun, by another job or by a destructor for
/// example, is dropped before it starts, and its handle returns a "cancelled" error.
///
/// [metric]: crate::metrics::RuntimeMetrics::blocking_dropped_count
///
/// ```
/// use std::{sync::mpsc, time::Duration};
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let (sender, receiver) = mpsc::channel();
/// runtime.handle().after(Duration::from_millis(1), move || sender.send("fired").unwrap());
/// assert_eq!(receiver.recv(), Ok("fired"));
/// ```
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    pub(super) threads: Vec<thread::JoinHandle<()>>,
    /// The worker of a current-thread runtime. `None` if workers are threads.
    pub(super) seat: Option<Seat>,
    /// Set when the runtime has been shut down in any way: dropping it then does not wait again.
    is_down: bool,
    /// Keeps the workers in the process-wide list that `tidy` wakes. Dropped last, after the
    /// threads have ended.
    _listed: tidy::Listed,
}

// As for `Handle`. The thread handles are not `UnwindSafe`, but they are only taken, once, at the
// end.
impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl Runtime {
    /// Creates a runtime with the default options: see [`Builder`].
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a thread or a descriptor.
    #[allow(clippy::new_ret_no_self, reason = "it returns `Self` in a Result")]
    pub fn new() -> Result<Self, BuildError> {
        Builder::new().build()
    }

    pub(super) fn from_handle(handle: Handle) -> Self {
        // From here on its workers can be woken to return unused memory.
        let listed = tidy::Listed::new(handle.shared().workers());
        Self {
            handle,
            threads: Vec::new(),
            seat: None,
            is_down: false,
            _listed: listed,
        }
    }

    /// Returns a handle to this runtime, which other threads may clone and use.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Enters the runtime on this thread until the guard is dropped: see [`Handle::enter`].
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Runs a future to completion on the calling thread, in the context of this runtime. Tasks
    /// that it spawns run on the workers, or, in a
    /// [current-thread](Builder::new_current_thread) runtime, on the calling thread.
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
    /// Panics if the calling thread is a worker of any runtime, or if the future panics.
    ///
    /// In a [current-thread](Builder::new_current_thread) runtime, a call from a thread that is in
    /// another `block_on` of the same runtime panics, too.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match &self.seat {
            Some(seat) => {
                entered::assert_may_block();
                seat.block_on(self.handle.shared(), future)
            }
            None => self.handle.block_on(future),
        }
    }

    /// Spawns a task on the runtime: see [`Handle::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Runs `f`, which may block, on a thread for blocking jobs: see
    /// [`task::spawn_blocking`](crate::task::blocking::spawn_blocking).
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.handle.spawn_blocking(f)
    }

    /// Shuts the runtime down, and waits at most `timeout` for its workers and blocking threads.
    /// Returns whether all of them have ended.
    ///
    /// A thread that is blocked in a callback ends when the callback returns. The last worker to
    /// end drops the tasks.
    ///
    /// Jobs that were given to [`spawn_blocking`](crate::task::blocking::spawn_blocking) before may
    /// start until the timeout. Those that have not started by then are
    /// [dropped](Runtime#blocking-jobs-at-shutdown), and this returns `false`.
    ///
    /// On a worker, and on a blocking thread of the runtime, this does not wait and returns
    /// `false`: the runtime ends as after [`shutdown_background`](Runtime::shutdown_background).
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

    /// Waits at most `timeout` until all tasks and blocking jobs have ended by themselves, then
    /// shuts the runtime down.
    ///
    /// The shutdown ends pending timers at once, and waits for the workers for the rest of
    /// `timeout`. Returns `true` if all tasks, jobs and workers ended in time.
    ///
    /// Until the shutdown everything keeps running, also timers and sockets, and more may be
    /// spawned: the program itself must tell its tasks to finish. Tasks that have not ended by the
    /// timeout are dropped, as by [`shutdown_timeout`](Runtime::shutdown_timeout). On a worker, and
    /// on a blocking thread of the runtime, this does not wait and returns `false`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Runtime, Timer, time::sleep, timer::Outcome};
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
        if self.must_not_wait() {
            // This thread may be the one that has to run the tasks. It would wait for itself.
            return self.shut_down(Wait::No);
        }
        let deadline = clock::instant().checked_add(timeout);
        let shared = self.handle.shared();
        // Blocking jobs are tasks, too, so this also waits for them.
        let empty = match &self.seat {
            Some(seat) => seat.run_until_empty(shared, deadline),
            None => shared.tasks.wait_until_empty(deadline),
        };
        self.shut_down(Wait::Until(deadline)) && empty
    }

    /// Begins to shut the runtime down, and returns without waiting. May be called on a worker.
    ///
    /// Jobs that were given to [`spawn_blocking`](crate::task::blocking::spawn_blocking) before run
    /// in the background, as long as the process lives.
    pub fn shutdown_background(mut self) {
        self.shut_down(Wait::No);
    }

    /// Returns whether the calling thread must not wait for the end of the runtime: a worker, whose
    /// jobs would wait, or a thread of this runtime, which would wait for itself.
    fn must_not_wait(&self) -> bool {
        let shared = self.handle.shared();
        entered::is_worker() || local::is_thread_of(shared) || blocking::is_of(shared)
    }

    /// Shuts the runtime down. Returns `true` if it has waited and all threads have ended.
    ///
    /// 1. Tell workers and blocking threads to stop, and wake them. No job is accepted any more.
    /// 2. Each worker leaves its loop and closes all shards. The workers end the timers and jobs
    ///    together. The blocking threads run the jobs that were accepted.
    /// 3. The last worker to leave closes the reactors, drops all tasks, and empties the queues.
    /// 4. Wait for the workers first, and then for the blocking threads: a blocking job may wait
    ///    for a task, which has been dropped by then. At the deadline, drop the jobs that have not
    ///    begun.
    fn shut_down(&mut self, wait: Wait) -> bool {
        self.is_down = true;
        let shared = self.handle.shared();
        // Tell all threads to stop. If all workers are in `block_in_place`, end what they may wait
        // for.
        shared.stop();
        shutdown::end_if_all_in_place(shared);
        if let Some(seat) = &self.seat {
            // No other thread ends its tasks and timers.
            seat.end(shared);
        }
        let Wait::Until(deadline) = wait else {
            return false;
        };
        if self.must_not_wait() {
            // A worker cannot wait for itself. The other threads end without this one.
            return false;
        }
        // Wait for the workers, and then for the blocking threads: see the steps above.
        let left = deadline.map(|at| at.saturating_duration_since(clock::instant()));
        let workers_ended = shared.lifecycle.wait_for_end(left);
        // Do this even if a worker is blocked: it drops the jobs that have not begun at the
        // deadline.
        let ended = shared.blocking.wait_for_end(shared, deadline) && workers_ended;
        if ended {
            threads::join(std::mem::take(&mut self.threads));
            shared.helpers.join();
        }
        ended
    }
}

impl LocalSet {
    /// Runs a future to completion on the calling thread, in the context of the runtime and of the
    /// set, and the set's tasks beside it: [`run_until`](LocalSet::run_until) in
    /// [`Runtime::block_on`].
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let set = tourbillon::task::LocalSet::new();
    /// let task = set.spawn_local(tourbillon::time::sleep(std::time::Duration::from_millis(1)));
    /// set.block_on(&runtime, task).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is a worker of any runtime, or if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> F::Output {
        runtime.block_on(self.run_until(future))
    }
}

/// For how long a shutdown waits.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Not at all. Accepted blocking jobs run in the background.
    No,
    /// Until all threads have ended, or until this moment. `None` means no bound, which also stands
    /// for a moment that is out of range.
    Until(Option<std::time::Instant>),
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.is_down {
            self.shut_down(Wait::Until(None));
        }
    }
}
