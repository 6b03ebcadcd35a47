//! The threads for blocking jobs, and the queue of `spawn_blocking`.
//!
//! A job is a task that is polled once, on one of these threads. Jobs wait in one queue, first in,
//! first out. The thread that queues a job claims an idle thread, or starts one if there are fewer
//! than the bound. Otherwise the job waits until a busy thread takes it. A thread that was idle for
//! the keep-alive ends. A job of a group with a bound of its own may wait before it is queued: see
//! `bounds.rs`.
//!
//! A job that is dropped before it starts is dropped by a worker, as tasks are: it is marked as
//! aborted, and queued there. When the workers have ended, the thread that marks it drops it.
//!
//! **Shutdown.** [`Blocking::stop`] closes the queue under its mutex. A job that was queued before
//! is accepted, and runs; a later job is refused. No thread ends while a job is queued: each queued
//! job has a thread that is starting, claimed or busy, and a busy thread takes the next job before
//! it checks whether to end. A job that waits for others of its group takes the place of one of
//! these, and has its thread. So the threads empty the queue and then end, whether or not another
//! thread waits for them. A shutdown with a deadline drops the jobs that have not begun by then,
//! and counts them.
//!
//! **A paused clock.** A thread keeps the runtime busy from when it is claimed or started until it
//! is idle. While it is in a `block_on` of the same runtime it does not: `block_on` counts
//! separately, see `paused/quiescence.rs`. A queued job that no thread was claimed for waits for a
//! thread that is busy or in `block_on`. Such a job must not count as busy, since that thread may
//! wait for the clock.

use crate::engine::{
    blocking::pool::{Blocking, Running, State},
    context::entered,
};
mod bounds;
pub(crate) mod pool;

use std::{
    cell::Cell,
    io, ptr,
    sync::{Arc, PoisonError},
    time::Instant,
};

use tourbillon_shards::TypeName;

use crate::{
    engine::{
        config::Hook,
        groups::GroupId,
        job::{Job, TaskJob},
        shared::Shared,
        task_core::local_queue::Grouped,
        threads,
    },
    metrics::activity::JobRef,
    sys,
    sys::sync::{
        MutexGuard,
        atomic::{Ordering, fence},
        thread,
    },
    util::{contained::contained, lock::lock},
};

