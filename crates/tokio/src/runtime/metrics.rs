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
        self.0.busy(worker)
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
