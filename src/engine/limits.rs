//! What limits how many workers of a runtime take part.

use tourbillon_pool::Period;
use tourbillon_sched::Limit;

use crate::{
    sys::{
        cpu::Allowed,
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
    },
    util::lock::lock,
};

/// What limits the workers: what was set by hand, and what the system allows.
pub(crate) struct Limits {
    most: Mutex<Most>,
    /// When a worker last began to look at what the system allows.
    pub(crate) looked: Period,
    /// Whether workers may wait awake: no quota allows less than the masks.
    may_spin: AtomicBool,
}

/// How many workers take part at most. The smaller number counts.
struct Most {
    by_hand: usize,
    by_system: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (by_hand, by_system) = (usize::MAX, usize::MAX);
        Self {
            most: Mutex::new(Most { by_hand, by_system }),
            looked: Period::new(),
            may_spin: AtomicBool::new(true),
        }
    }
}

impl Limits {
    /// Returns whether the system lets workers wait awake.
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin.load(Ordering::Relaxed)
    }

    /// Sets by hand how many workers take part at most. Returns whether that changes `limit`.
    pub(crate) fn by_hand(&self, limit: &Limit, workers: usize) -> bool {
        self.change(limit, |most| most.by_hand = workers)
    }

    /// Sets what the system allows. Returns whether that changes `limit`.
    pub(crate) fn by_system(&self, limit: &Limit, allowed: Allowed) -> bool {
        self.may_spin
            .store(!allowed.quota_is_less(), Ordering::Relaxed);
        let workers = allowed.workers().unwrap_or(usize::MAX);
        self.change(limit, |most| most.by_system = workers)
    }

    fn change(&self, limit: &Limit, change: impl FnOnce(&mut Most)) -> bool {
        // Two threads that set both numbers must not each miss the other one's.
        let mut most = lock(&self.most);
        change(&mut most);
        let active = most.by_hand.min(most.by_system);
        let changes = active != limit.get();
        if changes {
            limit.set(active);
        }
        changes
    }
}
