//! Counts of connections.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The counters. They are consistent with each other only after all connections have ended.
#[derive(Default)]
pub struct Stats {
    pub clients: AtomicU64,
    pub tries: AtomicU64,
    pub connected: AtomicU64,
    pub gave_up: AtomicU64,
    pub closed: AtomicU64,
    pub idle: AtomicU64,
    pub reset: AtomicU64,
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("clients", &self.clients),
            ("tries", &self.tries),
            ("connected", &self.connected),
            ("gave up", &self.gave_up),
            ("closed", &self.closed),
            ("idle", &self.idle),
            ("reset", &self.reset),
            ("bytes up", &self.bytes_up),
            ("bytes down", &self.bytes_down),
        ];
        for (at, (name, count)) in counts.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name}: {}", count.load(Relaxed))?;
        }
        Ok(())
    }
}
