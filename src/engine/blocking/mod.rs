//! The threads that may block: what `spawn_blocking` gives them to do, and how many there are.
//!
//! A job is a task that is polled once, on one of these threads. It waits in one queue, first come
//! first served. Who queues one claims an idle thread, or starts another while there are fewer than the
//! bound; otherwise the job waits for a thread to be through with its own. A thread that was idle for
//! the keep-alive ends.
//!
//! A job that is dropped unrun is dropped by a worker, as tasks are: it is marked as aborted and
//! queued there. When the workers have ended, the thread that marks it drops it.
//!
//! **The shutdown.** [`Blocking::stop`] closes the queue under its mutex. A job that was queued
//! before that is accepted, and runs; a later one is refused. No thread ends while a job is queued:
//! each queued job has a thread that is starting, claimed, or busy, and a busy thread takes the
//! next job before it looks whether to end. So the threads empty the queue, and then end, whether
//! anybody waits for them or not. A shutdown that waits until a deadline drops what has not begun
//! by then, and counts it.
//!
//! On a clock that is paused a thread keeps the runtime busy from when it is claimed or started until
//! it is idle, but for the time that it spends in a `block_on` of the same runtime, which counts by
//! itself: see `quiescence`. A job that no thread was claimed for waits for one that is busy, or in
//! `block_on`: it need not be counted, and must not be, since that one may wait for the clock.

use crate::engine::{
    blocking::pool::{Blocking, State},
    context::entered,
};
pub(crate) mod pool;

use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Arc, PoisonError},
    time::Instant,
};

use crate::{
    engine::{
        job::{Job, TaskJob},
        shared::Shared,
        threads,
    },
    sys,
    sys::sync::{
        MutexGuard,
        atomic::{Ordering, fence},
        thread,
    },
    util::lock::lock,
};

