//! Live metrics of a runtime.

use std::time::Duration;

use tourbillon::facade::LiveMetrics;

/// The metrics of a runtime. Each method returns the present value, as tokio's do.
#[derive(Clone, Debug)]
pub struct RuntimeMetrics(LiveMetrics);

impl RuntimeMetrics {
    pub(super) fn of(handle: &tourbillon::Handle) -> Self {
        Self(LiveMetrics::of(handle.clone()))
    }

    /// Returns a snapshot with all metrics of Tourbillon.
    pub fn snapshot(&self) -> tourbillon::metrics::RuntimeMetrics {
        self.0.handle().metrics()
    }

    /// Returns the number of workers.
    pub fn num_workers(&self) -> usize {
        self.0.workers()
    }

    /// Returns the number of tasks that have not ended. Unlike tokio's, this includes jobs of
    /// `spawn_blocking`.
    pub fn num_alive_tasks(&self) -> usize {
        self.0.alive_tasks()
    }

    /// Returns the number of jobs in the queue that all workers share.
    pub fn global_queue_depth(&self) -> usize {
        self.0.global_queue_depth()
    }

    /// Returns how long a worker was awake, as of its last turn of the loop.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_total_busy_duration(&self, worker: usize) -> Duration {
        self.0.counts(worker).busy()
    }

    /// Returns how often a worker went to sleep.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_park_count(&self, worker: usize) -> u64 {
        self.0.parks(worker)
    }

    /// Returns how often a worker went to sleep and woke up. The number is odd while it sleeps.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_park_unpark_count(&self, worker: usize) -> u64 {
        // The worker may go on between the two readings. It sleeps, or it has woken up since.
        let unparks = self.0.unparks(worker);
        2 * unparks + u64::from(self.0.parks(worker) > unparks)
    }
}

/// What tokio has with `tokio_unstable`.
#[cfg(tokio_unstable)]
impl RuntimeMetrics {
    /// Returns the number of threads for blocking jobs, idle ones included.
    pub fn num_blocking_threads(&self) -> usize {
        self.0.blocking()[0]
    }

    /// Returns the number of idle threads for blocking jobs.
    pub fn num_idle_blocking_threads(&self) -> usize {
        self.0.blocking()[1]
    }

    /// Returns the number of jobs that wait for a blocking thread.
    pub fn blocking_queue_depth(&self) -> usize {
        self.0.blocking()[2]
    }

    /// Returns the number of tasks that were spawned. Unlike tokio's, this includes jobs of
    /// `spawn_blocking`.
    pub fn spawned_tasks_count(&self) -> u64 {
        self.0.spawned_tasks()
    }

    /// Returns the number of jobs in the queue of a worker, timers that are due included.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_local_queue_depth(&self, worker: usize) -> usize {
        self.0.queue_depth(worker)
    }

    /// Returns how often a worker polled a task.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_poll_count(&self, worker: usize) -> u64 {
        self.0.counts(worker).polls()
    }

    /// Returns how many jobs a worker took from the queues of others.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_steal_count(&self, worker: usize) -> u64 {
        self.0.counts(worker).jobs_stolen()
    }

    /// Returns how often a worker took jobs from the queue of another.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_steal_operations(&self, worker: usize) -> u64 {
        self.0.counts(worker).steal_operations()
    }
}
