//! What the package in the folder `crates/tokio` needs besides the public API.

use std::time::Duration;

use crate::{
    api::builder::Builder,
    engine::{
        config::{Drivers, TaskHooks},
        context::entered,
        handle::Handle,
    },
    metrics::recorder::Recorder,
};

impl Drivers {
    /// Returns those of the runtime that the calling thread is in. `None` outside of any.
    pub fn here() -> Option<Self> {
        entered::with_current(|shared| shared.config.drivers)
    }

    /// Sets those of the runtimes that `builder` builds.
    pub fn set(self, builder: &mut Builder) {
        builder.config.drivers = self;
    }
}

impl TaskHooks {
    /// Sets those of the runtimes that `builder` builds.
    pub fn set(self, builder: &mut Builder) {
        builder.config.task_hooks = self;
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

    /// Returns how long a worker was awake.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    #[track_caller]
    pub fn busy(&self, worker: usize) -> Duration {
        self.recorder(worker).counts().busy()
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
