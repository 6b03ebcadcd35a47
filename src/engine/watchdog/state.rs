//! What a worker and its peers share to watch over the worker.

use crossbeam::utils::CachePadded;

use crate::{
    engine::watchdog::{looks::Looks, watch::Watch},
    sys::{
        sync::atomic::{AtomicBool, Ordering},
        timerfd::TimerFd,
    },
};

/// The watchdog's state of one worker.
pub(crate) struct Watchdog {
    /// The worker's current job. The worker writes it, its peers read it.
    pub(crate) watch: Watch,
    /// The timerfd that calls a peer if the worker does not return to its loop. A helper has none.
    pub(crate) alarm: Option<TimerFd>,
    /// The peers' notes about their looks at the worker.
    pub(crate) looks: CachePadded<Looks>,
    /// Whether the worker is in `block_in_place`.
    in_place: AtomicBool,
}

impl Watchdog {
    /// Creates the state of a worker that has no alarm.
    pub(crate) fn new() -> Self {
        Self {
            watch: Watch::new(),
            alarm: None,
            looks: CachePadded::default(),
            in_place: AtomicBool::new(false),
        }
    }

    /// Returns whether the worker is in `block_in_place`.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place.load(Ordering::Relaxed)
    }

    /// Records whether the worker is in `block_in_place`.
    pub(crate) fn set_in_place(&self, in_place: bool) {
        self.in_place.store(in_place, Ordering::Relaxed);
    }
}
