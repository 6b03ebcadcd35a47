//! What the page is told of a runtime, as JSON.

use std::{
    process,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Serialize, Serializer};

use crate::metrics::{Counts, RuntimeMetrics, WorkerMetrics};

/// When the inspector began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(Instant);

impl Begun {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }
}

/// The number of the format: it grows when something is renamed or removed, and not when something is added.
const VERSION: u32 = 1;

/// All that the page is told at one time. Counters are of all the time that the runtime has been there.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    version: u32,
    tourbillon: &'static str,
    pid: u32,
    at_ms: f64,
    unix_ms: u64,
    workers: Vec<Worker>,
    helpers: Helpers,
    global_queue_depth: usize,
    blocking: Blocking,
    clients: usize,
}

#[derive(Debug, Serialize)]
struct Worker {
    id: usize,
    counts: Counted,
    stored: usize,
    garbage: usize,
    queue_depth: usize,
    pinned_tasks: usize,
}

#[derive(Debug, Serialize)]
struct Helpers {
    threads: usize,
    idle: usize,
    started: u64,
    counts: Counted,
}

#[derive(Debug, Serialize)]
struct Blocking {
    threads: usize,
    idle: usize,
    queued: usize,
}

/// [`Counts`], by their names.
#[derive(Debug)]
struct Counted(Counts);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

impl Snapshot {
    /// What `metrics` say, to so many clients.
    pub(super) fn new(metrics: &RuntimeMetrics, begun: Begun, clients: usize) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            version: VERSION,
            tourbillon: env!("CARGO_PKG_VERSION"),
            pid: process::id(),
            at_ms: millis(begun.0.elapsed()),
            unix_ms: u64::try_from(unix.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            workers: metrics.workers().iter().enumerate().map(worker).collect(),
            helpers: Helpers {
                threads: metrics.num_helpers(),
                idle: metrics.num_idle_helpers(),
                started: metrics.helpers_started(),
                counts: Counted(metrics.helper_counts().clone()),
            },
            global_queue_depth: metrics.global_queue_depth(),
            blocking: Blocking {
                threads: metrics.num_blocking_threads(),
                idle: metrics.num_idle_blocking_threads(),
                queued: metrics.blocking_queue_depth(),
            },
            clients,
        }
    }

    /// One line.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn worker((id, worker): (usize, &WorkerMetrics)) -> Worker {
    Worker {
        id,
        counts: Counted(worker.counts.clone()),
        stored: worker.stored,
        garbage: worker.garbage,
        queue_depth: worker.queue_depth,
        pinned_tasks: worker.pinned_tasks,
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
