//! What the server did.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A count that any task adds to.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts of a server.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Connections that were accepted.
    pub(super) connections: Count,
    /// Those that ended by themselves, or because the server closed.
    pub(super) closed: Count,
    /// Those that broke.
    pub(super) failed: Count,
    /// Those that were closed because they were idle.
    pub(super) idle: Count,
    requests: Count,
    abandoned: Count,
}

/// A request without an answer; if it is dropped so, it was abandoned.
pub(super) struct Unanswered<'a>(&'a Stats);

impl Stats {
    pub(super) fn unanswered(&self) -> Unanswered<'_> {
        Unanswered(self)
    }

    /// What was served, in one line. For when all is over: connections that have not ended count as
    /// cut off.
    pub(super) fn summary(&self, time: Duration) -> impl fmt::Display {
        let connections = self.connections.get();
        let (closed, failed, idle) = (self.closed.get(), self.failed.get(), self.idle.get());
        format!(
            "served {} requests on {connections} connections in {:.1} s \
             ({idle} closed idle, {failed} failed, {} cut off; {} requests abandoned)",
            self.requests.get(),
            time.as_secs_f64(),
            connections - closed - failed - idle,
            self.abandoned.get(),
        )
    }
}

impl Unanswered<'_> {
    pub(super) fn answered(self) {
        self.0.requests.add(1);
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.abandoned.add(1);
    }
}