thread_local! {
    /// The runtime among whose blocking threads this one is, to its very end: what is dropped with the
    /// thread may be a runtime. Only ever compared.
    static POOL: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The same while a job keeps it busy, outside of `block_on`.
    static BUSY: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

impl Blocking<TaskJob> {
    /// Queues a job; answers its number, unless it was refused, and has been ended.
    pub(crate) fn push(&self, shared: &Arc<Shared>, job: TaskJob) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.stopping {
            drop(state);
            end(shared, [job], abort);
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.queue.insert(number, job);
        if state.idle > 0 {
            state.idle -= 1;
            state.claimed += 1;
            self.busy.fetch_add(1, Ordering::Relaxed);
            drop(state);
            self.work.notify_one();
        } else if state.threads < shared.config.max_blocking_threads {
            self.busy.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.start(shared, &mut state) {
                let refused = if state.threads == 0 {
                    // Nobody would ever run it, nor any other.
                    std::mem::take(&mut state.queue)
                } else {
                    BTreeMap::new()
                };
                drop(state);
                let is_refused = !refused.is_empty();
                end(shared, refused.into_values(), |job| {
                    job.metadata().refuse(&error);
                    job.cancel();
                });
                self.through(shared);
                return (!is_refused).then_some(number);
            }
        }
        Some(number)
    }

    /// Starts a thread.
    fn start(
        &self,
        shared: &Arc<Shared>,
        state: &mut MutexGuard<'_, State<TaskJob>>,
    ) -> Result<(), io::Error> {
        let main = {
            let shared = shared.clone();
            move |number| main(shared, number)
        };
        // With the lock held: the thread finds what was queued for it.
        state.handles.start(&shared.config, "blocking", main)?;
        state.threads += 1;
        Ok(())
    }

    /// Takes a job out of the queue, if it is there, and ends it.
    pub(crate) fn abort(&self, shared: &Shared, number: u64) {
        let job = lock(&self.state).queue.remove(&number);
        end(shared, job, abort);
    }

    /// A thread is no longer busy.
    fn through(&self, shared: &Shared) {
        self.busy.fetch_sub(1, Ordering::Release);
        // Whoever pauses the clock after this sees that we are through; if before, we see that it is.
        fence(Ordering::SeqCst);
        if shared.clock.was_paused() {
            shared.quiescence.look(shared);
        }
    }

    /// After [`stop`](Self::stop): waits until all threads have ended, and joins them; true if they
    /// have. At the deadline, if there is one, drops the jobs that have not begun, and waits no
    /// longer.
    pub(crate) fn wait_for_end(&self, shared: &Shared, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        while state.threads > 0 {
            let Some(deadline) = deadline else {
                let waited = self.ended.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(sys::clock::instant());
            if left.is_zero() {
                let late = std::mem::take(&mut state.queue);
                state.dropped += late.len() as u64;
                drop(state);
                end(shared, late.into_values(), abort);
                return false;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let left = state.handles.take();
        drop(state);
        threads::join(left);
        true
    }

    /// Waits for a job; false if the thread is to end.
    fn wait<'a>(
        &'a self,
        shared: &Shared,
        mut state: MutexGuard<'a, State<TaskJob>>,
    ) -> (MutexGuard<'a, State<TaskJob>>, bool) {
        let until = sys::clock::instant().checked_add(shared.config.thread_keep_alive);
        state.idle += 1;
        // Under no lock: this may wake others. Who claims the thread counts it as busy again.
        drop(state);
        self.through(shared);
        state = lock(&self.state);
        loop {
            if state.claimed > 0 {
                // Who claimed a thread has counted it out.
                state.claimed -= 1;
                return (state, true);
            }
            let left = until.map(|at| at.saturating_duration_since(sys::clock::instant()));
            if state.stopping || left.is_some_and(|left| left.is_zero()) {
                state.idle -= 1;
                return (state, false);
            }
            state = match left {
                None => self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.work.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Runs jobs until there is none for the length of the keep-alive, or there is none and the
    /// runtime stops. The thread is counted out by then.
    fn run(&self, shared: &Shared, number: u64) -> Option<thread::JoinHandle<()>> {
        let mut state = lock(&self.state);
        loop {
            // Whether the runtime stops or not: what is queued was accepted.
            while let Some((_, job)) = state.queue.pop_first() {
                drop(state);
                busy(shared, || {
                    // The job's own panics are caught in it: this is of who waits for it.
                    let _ = catch_unwind(AssertUnwindSafe(|| job.run()));
                });
                state = lock(&self.state);
            }
            let (woken, more) = self.wait(shared, state);
            state = woken;
            if !more {
                break;
            }
        }
        state.threads -= 1;
        if state.stopping {
            self.ended.notify_all();
            return None;
        }
        state.handles.leave(number)
    }
}

/// Ends jobs without running them: marks them, and lets workers drop them.
fn end(shared: &Shared, jobs: impl IntoIterator<Item = TaskJob>, mark: impl Fn(&TaskJob)) {
    for job in jobs {
        mark(&job);
        shared.inject(Job::Task(job));
    }
}

/// Marks a job as aborted.
fn abort(job: &TaskJob) {
    job.cancel();
}

/// Runs `f`, a job of this runtime's.
fn busy(shared: &Shared, f: impl FnOnce()) {
    BUSY.set(shared);
    f();
    BUSY.set(ptr::null());
}

/// The main function of a thread.
fn main(shared: Arc<Shared>, number: u64) {
    // Who started it may be a worker, whose core and timer slack it has inherited.
    sys::cpu::unpin();
    sys::thread::wake_by_default();
    POOL.set(&*shared);
    let ended = {
        let _entered = entered::enter(&shared);
        shared.blocking.run(&shared, number)
    };
    threads::join(ended);
}

/// Whether the calling thread is one of this runtime's blocking threads.
pub(crate) fn is_of(shared: &Shared) -> bool {
    POOL.try_with(|pool| ptr::eq(pool.get(), shared))
        .unwrap_or(false)
}

/// Keeps this thread from counting as busy: it is in `block_on`.
#[derive(Debug)]
pub(crate) struct Waiting(bool);

impl Waiting {
    /// The thread enters a `block_on` of this runtime. If it is one of its blocking threads, and in no
    /// other `block_on`, it does not count until [`end`](Waiting::end). With the mutex of quiescence
    /// held, under which it is put on the list of those that are in `block_on`.
    pub(crate) fn begin(shared: &Shared) -> Self {
        let is_busy = BUSY
            .try_with(|busy| ptr::eq(busy.get(), shared))
            .unwrap_or(false);
        if is_busy {
            BUSY.set(ptr::null());
            shared.blocking.busy.fetch_sub(1, Ordering::Release);
        }
        Self(is_busy)
    }

    /// It leaves it, with the same mutex held.
    pub(crate) fn end(&self, shared: &Shared) {
        if self.0 {
            BUSY.set(shared);
            shared.blocking.busy.fetch_add(1, Ordering::Relaxed);
        }
    }
}
