//! What limits how many workers of a runtime take part.

use std::ops::Range;

use tourbillon_pool::Period;
use tourbillon_sched::Limit;

use crate::{
    engine::worker::ration::Ration,
    sys::{cpu::Allowed, sync::Mutex},
    util::lock::lock,
};

/// What limits the workers: what was set by hand, and what the system allows.
pub(crate) struct Limits {
    most: Mutex<Most>,
    /// When a worker last began to look at what the system allows.
    pub(crate) looked: Period,
    pub(crate) ration: Ration,
}

/// How many workers take part at most. The smaller number counts.
struct Most {
    by_hand: usize,
    by_system: usize,
    /// When the look began that found `by_system`, in ns.
    looked: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let most = Most {
            by_hand: usize::MAX,
            by_system: usize::MAX,
            looked: 0,
        };
        Self {
            most: Mutex::new(most),
            looked: Period::new(),
            ration: Ration::default(),
        }
    }
}

impl Limits {
    /// Returns whether the system lets workers wait awake: no quota allows less than the masks.
    pub(crate) fn may_spin(&self) -> bool {
        !self.ration.is_on()
    }

    /// Sets by hand how many workers take part at most. Returns the workers whose duty that
    /// changes.
    pub(crate) fn by_hand(&self, limit: &Limit, workers: usize) -> Range<usize> {
        self.change(limit, |most| most.by_hand = workers)
    }

    /// Sets what the system allows, as a look has found that began at `begun`. A later look counts,
    /// if there was one: it may have come first. Returns the workers whose duty that changes.
    pub(crate) fn by_system(&self, limit: &Limit, allowed: Allowed, begun: u64) -> Range<usize> {
        self.change(limit, |most| {
            if begun >= most.looked {
                most.looked = begun;
                most.by_system = allowed.workers().unwrap_or(usize::MAX);
                self.ration.set(allowed.quota_if_less());
            }
        })
    }

    fn change(&self, limit: &Limit, change: impl FnOnce(&mut Most)) -> Range<usize> {
        // Two threads that set both numbers must not each miss the other one's.
        let mut most = lock(&self.most);
        change(&mut most);
        let (before, active) = (limit.get(), most.by_hand.min(most.by_system));
        if active != before {
            limit.set(active);
        }
        before.min(active)..before.max(active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look may take longer than the next one, which then finds what is newer.
    #[test]
    fn a_look_that_began_later_counts() {
        let (limits, limit) = (Limits::default(), Limit::new());
        let cores = |quota| Allowed::with_quota(quota, 4);
        assert_eq!(limits.by_system(&limit, cores(1.0), 2), 1..usize::MAX);
        assert!(!limits.may_spin());
        assert_eq!(limits.by_system(&limit, cores(4.0), 1), 1..1);
        assert_eq!((limit.get(), limits.may_spin()), (1, false));
        assert_eq!(limits.by_system(&limit, cores(3.0), 3), 1..3);
        assert_eq!(limits.by_hand(&limit, 2), 2..3);
        assert_eq!(limits.by_hand(&limit, 5), 2..3);
    }
}
