//! Live metrics of a runtime.

use std::time::Duration;
#[cfg(tokio_unstable)]
use std::{ops::Range, thread::ThreadId};

use tourbillon::facade::LiveMetrics;
#[cfg(tokio_unstable)]
use tourbillon::facade::bucket_range;

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

    /// Returns the number of tasks that have not ended.
    #[deprecated(note = "renamed to num_alive_tasks")]
    pub fn active_tasks_count(&self) -> usize {
        self.num_alive_tasks()
    }

    /// Returns the number of jobs in the queue that all workers share.
    #[doc(hidden)]
    #[deprecated(note = "renamed to global_queue_depth")]
    pub fn injection_queue_depth(&self) -> usize {
        self.global_queue_depth()
    }

    /// Returns how many tasks were queued by threads that are no workers.
    pub fn remote_schedule_count(&self) -> u64 {
        self.0.remote_schedules()
    }

    /// Returns how many polls used up their budget of sockets, timers and tasks. Unlike in tokio,
    /// the budget of channels does not count.
    pub fn budget_forced_yield_count(&self) -> u64 {
        self.0.forced_yields()
    }

    /// Returns how many descriptors were registered.
    pub fn io_driver_fd_registered_count(&self) -> u64 {
        self.0.descriptors()[0]
    }

    /// Returns how many descriptors were deregistered.
    pub fn io_driver_fd_deregistered_count(&self) -> u64 {
        self.0.descriptors()[1]
    }

    /// Returns how many events of descriptors there were.
    pub fn io_driver_ready_count(&self) -> u64 {
        self.0.descriptors()[2]
    }

    /// Returns the thread of a worker, once it has begun. A worker keeps its thread, also in
    /// `block_in_place`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_thread_id(&self, worker: usize) -> Option<ThreadId> {
        self.0.thread(worker)
    }

    /// Returns how often a worker slept twice without a job in between.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_noop_count(&self, worker: usize) -> u64 {
        self.0.noops(worker)
    }

    /// Returns how many tasks a worker has put into its own queue.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_local_schedule_count(&self, worker: usize) -> u64 {
        self.0.schedules(worker)
    }

    /// Returns zero: the queue of a worker has no bound, so none overflows.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_overflow_count(&self, worker: usize) -> u64 {
        assert!(worker < self.num_workers(), "there is no worker {worker}");
        0
    }

    /// Returns a moving average of how long a worker's jobs take. It is zero on a current-thread
    /// runtime, as in tokio.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn worker_mean_poll_time(&self, worker: usize) -> Duration {
        self.0.mean_poll(worker)
    }
}

/// Defines the methods of a histogram.
#[cfg(tokio_unstable)]
macro_rules! histogram {
    (
        $(#[$attribute:meta])*
        $of:literal, $buckets:ident, $count:ident:
        $enabled:ident, $num:ident, $range:ident, $counted:ident
    ) => {
        $(#[$attribute])*
        impl RuntimeMetrics {
            #[doc = concat!("Returns whether there is a histogram of ", $of, ".")]
            pub fn $enabled(&self) -> bool {
                self.0.measures().$buckets.is_some()
            }

            #[doc = concat!("Returns the number of buckets for ", $of, ".")]
            pub fn $num(&self) -> usize {
                let buckets = &self.0.measures().$buckets;
                buckets.as_ref().map_or(0, |buckets| buckets.len())
            }

            /// Returns the durations that are counted in a bucket.
            ///
            /// # Panics
            ///
            /// Panics if there is no such bucket.
            #[track_caller]
            pub fn $range(&self, bucket: usize) -> Range<Duration> {
                bucket_range(&self.0.measures().$buckets, bucket)
            }

            #[doc = concat!("Returns the count of a bucket for ", $of, ".")]
            ///
            /// # Panics
            ///
            /// Panics if there is no such worker or bucket.
            #[track_caller]
            pub fn $counted(&self, worker: usize, bucket: usize) -> u64 {
                self.0.$count(worker, bucket)
            }
        }
    };
}

#[cfg(tokio_unstable)]
histogram! {
    "how long polls take", poll_times, poll_times:
    poll_time_histogram_enabled, poll_time_histogram_num_buckets,
    poll_time_histogram_bucket_range, poll_time_histogram_bucket_count
}

#[cfg(tokio_unstable)]
histogram! {
    #[cfg(feature = "schedule-latency")]
    "how long tasks are queued", latencies, latencies:
    schedule_latency_histogram_enabled, schedule_latency_histogram_num_buckets,
    schedule_latency_histogram_bucket_range, schedule_latency_histogram_bucket_count
}
