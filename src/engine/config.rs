//! What was said of a runtime when it was built, for as long as it runs.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::store::StoreKind;

use crate::engine::watchdog::stall::StallHook;

/// A function that workers call.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// What workers look up while they run.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) event_interval: u32,
    pub(crate) global_queue_interval: u32,
    pub(crate) max_timers: Option<usize>,
    pub(crate) timer_store: StoreKind,
    pub(crate) rescue_grace: Duration,
    /// In ns.
    pub(crate) spin_before: u64,
    /// In ns.
    pub(crate) timer_advance: u64,
    /// How many helpers there are at least, and at most.
    pub(crate) helpers: (usize, usize),
    pub(crate) pwait2: bool,
    /// The core that each worker is pinned to, if they are.
    pub(crate) pins: Option<Vec<usize>>,
    /// How many cores the workers may use together.
    pub(crate) cores: usize,
    pub(crate) max_blocking_threads: usize,
    pub(crate) thread_keep_alive: Duration,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) on_thread_start: Option<Hook>,
    pub(crate) on_thread_stop: Option<Hook>,
    /// In ns.
    pub(crate) stall_threshold: u64,
    pub(crate) on_stall: Option<StallHook>,
}

impl Config {
    /// Returns whether the peers of each of `workers` workers watch over it. Otherwise they do so
    /// only while it is in `block_in_place`.
    pub(crate) fn is_watched(&self, workers: usize) -> bool {
        self.rescue_grace != Duration::MAX && (workers > 1 || self.helpers.1 > 0)
    }
}
