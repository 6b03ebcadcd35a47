//! Reports of a runtime by a handle.

use crate::{
    engine::{
        handle::Handle,
        telemetry::{polls::PollTimes, snapshot},
        watchdog::stall::RecentStall,
    },
    metrics::{Activity, JobName, RuntimeMetrics},
};

impl Handle {
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
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
    /// let timer = runtime.handle().after(Duration::from_secs(60), || ());
    /// let metrics = runtime.metrics();
    /// assert_eq!(metrics.num_workers(), 2);
    /// assert_eq!(metrics.total().armed(), 1);
    /// # timer.cancel();
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        snapshot::metrics(self.shared())
    }

    /// Returns the current activity of each worker, by worker number, with the job that it runs:
    /// see [`WorkerMetrics::activity`](crate::metrics::WorkerMetrics::activity).
    ///
    /// It takes only a few loads for each worker, so it may be called hundreds of times a second.
    /// The list is empty once the runtime has ended.
    ///
    /// ```
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
    /// assert_eq!(runtime.handle().activities().len(), 2);
    /// ```
    pub fn activities(&self) -> Vec<(Activity, Option<JobName>)> {
        snapshot::activities(self.shared())
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
        snapshot::recent_stalls(self.shared())
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
        PollTimes::new(self.shared().clone())
    }
}