thread_local! {
    /// The runtime whose blocking thread this is, or null. It is set to the very end of the thread,
    /// since dropping the thread's data may drop a runtime. Compared, and never followed.
    static POOL: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The runtime whose job keeps this thread busy outside of `block_on`, or null.
    static BUSY: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

impl Blocking<TaskJob> {
    /// Queues a job, and returns its number. Returns `None` if the job was refused and ended.
    pub(crate) fn push(&self, shared: &Arc<Shared>, job: TaskJob) -> Option<u64> {
        let mut state = lock(&self.state);
        // Refuse jobs after the shutdown has begun. End them after unlocking, since destructors are
        // user code.
        if state.stopping {
            drop(state);
            end_unrun(shared, [job], abort);
            return None;
        }
        // The number is the order in the queue, and finds the job if it is aborted.
        let number = state.next;
        state.next += 1;
        let job = match bound_of(shared, &job) {
            None => job,
            Some((group, most)) => match state.bounded.admit(group, most, number, job) {
                Some(job) => job,
                None => return Some(number),
            },
        };
        state.queue.insert(number, job);
        // Claim an idle thread, or start one. Count it as busy before the lock is released, so that
        // a paused clock does not advance before the job runs.
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
                    // No thread exists, so no job could ever run: refuse them all.
                    state.take_all()
                } else {
                    Vec::new()
                };
                drop(state);
                let is_refused = !refused.is_empty();
                end_unrun(shared, refused, |job| {
                    job.metadata().refuse(&error);
                    job.cancel();
                });
                self.count_out(shared);
                return (!is_refused).then_some(number);
            }
        }
        Some(number)
    }

    /// Starts a thread for blocking jobs.
    fn start(
        &self,
        shared: &Arc<Shared>,
        state: &mut MutexGuard<'_, State<TaskJob>>,
    ) -> Result<(), io::Error> {
        let main = {
            let shared = shared.clone();
            move |number| main(shared, number)
        };
        // Keep the lock: the thread needs it before it takes a job, and finds this job in the
        // queue.
        state.handles.start(&shared.config, "blocking", main)?;
        state.threads += 1;
        Ok(())
    }

    /// Takes a job out of the queue and ends it, if it has not begun.
    pub(crate) fn abort(&self, shared: &Shared, number: u64) {
        let mut state = lock(&self.state);
        let queued = state.queue.remove(&number);
        if let Some((group, _)) = queued.as_ref().and_then(|job| bound_of(shared, job)) {
            // The job that takes its place has the thread that would have taken this one.
            state.over(group);
        }
        let job = queued.or_else(|| state.bounded.remove(number));
        drop(state);
        end_unrun(shared, job, abort);
    }

    /// Counts the calling thread, or one that could not be started, as no longer busy.
    fn count_out(&self, shared: &Shared) {
        self.busy.fetch_sub(1, Ordering::Release);
        // A thread that pauses the clock later sees this thread idle. If it paused the clock
        // earlier, this thread sees that here, and judges quiescence.
        fence(Ordering::SeqCst);
        if shared.clock.was_paused() {
            shared.quiescence.recheck(shared);
        }
    }

    /// Waits until all threads have ended, and joins them. Call it after [`stop`](Self::stop).
    ///
    /// Returns `true` if all have ended. At `deadline`, if there is one, drops the jobs that have
    /// not begun and returns `false`.
    pub(crate) fn wait_for_end(&self, shared: &Shared, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        while state.threads + state.leaving > 0 {
            // Without a deadline all jobs that were accepted run.
            let Some(deadline) = deadline else {
                let waited = self.ended.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(sys::clock::instant());
            if left.is_zero() {
                // Jobs that have begun run on. The others are dropped, and counted.
                let late = state.take_all();
                state.dropped += late.len() as u64;
                drop(state);
                end_unrun(shared, late, abort);
                return false;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // All threads have ended: join them, which takes only a moment.
        let left = state.handles.take();
        drop(state);
        threads::join(left);
        true
    }

    /// Waits for a job. Returns `false` if the thread must end.
    fn wait<'a>(
        &'a self,
        shared: &Shared,
        mut state: MutexGuard<'a, State<TaskJob>>,
    ) -> (MutexGuard<'a, State<TaskJob>>, bool) {
        let until = sys::clock::instant().checked_add(shared.config.thread_keep_alive);
        state.idle += 1;
        // Unlock first: judging quiescence may wake other threads. A thread that claims this one
        // counts it as busy again.
        drop(state);
        self.count_out(shared);
        state = lock(&self.state);
        loop {
            if state.claimed > 0 {
                // The claiming thread has subtracted it from `idle`.
                state.claimed -= 1;
                return (state, true);
            }
            let left = until.map(|at| at.saturating_duration_since(sys::clock::instant()));
            // End at the shutdown or after the keep-alive. Each queued job has claimed a thread,
            // and this one was not claimed.
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

    /// Runs jobs until there is none for the keep-alive, or there is none and the runtime stops.
    /// When it returns, the thread is no longer counted. Returns a thread to join.
    fn run(&self, shared: &Shared, number: u64) -> Option<thread::JoinHandle<()>> {
        let thread = sys::thread_id() as u32;
        let mut state = lock(&self.state);
        loop {
            // Run queued jobs even if the runtime stops: they were accepted.
            while let Some((job_number, job)) = state.queue.pop_first() {
                let name = TypeName::from_fn(job.name());
                let bound = bound_of(shared, &job);
                state.running.push(Running {
                    number: job_number,
                    thread,
                    job: JobRef::new(name, Some(job.metadata().spawned())),
                    since: sys::clock::instant(),
                });
                drop(state);
                // The job contains its own panics, and those of wakers.
                busy(shared, || _ = contained(|| job.run()));
                state = lock(&self.state);
                let mut running = state.running.iter();
                if let Some(place) = running.position(|it| it.number == job_number) {
                    state.running.swap_remove(place);
                }
                if let Some((group, _)) = bound {
                    state.over(group);
                }
            }
            let (woken, more) = self.wait(shared, state);
            state = woken;
            if !more {
                break;
            }
        }
        // Count the thread out, so that a later job starts another one, and call the hook.
        state.threads -= 1;
        state.leaving += 1;
        drop(state);
        call_hook(shared, shared.config.on_thread_stop.as_ref());
        state = lock(&self.state);
        // Leave its handle to the next thread that ends, or to the shutdown.
        state.leaving -= 1;
        if state.stopping {
            self.ended.notify_all();
            return None;
        }
        state.handles.leave(number)
    }
}

/// Returns the group of a job, and how many threads its jobs may hold. `None` without a bound.
fn bound_of(shared: &Shared, job: &TaskJob) -> Option<(GroupId, usize)> {
    let most = match job.group() {
        GroupId::DEFAULT => shared.config.default_group.max_blocking_threads,
        group => shared.task_groups.table()?.get(group).max_blocking_threads,
    };
    most.map(|most| (job.group(), most))
}

/// Ends jobs without running them: marks them, and queues them for the workers, which drop them.
fn end_unrun(shared: &Shared, jobs: impl IntoIterator<Item = TaskJob>, mark: impl Fn(&TaskJob)) {
    for job in jobs {
        mark(&job);
        shared.inject(Job::Task(job));
    }
}

/// Marks a job as aborted.
fn abort(job: &TaskJob) {
    job.cancel();
}

/// Runs `f`, a job of this runtime, and marks the thread as busy meanwhile.
fn busy(shared: &Shared, f: impl FnOnce()) {
    BUSY.set(shared);
    f();
    BUSY.set(ptr::null());
}

/// Calls a hook of the start or the end of a thread. It is user code: its panic is counted.
fn call_hook(shared: &Shared, hook: Option<&Hook>) {
    let Some(hook) = hook else { return };
    match shared.workers.load().first() {
        Some(worker) => worker.owner().contain(|| hook()),
        // The runtime has ended, and its counters with it.
        None => _ = contained(|| hook()),
    }
}

/// The main function of a thread for blocking jobs.
fn main(shared: Arc<Shared>, number: u64) {
    shared.mask.take();
    POOL.set(&*shared);
    let ended = {
        let _entered = entered::enter(&shared);
        call_hook(&shared, shared.config.on_thread_start.as_ref());
        shared.blocking.run(&shared, number)
    };
    threads::join(ended);
}

/// Returns whether the calling thread is a blocking thread of this runtime.
pub(crate) fn is_of(shared: &Shared) -> bool {
    POOL.try_with(|pool| ptr::eq(pool.get(), shared))
        .unwrap_or(false)
}

/// A `block_on` during which this thread does not count as busy. Holds whether the thread was busy.
#[derive(Debug)]
pub(crate) struct Waiting(bool);

impl Waiting {
    /// Begins a `block_on` of this runtime. A blocking thread of the runtime that is in no other
    /// `block_on` does not count as busy until [`end`](Waiting::end).
    ///
    /// The caller holds the mutex of quiescence, under which it also lists the `block_on`.
    pub(crate) fn begin(shared: &Shared) -> Self {
        let is_busy = BUSY
            .try_with(|busy| ptr::eq(busy.get(), shared))
            .unwrap_or(false);
        // From here on `block_on` counts for this thread: a paused clock may advance while the job
        // waits.
        if is_busy {
            BUSY.set(ptr::null());
            shared.blocking.busy.fetch_sub(1, Ordering::Release);
        }
        Self(is_busy)
    }

    /// Ends the `block_on`. The caller holds the mutex of quiescence.
    pub(crate) fn end(&self, shared: &Shared) {
        if self.0 {
            BUSY.set(shared);
            shared.blocking.busy.fetch_add(1, Ordering::Relaxed);
        }
    }
}
