//! Counts of connections and requests.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The end of `serve --help`.
pub(super) const HELP: &str = "\
At its end the server prints a summary. It counts each connection once:
  closed by the client  the client closed or reset it, or asked the server to close it
  closed by the server  the server closed it at its shutdown, after all replies
  closed idle           no request came within --idle
  failed                an I/O error, or bytes that are not HTTP
  cut off               a reply was still pending after --drain
Abandoned requests were dropped without a reply.";

/// A counter that any task can increment.
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

/// The server's counters.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Accepted connections.
    pub(super) connections: Count,
    /// Connections that the client closed.
    pub(super) closed_by_client: Count,
    /// Connections that the server closed at its shutdown.
    pub(super) closed_by_server: Count,
    /// Connections that failed: an I/O error, or bytes that are not HTTP.
    pub(super) failed: Count,
    /// Connections that the server closed because they were idle.
    pub(super) idle: Count,
    requests: Count,
    abandoned: Count,
}

/// A request without an answer. Dropping it counts the request as abandoned.
pub(super) struct Unanswered<'a>(&'a Stats);

impl Stats {
    pub(super) fn unanswered(&self) -> Unanswered<'_> {
        Unanswered(self)
    }

    /// Returns a summary in one line. Connections that have not ended count as cut off, so call it
    /// after the shutdown.
    pub(super) fn summary(&self, time: Duration) -> impl fmt::Display {
        let connections = self.connections.get();
        let (client, server) = (self.closed_by_client.get(), self.closed_by_server.get());
        let (idle, failed) = (self.idle.get(), self.failed.get());
        format!(
            "served {} requests on {connections} connections in {:.1} s \
             ({client} closed by the client, {server} closed by the server, {idle} closed idle, \
             {failed} failed, {} cut off; {} requests abandoned)",
            self.requests.get(),
            time.as_secs_f64(),
            connections - client - server - idle - failed,
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
