//! Counts of connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters. They are consistent with each other only after all connections have ended.
#[derive(Default)]
pub struct Stats {
    pub lines: AtomicU64,
    pub heartbeats: AtomicU64,
    pub closed: AtomicU64,
    pub idle: AtomicU64,
    pub too_long: AtomicU64,
    pub failed: AtomicU64,
}

impl Stats {
    /// Returns the counts as one line. `left` is the number of connections open at the end.
    pub fn summary(&self, left: usize) -> String {
        let [lines, heartbeats, closed, idle, too_long, failed] = [
            &self.lines,
            &self.heartbeats,
            &self.closed,
            &self.idle,
            &self.too_long,
            &self.failed,
        ]
        .map(|count| count.load(Relaxed));
        format!(
            "{lines} lines, {heartbeats} heartbeats; connections: {closed} closed by their peers, \
             {idle} idle, {too_long} with too long a line, {failed} failed, {left} open at the end"
        )
    }
}
