//! An owner that records what its alarm is set to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::common::units::MS;
use tourbillon_shards::{NEVER, Owner, Shard, Timer};

pub const LATENCY: u64 = MS;
/// How far ahead an alarm is set. This and the next two constants follow from the latency, as in
/// `tourbillon_sched::Alarm`.
pub const AHEAD: u64 = 750_000;
/// The distance below which a heartbeat pushes the alarm off.
pub const MARGIN: u64 = 250_000;
/// How near a peer that watches a stuck owner sets the alarm.
pub const SOON: u64 = 200_000;

pub struct Watched {
    local: AtomicBool,
    settings: Mutex<Vec<u64>>,
}

impl Watched {
    pub fn new() -> Self {
        Self {
            local: AtomicBool::new(true),
            settings: Mutex::default(),
        }
    }

    pub fn shard() -> Arc<Shard<Self>> {
        Self::with_latency(LATENCY)
    }

    pub fn with_latency(latency: u64) -> Arc<Shard<Self>> {
        Arc::new(Shard::watched(Self::new(), latency))
    }

    /// Returns what the alarm was set to since the last call.
    pub fn settings(&self) -> Vec<u64> {
        std::mem::take(&mut *self.settings.lock().unwrap())
    }

    pub fn set_local(&self, local: bool) {
        self.local.store(local, Ordering::Relaxed);
    }
}

impl Owner for Watched {
    fn wake(&self) {}

    fn is_current(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    fn alarm(&self, at: u64) {
        self.settings.lock().unwrap().push(moment(at));
    }
}

/// Removes the lowest bit, which says whether the alarm stands.
pub fn moment(at: u64) -> u64 {
    if at == NEVER { at } else { at & !1 }
}

pub fn arm(shard: &Arc<Shard<Watched>>, deadline: u64) -> Timer<Watched> {
    Timer::once(shard, deadline, 0, || ())
}
