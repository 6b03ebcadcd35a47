//! The options of a runtime, as its threads read them while it runs.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::{Tolerance, store};

#[cfg(feature = "facade")]
use crate::engine::facade::Options;
use crate::engine::{groups, recorder::Recording, watchdog::stall::StallHook};

/// A user's function that worker threads call.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The options that threads read while the runtime runs. See `Builder` for their meaning.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) flavor: RuntimeFlavor,
    /// The name of the runtime.
    pub(crate) name: Option<String>,
    pub(crate) event_interval: u32,
    pub(crate) global_queue_interval: u32,
    pub(crate) max_timers: Option<usize>,
    pub(crate) timer_store: store::StoreKind,
    pub(crate) rescue_latency: Duration,
    pub(crate) timer_tolerance: Tolerance,
    /// The share of its core that each worker spends on waking for timers. `None`: no limit.
    pub(crate) timer_budget: Option<f64>,
    /// Whether workers may wait awake.
    pub(crate) spin: bool,
    /// In ns.
    pub(crate) spin_before: u64,
    /// In ns.
    pub(crate) timer_advance: u64,
    /// The least and the greatest number of helpers.
    pub(crate) helpers: (usize, usize),
    /// The core of each worker, by worker number. `None` if workers are not pinned.
    pub(crate) pins: Option<Vec<usize>>,
    /// How many cores the workers may use together.
    pub(crate) cores: usize,
    /// Whether there are more workers than cores.
    pub(crate) shares_cores: bool,
    /// Whether the number of workers that take part follows what the system allows.
    pub(crate) follows_limits: bool,
    /// The group of what was given none.
    pub(crate) default_group: groups::Options,
    pub(crate) max_blocking_threads: usize,
    pub(crate) thread_keep_alive: Duration,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) on_thread_start: Option<Hook>,
    pub(crate) on_thread_stop: Option<Hook>,
    /// What the builder of tokio's signatures sets.
    #[cfg(feature = "facade")]
    pub(crate) facade: Options,
    pub(crate) on_thread_park: Option<Hook>,
    pub(crate) on_thread_unpark: Option<Hook>,
    /// In ns.
    pub(crate) stall_threshold: u64,
    pub(crate) on_stall: Option<StallHook>,
    pub(crate) recording: Recording,
    /// How many events each ring of the recorder keeps.
    pub(crate) recorded_events: usize,
    /// A timer that is later than this makes a copy of the rings, in ns.
    pub(crate) late_threshold: u64,
}

/// Which threads run the tasks and timers of a runtime. [`Handle::runtime_flavor`] returns it.
///
/// [`Handle::runtime_flavor`]: crate::runtime::Handle::runtime_flavor
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeFlavor {
    /// The threads that call [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    CurrentThread,
    /// Workers, which are threads of the runtime.
    MultiThread,
}

/// A data structure for timers: see [`Builder::timer_store`](crate::runtime::Builder::timer_store).
///
/// Each has a maximum number of timers, far beyond what fits the memory of most machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// A 4-ary heap: no operation takes much longer than another. Up to 2^31 timers per worker.
    Heap,
    /// A lazy hierarchical wheel: fast for every workload, and the fastest for very many timers. Up
    /// to 2^29 timers per worker.
    #[default]
    Wheel,
}

impl StoreKind {
    /// All kinds of stores.
    pub const ALL: [StoreKind; 2] = [StoreKind::Heap, StoreKind::Wheel];

    /// Returns the kind as the shards know it.
    pub(crate) fn of_shard(self) -> store::StoreKind {
        match self {
            Self::Heap => store::StoreKind::Heap,
            Self::Wheel => store::StoreKind::Wheel,
        }
    }
}

impl Config {
    /// Returns whether the threads in `block_on` run the runtime, and not workers' own threads.
    pub(crate) fn is_current_thread(&self) -> bool {
        self.flavor == RuntimeFlavor::CurrentThread
    }

    /// Returns whether the peers of each of `workers` workers watch over it. If not, they do so
    /// only while it is in `block_in_place`.
    pub(crate) fn is_watched(&self, workers: usize) -> bool {
        self.rescue_latency != Duration::MAX && (workers > 1 || self.helpers.1 > 0)
    }
}
