//! What the package in the folder `crates/tokio` needs besides the public API.

#[cfg(tokio_unstable)]
use std::{ops::Range, thread::ThreadId, time::Duration};

use crate::{
    api::builder::Builder,
    engine::{
        facade::{Options, home_of_local},
        handle::Handle,
    },
    metrics::{counters::Counts, recorder::Recorder, spawned::Spawned},
    task::{join::JoinHandle, local::spawn_here},
};
#[cfg(tokio_unstable)]
use crate::{
    engine::facade::Measures,
    metrics::{
        counters::Counter,
        unstable::{Buckets, range},
    },
};

impl Options {
    /// Sets those of the runtimes that `builder` builds.
    pub fn set(self, builder: &mut Builder) {
        builder.config.facade = self;
    }
}

/// Spawns a task that is not `Send` on a runtime that was built as
/// [local](Options::is_local). A builder of tasks gives it its name.
///
/// # Panics
///
/// Panics if the runtime was not built so, or on another thread than the one that has built it.
#[track_caller]
pub fn spawn_local_on<F>(handle: &Handle, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: 'static> + 'static,
{
    match home_of_local(handle.shared()) {
        Some(home) => spawn_here(home, future, Spawned::here()),
        // The runtime has ended, or is no local one.
        None => panic!("this is no thread of a local runtime"),
    }
}

/// Metrics that are read when they are asked for, also when the runtime has ended. tokio's are live
/// like this.
#[derive(Clone, Debug)]
pub struct LiveMetrics(Handle);

impl LiveMetrics {
    /// Returns the metrics of a runtime.
    pub fn of(handle: Handle) -> Self {
        Self(handle)
    }

    /// Returns the runtime's handle, for its other metrics.
    pub fn handle(&self) -> &Handle {
        &self.0
    }

    /// Returns the number of workers that the runtime was built with.
    pub fn workers(&self) -> usize {
        self.0.shared().recorders.len()
    }

    /// Returns the number of tasks that have not ended.
    pub fn alive_tasks(&self) -> usize {
        self.0.shared().tasks.counts().0
    }

    /// Returns the number of jobs in the queue that all workers share.
    pub fn global_queue_depth(&self) -> usize {
        self.0.shared().queues.len()
    }

    /// Returns the number of tasks that were spawned.
    pub fn spawned_tasks(&self) -> u64 {
        self.0.shared().tasks.counts().1
    }

    /// Returns how many blocking threads there are, how many of them are idle, and how many jobs
    /// wait for one.
    pub fn blocking(&self) -> [usize; 3] {
        let blocking = self.0.shared().blocking.metrics();
        [blocking.threads, blocking.idle, blocking.queued]
    }

    /// Returns the number of jobs in the queue of a worker.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn queue_depth(&self, worker: usize) -> usize {
        assert!(worker < self.workers(), "there is no worker {worker}");
        // There are none when the runtime has ended.
        let workers = self.0.shared().workers.load();
        let worker = workers.get(worker);
        worker.map_or(0, |worker| worker.owner().stealer.len())
    }

    /// Returns what a worker has counted.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn counts(&self, worker: usize) -> Counts {
        self.recorder(worker).counts()
    }

    /// Returns how often a worker began to sleep.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn parks(&self, worker: usize) -> u64 {
        self.recorder(worker).own.parks.get()
    }

    /// Returns how often a worker woke up.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn unparks(&self, worker: usize) -> u64 {
        self.recorder(worker).unparks.get()
    }

    #[track_caller]
    fn recorder(&self, worker: usize) -> &Recorder {
        &self.0.shared().recorders[worker]
    }
}

/// What tokio counts with `tokio_unstable`.
#[cfg(tokio_unstable)]
impl LiveMetrics {
    /// Returns how many tasks were queued by threads that are no workers.
    pub fn remote_schedules(&self) -> u64 {
        self.0.shared().unstable.remote_schedules.get()
    }

    /// Returns how many polls used up their budgets.
    pub fn forced_yields(&self) -> u64 {
        self.0.shared().unstable.forced_yields.get()
    }

    /// Returns how many descriptors were registered and deregistered, and how many events they had.
    pub fn descriptors(&self) -> [u64; 3] {
        let counts = &self.0.shared().unstable;
        [&counts.registered, &counts.deregistered, &counts.ready].map(Counter::get)
    }

    /// Returns the thread of a worker, once it has begun.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn thread(&self, worker: usize) -> Option<ThreadId> {
        self.recorder(worker).unstable.thread()
    }

    /// Returns how many tasks a worker has queued.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn schedules(&self, worker: usize) -> u64 {
        self.recorder(worker).unstable.schedules.get()
    }

    /// Returns how often a worker slept twice without a job in between.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn noops(&self, worker: usize) -> u64 {
        self.recorder(worker).unstable.noops.get()
    }

    /// Returns the moving average of how long a job takes. It is zero on a current-thread runtime,
    /// as in tokio.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn mean_poll(&self, worker: usize) -> Duration {
        Duration::from_nanos(self.recorder(worker).unstable.mean_poll.get())
    }

    /// Returns the histograms that the workers have.
    pub fn measures(&self) -> &Measures {
        &self.0.shared().config.facade.measures
    }

    /// Returns a count of the durations of polls, or zero if these are not counted.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker or bucket.
    #[track_caller]
    pub fn poll_times(&self, worker: usize, bucket: usize) -> u64 {
        let histogram = &self.recorder(worker).unstable.poll_times;
        histogram.as_ref().map_or(0, |it| it.count(bucket))
    }

    /// Returns a count of the times for which tasks were queued, or zero if these are not counted.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker or bucket.
    #[track_caller]
    pub fn latencies(&self, worker: usize, bucket: usize) -> u64 {
        let histogram = &self.recorder(worker).unstable.latencies;
        histogram.as_ref().map_or(0, |it| it.count(bucket))
    }
}

/// Returns the durations of a bucket. They are none if there is no histogram.
///
/// # Panics
///
/// Panics if there is no such bucket.
#[cfg(tokio_unstable)]
#[track_caller]
pub fn bucket_range(buckets: &Buckets, bucket: usize) -> Range<Duration> {
    range(buckets, bucket)
}
